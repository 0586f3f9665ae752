package gathered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// objects are those of a kind.
type objects map[types.NamespacedName]*unstructured.Unstructured

// reader is a client of what was gathered. Like an API server that does not permit to read it, it responds that what
// was not gathered is forbidden.
type reader struct {
	client.Client // nil: there is nothing to write
	index         Index
	scheme        *runtime.Scheme
	mapper        meta.RESTMapper
	objects       map[schema.GroupKind]objects
	// left is what may still be decoded, in bytes.
	left int64
}

func (r *reader) Scheme() *runtime.Scheme     { return r.scheme }
func (r *reader) RESTMapper() meta.RESTMapper { return r.mapper }

func (r *reader) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, r.scheme)
}

// mapping returns the kind of an object or of the objects in a list, if the cluster served it.
func (r *reader) mapping(o runtime.Object) (*meta.RESTMapping, error) {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		return nil, err
	}
	return r.mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}, kind.Version)
}

// errNotGathered is why something is forbidden.
var errNotGathered = errors.New("it was not gathered")

func (r *reader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	mapping, err := r.mapping(o)
	if err != nil {
		return err
	}
	kind, resource := mapping.GroupVersionKind.GroupKind(), mapping.Resource.GroupResource()
	if found := r.objects[kind][key]; found != nil {
		return convert(found.Object, o)
	}
	all := func(l *Listed) bool { return !l.Some }
	if slices.Contains(r.index.Absent, Absent{Kind: kind.String(), Namespace: key.Namespace, Name: key.Name}) || r.listed(kind, key.Namespace, all) {
		return apierrors.NewNotFound(resource, key.Name)
	}
	return apierrors.NewForbidden(resource, key.Name, errNotGathered)
}

// listed reports whether objects of a kind were listed, in a namespace or the whole cluster.
func (r *reader) listed(kind schema.GroupKind, namespace string, matches func(*Listed) bool) bool {
	return slices.ContainsFunc(r.index.Listed, func(l Listed) bool {
		return l.Kind == kind.String() && (l.Namespace == "" || l.Namespace == namespace) && matches(&l)
	})
}

func (r *reader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	mapping, err := r.mapping(list)
	if err != nil {
		return err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	kind := mapping.GroupVersionKind.GroupKind()
	if !r.listed(kind, o.Namespace, func(*Listed) bool { return true }) {
		return apierrors.NewForbidden(mapping.Resource.GroupResource(), "", errNotGathered)
	}
	items := []any{}
	for _, key := range slices.SortedFunc(maps.Keys(r.objects[kind]), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		if object := r.objects[kind][key]; selects(o, object) {
			items = append(items, object.Object)
		}
	}
	version, name := list.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return convert(map[string]any{"apiVersion": version, "kind": name, "items": items}, list)
}

// selects reports whether the options of a list select an object. Field selectors name strings, as those of the API
// server do.
func selects(o *client.ListOptions, object *unstructured.Unstructured) bool {
	if o.Namespace != "" && o.Namespace != object.GetNamespace() || o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	if o.FieldSelector == nil {
		return true
	}
	for _, required := range o.FieldSelector.Requirements() {
		if value, _, _ := unstructured.NestedString(object.Object, strings.Split(required.Field, ".")...); value != required.Value {
			return false
		}
	}
	return true
}

// convert writes an object into one of a type.
func convert(from map[string]any, to runtime.Object) error {
	if object, ok := to.(*unstructured.Unstructured); ok {
		object.Object = runtime.DeepCopyJSON(from)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
		return fmt.Errorf("decoding what was gathered: %w", err)
	}
	return nil
}

// Create responds to a review of a permission as the API server did. All other objects are forbidden.
func (r *reader) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
		for _, object := range r.objects[KindReview] {
			var known authorizationv1.SubjectAccessReview
			if err := convert(object.Object, &known); err != nil {
				return err
			}
			if equality.Semantic.DeepEqual(known.Spec, review.Spec) {
				review.Status = known.Status
				return nil
			}
		}
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: KindReview.Group}, o.GetName(), errNotGathered)
}
