package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/gathered"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
)

// list is a list of objects that is gathered.
type list struct {
	schema.GroupVersionKind
	// versions are others that the cluster may serve.
	versions []string
	// keep reports whether an object is kept. Nil means that all are.
	keep    func(*unstructured.Unstructured) bool
	options []client.ListOption
}

// lists returns what is gathered, in an order in which each list depends on earlier ones only.
func (g *gatherer) lists() []list {
	lists := []list{
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), keep: g.operator, options: []client.ListOption{client.MatchingFields{"metadata.name": names.Operator}}},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), keep: g.isOwn, options: []client.ListOption{client.HasLabels{labelName}}},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), keep: g.claim},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolume"), keep: isListenerVolume},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), keep: g.pod},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), keep: g.service},
		{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), keep: g.endpoints},
		{GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")},
		{GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), keep: isOfSigner},
		{GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), keep: isOfSigner},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("CSIDriver")},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("CSINode")},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("StorageClass")},
		{GroupVersionKind: listenersv1alpha1.GroupVersion.WithKind("Listener")},
		{GroupVersionKind: listenersv1alpha1.GroupVersion.WithKind("ListenerClass")},
		{GroupVersionKind: listenersv1alpha1.GroupVersion.WithKind("PodListeners")},
		{GroupVersionKind: operatorv1alpha1.GroupVersion.WithKind("ListenerOperator")},
	}
	lists = append(lists, g.olmLists()...)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		lists = append(lists, list{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind(kind), keep: isNamedLikeOperator})
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		lists = append(lists, list{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind(kind), keep: g.binding})
	}
	for _, kind := range []string{"ClusterRole", "Role"} {
		lists = append(lists, list{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind(kind), keep: g.role})
	}
	for _, backend := range backends.All() {
		for _, kind := range backend.Kinds() {
			l := list{GroupVersionKind: kind.GroupVersionKind, versions: kind.OtherVersions}
			if kind != backend.Reads {
				l.keep = isOfListener
			}
			if !slices.ContainsFunc(lists, func(other list) bool { return other.GroupKind() == l.GroupKind() }) {
				lists = append(lists, l)
			}
		}
	}
	return append(lists, list{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Event"), keep: g.event})
}

// labelName is the label whose value is the operator's name.
const labelName = "app.kubernetes.io/name"

// operator remembers the namespace of an operator, and the ClusterExtension that has installed it.
func (g *gatherer) operator(o *unstructured.Unstructured) bool {
	g.operators.Insert(o.GetNamespace())
	if extension := o.GetLabels()[labelExtension]; extension != "" {
		g.extensions.Insert(extension)
	}
	return true
}

// isOwn reports whether an object is that of an operator or a node agent.
func (g *gatherer) isOwn(o *unstructured.Unstructured) bool {
	return g.operators.Has(o.GetNamespace()) && o.GetLabels()[labelName] == names.Operator
}

// claim remembers a claim for a listener volume. All claims are kept: each may be missing in a Pod.
func (g *gatherer) claim(o *unstructured.Unstructured) bool {
	if pvc, err := typed[corev1.PersistentVolumeClaim](o); err != nil || walk.RequestsListener(pvc) {
		g.claims.Insert(client.ObjectKeyFromObject(o))
	}
	return true
}

// isOfSigner reports whether an object is for the operator's signer of certificates.
func isOfSigner(o *unstructured.Unstructured) bool {
	signer, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
	return signer == names.Signer
}

func isListenerVolume(o *unstructured.Unstructured) bool {
	driver, _, _ := unstructured.NestedString(o.Object, "spec", "csi", "driver")
	return driver == names.Driver
}

// pod reports whether a Pod mounts a listener volume, or is one of an operator or a node agent, and remembers the
// latter.
func (g *gatherer) pod(o *unstructured.Unstructured) bool {
	pod, err := typed[corev1.Pod](o)
	if err != nil {
		return true
	}
	if g.isOwn(o) {
		g.own = append(g.own, pod)
		return true
	}
	for label := range pod.Labels {
		if strings.HasPrefix(label, names.PodMountLabelPrefix) {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return walk.IsEphemeral(&v) || v.CSI != nil && v.CSI.Driver == names.Driver || g.claims.Has(types.NamespacedName{Namespace: pod.Namespace, Name: claim.NameOf(pod, &v)})
	})
}

// service remembers the Service of a Listener. All Services are kept: each may have the node port that a class lacks.
func (g *gatherer) service(o *unstructured.Unstructured) bool {
	if isOfListener(o) || o.GetLabels()[names.LabelManagedBy] == names.ServiceManagedBy {
		g.services.Insert(client.ObjectKeyFromObject(o))
	}
	return true
}

func (g *gatherer) endpoints(o *unstructured.Unstructured) bool {
	return g.services.Has(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]})
}

func isNamedLikeOperator(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), names.Operator)
}

// binding reports whether a binding is that of an operator or a node agent, and remembers its role.
func (g *gatherer) binding(o *unstructured.Unstructured) bool {
	b, err := typed[rbacv1.ClusterRoleBinding](o) // a RoleBinding has the same fields
	if err != nil || !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && g.operators.Has(s.Namespace) && (s.Name == names.Operator || s.Name == names.NodeAgent)
	}) {
		return false
	}
	g.roles.Insert(b.RoleRef.Kind + " " + b.RoleRef.Name)
	return true
}

func (g *gatherer) role(o *unstructured.Unstructured) bool {
	return g.roles.Has(o.GetKind()+" "+o.GetName()) && (o.GetNamespace() == "" || g.operators.Has(o.GetNamespace()))
}

func isOfListener(o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.Kind == "Listener"
}

// event reports whether an event is about something that is gathered, or in the namespace of an operator.
func (g *gatherer) event(o *unstructured.Unstructured) bool {
	e, err := typed[corev1.Event](o)
	return err == nil && (g.uids.Has(e.InvolvedObject.UID) || g.operators.Has(e.Namespace) || e.ReportingController == names.EventReporter)
}

// typed returns an object as one of a type.
func typed[T any](o *unstructured.Unstructured) (*T, error) {
	into := new(T)
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}

// maxObjects is the most that is gathered of each kind.
const maxObjects = 10_000

// list gathers a list of the whole cluster, or if the user may not read that, of the namespace.
func (g *gatherer) list(ctx context.Context, l list) {
	mapping, err := g.client.RESTMapper().RESTMapping(l.GroupKind(), append([]string{l.Version}, l.versions...)...)
	if meta.IsNoMatchError(err) {
		return // as what the cluster serves shows
	}
	what := l.GroupKind().String()
	if err == nil {
		what = mapping.Resource.GroupResource().String()
		err = g.listIn(ctx, l, mapping, "")
	}
	if err != nil {
		g.miss(what, err)
	}
	if apierrors.IsForbidden(err) && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if err := g.listIn(ctx, l, mapping, g.namespace); err != nil && !apierrors.IsForbidden(err) {
			g.miss(what+" of namespace "+g.namespace, err)
		}
	}
}

// listIn gathers a list of a namespace, or of the whole cluster, in pages.
func (g *gatherer) listIn(ctx context.Context, l list, mapping *meta.RESTMapping, namespace string) error {
	count, some := 0, len(l.options) > 0
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(mapping.GroupVersionKind)
		options := slices.Concat(l.options, []client.ListOption{client.InNamespace(namespace), client.Limit(o.Limit), client.Continue(o.Continue)})
		return page, g.client.List(ctx, page, options...)
	}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		object := o.(*unstructured.Unstructured)
		if l.keep != nil && !l.keep(object) {
			some = true
			return nil
		}
		if count++; count > maxObjects {
			return fmt.Errorf("there are more than %d", maxObjects)
		}
		g.uids.Insert(object.GetUID())
		return g.object(mapping.Resource.GroupResource(), object)
	})
	if err != nil {
		return err
	}
	g.index.Listed = append(g.index.Listed, gathered.Listed{Kind: l.GroupKind().String(), Namespace: namespace, Some: some})
	g.progress(count, mapping.Resource.GroupResource().String())
	return nil
}

// single gathers objects by their names: the definitions, and what the operator installs.
func (g *gatherer) single(ctx context.Context) {
	for _, resource := range []schema.GroupResource{
		listenersv1alpha1.GroupVersion.WithResource("listeners").GroupResource(), listenersv1alpha1.GroupVersion.WithResource("listenerclasses").GroupResource(),
		listenersv1alpha1.GroupVersion.WithResource("podlisteners").GroupResource(), operatorv1alpha1.GroupVersion.WithResource("listeneroperators").GroupResource(),
	} {
		g.get(ctx, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), types.NamespacedName{Name: resource.String()})
	}
	for namespace := range g.operators {
		for _, c := range installation.Components() {
			if kind, err := g.client.GroupVersionKindFor(c.Empty()); err == nil { // all are in the scheme
				g.get(ctx, kind, c.Key(namespace))
			}
		}
	}
}

// get gathers an object.
func (g *gatherer) get(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) {
	mapping, err := g.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err == nil {
		err = g.client.Get(ctx, key, o)
	}
	switch {
	case apierrors.IsNotFound(err):
		g.index.Absent = append(g.index.Absent, gathered.Absent{Kind: kind.GroupKind().String(), Namespace: key.Namespace, Name: key.Name})
		return
	case err == nil:
		g.uids.Insert(o.GetUID())
		err = g.object(mapping.Resource.GroupResource(), o)
	}
	if err != nil {
		g.miss(kind.Kind+" "+strings.TrimPrefix(key.String(), "/"), err)
	}
}

// object writes an object.
func (g *gatherer) object(resource schema.GroupResource, o *unstructured.Unstructured) error {
	if o.GetKind() == "Secret" || o.GetKind() == "ConfigMap" {
		return errors.New("objects of this kind are not gathered")
	}
	path := gathered.Path(resource, o.GetNamespace(), o.GetName())
	if g.exists(path) {
		return nil
	}
	g.clean(o)
	if err := g.writeYAML(path, o.Object); err != nil {
		return err
	}
	g.index.Objects++
	return nil
}
