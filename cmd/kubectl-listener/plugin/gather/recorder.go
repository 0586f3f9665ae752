package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
)

const maxObjects = 10_000

// recorder is a client that writes what it reads: whole objects, and of lists what the filters keep.
type recorder struct {
	client.Client
	*gatherer
	// filters report whether an object of a kind is kept. All objects of other kinds are.
	filters map[schema.GroupKind]func(*unstructured.Unstructured) bool
	reviews int
	// forbidden states that the user may not list some kind in the whole cluster.
	forbidden bool
}

func (r *recorder) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	mapping, err := source.Mapping(r, o)
	if err != nil {
		return err
	}
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(mapping.GroupVersionKind)
	what := mapping.GroupVersionKind.Kind + " " + strings.TrimPrefix(key.String(), "/")
	err = r.Client.Get(ctx, key, whole, options...)
	switch absent := (source.Absent{Kind: mapping.GroupVersionKind.GroupKind().String(), Namespace: key.Namespace,
		Name: key.Name}); {
	case err == nil:
		r.miss(what, r.keep(mapping, whole))
		return source.Convert(whole.Object, o)
	case !apierrors.IsNotFound(err):
		r.miss(what, err)
	case !slices.Contains(r.index.Absent, absent):
		r.index.Absent = append(r.index.Absent, absent)
	}
	return err
}

// List implements client.Reader, in pages.
func (r *recorder) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	mapping, err := source.Mapping(r, list)
	if err != nil {
		return err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	listed := source.Listed{Kind: mapping.GroupVersionKind.GroupKind().String(), Namespace: o.Namespace,
		Some: o.LabelSelector != nil || o.FieldSelector != nil}
	var items []runtime.Object
	var incomplete error // of what is written
	count, keep := 0, r.filters[mapping.GroupVersionKind.GroupKind()]
	err = pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		objects := &unstructured.UnstructuredList{}
		objects.SetGroupVersionKind(mapping.GroupVersionKind)
		return objects, r.Client.List(ctx, objects, o, client.Limit(page.Limit), client.Continue(page.Continue))
	}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		whole := item.(*unstructured.Unstructured)
		object, err := itemOf(list, whole)
		items = append(items, object)
		if keep != nil && !keep(whole) {
			listed.Some = true
		} else if count++; count > maxObjects {
			incomplete = fmt.Errorf("there are more than %d", maxObjects)
		} else {
			incomplete = cmp.Or(incomplete, r.keep(mapping, whole))
		}
		return err
	})
	r.record(mapping.Resource.GroupResource().String(), listed, count, cmp.Or(err, incomplete))
	if err != nil {
		return err
	}
	return meta.SetList(list, items)
}

// itemOf returns an object as an item of a list, whose kind may be in no scheme.
func itemOf(list client.ObjectList, whole *unstructured.Unstructured) (runtime.Object, error) {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	object := reflect.New(reflect.TypeOf(items).Elem().Elem()).Interface().(runtime.Object)
	return object, source.Convert(whole.Object, object)
}

func (r *recorder) record(what string, listed source.Listed, count int, err error) {
	if listed.Namespace != "" {
		what += " of namespace " + listed.Namespace
	}
	switch {
	case err == nil && !slices.Contains(r.index.Listed, listed):
		r.index.Listed = append(r.index.Listed, listed)
	case err != nil && (listed.Namespace == "" || !apierrors.IsForbidden(err)):
		// Otherwise, the same is missing of all namespaces.
		r.miss(what, err)
	}
	r.forbidden = r.forbidden || apierrors.IsForbidden(err)
	if err == nil {
		fmt.Fprintf(r.ErrOut, "%6d %s\n", count, what)
	}
}

// Create implements client.Writer for the reviews of permissions that only an API server can carry out.
func (r *recorder) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	err := r.Client.Create(ctx, o, options...)
	if review, ok := o.(*authorizationv1.SubjectAccessReview); ok && err == nil {
		named := review.DeepCopy()
		named.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind(source.KindReview.Kind))
		named.Name = fmt.Sprintf("%03d", r.reviews)
		r.reviews++
		content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(named)
		resource := schema.GroupResource{Group: source.KindReview.Group, Resource: "subjectaccessreviews"}
		r.miss("a review of permissions", errors.Join(convertErr,
			r.object(resource, &unstructured.Unstructured{Object: content})))
	}
	return err
}

func (r *recorder) keep(mapping *meta.RESTMapping, o *unstructured.Unstructured) error {
	r.uids.Insert(o.GetUID())
	return r.object(mapping.Resource.GroupResource(), o.DeepCopy())
}

func (g *gatherer) object(resource schema.GroupResource, o *unstructured.Unstructured) error {
	if o.GetKind() == "Secret" || o.GetKind() == "ConfigMap" {
		return errors.New("objects of this kind are not gathered")
	}
	path := source.Path(resource, o.GetNamespace(), o.GetName())
	if g.written.Has(path) {
		return nil
	}
	g.clean(o)
	if err := g.writeYAML(path, o.Object); err != nil {
		return err
	}
	g.index.Objects++
	return nil
}

// removed replaces what may be secret, so that readers see that there is something.
const removed = "(removed)"

// foreign are annotations of others that the operator or the plugin writes or reads. Their values are kept, as those of
// the operator's own keys are. Anybody may write anything into others, also below the operator's own domains.
var foreign = []string{names.AnnotationProvisioner, names.AnnotationHostname, names.AnnotationHostname022}

// fields are the fields that are removed wherever they are in an object of any kind: the value of an environment
// variable, what a container said when it ended, what a probe requests, the key of a Route, the password of a keystore
// of a Certificate, what an InstallPlan creates, which may include a Secret, and the parameters of a driver's
// StorageClass. From a Pod of users, what it runs is removed, too.
var fields = map[string][]string{
	"env":        {"value"},
	"terminated": {"message"},
	"httpGet":    {"path"},
	"jks":        {"password"},
	"pkcs12":     {"password"},
	"tls":        {"key", "certificate", "caCertificate", "destinationCACertificate"},
	"resource":   {"manifest"},
	"":           {"parameters", "httpHeaders"},
	"users' Pod": {"parameters", "httpHeaders", "command", "args", "exec", "options"},
}

// clean removes from an object what is of no use to readers, and what may be secret.
func (g *gatherer) clean(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	unstructured.RemoveNestedField(o.Object, "status", "images") // of Nodes, and long
	unstructured.RemoveNestedField(o.Object, "spec", "icon")     // of ClusterServiceVersions
	everywhere := fields[""]
	switch {
	case o.GetKind() == "CustomResourceDefinition":
		cleanAnnotations(o.Object["metadata"].(map[string]any)["annotations"])
		return // its schema has such fields
	case o.GetKind() == "Pod" && !g.isOwn(o):
		everywhere = fields["users' Pod"]
	}
	cleanFields(o.Object, everywhere, "")
}

// cleanFields removes fields of an object or a list below a field.
func cleanFields(value any, everywhere []string, below string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			cleanFields(item, everywhere, below)
		}
	case map[string]any:
		for name, field := range value {
			switch {
			case slices.Contains(everywhere, name):
				delete(value, name)
			case below != "" && slices.Contains(fields[below], name):
				value[name] = removed
			case name == "annotations" || strings.HasSuffix(name, "Annotations"), name == "volumeAttributes":
				// Those of a claim.
				cleanAnnotations(field)
			default:
				cleanFields(field, everywhere, name)
			}
		}
	}
}

func cleanAnnotations(value any) {
	annotations, _ := value.(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	for key := range annotations {
		if !keys.Known(key) && !slices.Contains(foreign, key) {
			annotations[key] = removed
		}
	}
}
