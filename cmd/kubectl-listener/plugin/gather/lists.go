package gather

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/doctor"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
)

// list is a list of objects that is gathered.
type list struct {
	schema.GroupVersionKind
	// keep reports whether an object is kept. Nil means that all are.
	keep    func(*unstructured.Unstructured) bool
	options []client.ListOption
}

// lists returns what is gathered, in an order in which each list depends on earlier ones only.
func (g *gatherer) lists() []list {
	lists := []list{
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), keep: g.operator, options: []client.ListOption{client.MatchingFields{"metadata.name": names.Operator}}},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), keep: g.ofOperator, options: []client.ListOption{client.MatchingFields{"metadata.name": names.Operator}}},
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
			l := list{GroupVersionKind: kind.GroupVersionKind}
			if mapping, err := g.client.RESTMapper().RESTMapping(kind.GroupKind(), append([]string{kind.Version}, kind.OtherVersions...)...); err == nil {
				l.GroupVersionKind = mapping.GroupVersionKind
			}
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

// ofOperator reports whether an object is in the namespace of an operator.
func (g *gatherer) ofOperator(o *unstructured.Unstructured) bool {
	return g.operators.Has(o.GetNamespace())
}

// isOwn reports whether an object belongs to an operator or a node agent.
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

// binding reports whether a binding is for an operator or a node agent, and remembers its role.
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

// read reads what doctor reads, and what else may help. If the user may not list some of that in the whole cluster, it
// also reads the objects of the user's namespace, and what why reads about them.
func (g *gatherer) read(ctx context.Context) {
	lists := g.lists()
	r := &recorder{Client: g.client, gatherer: g, filters: map[schema.GroupKind]func(*unstructured.Unstructured) bool{}}
	for _, l := range lists {
		r.filters[l.GroupKind()] = l.keep
	}
	for _, namespace := range []string{"", g.namespace} {
		s := source.List(r)
		s.Namespace = namespace
		for _, l := range lists { // the recorder keeps errors
			if objects := (&metav1.PartialObjectMetadataList{}); len(l.options) > 0 {
				objects.SetGroupVersionKind(l.GroupVersionKind)
				_ = r.List(ctx, objects, append(l.options, client.InNamespace(namespace))...)
				continue
			}
			_ = s.Load(ctx, l.GroupVersionKind)
		}
		for operator := range g.operators {
			for _, c := range installation.Components() {
				_ = s.Get(ctx, c.Key(operator), c.Empty().(client.Object))
			}
		}
		if namespace == "" {
			g.examine(ctx, s)
		} else {
			follow(ctx, s)
		}
		_ = r.List(ctx, &corev1.EventList{}, client.InNamespace(namespace)) // again, because events concern what was read
		if !r.forbidden {
			return
		}
	}
}

// examine runs `kubectl listener doctor`, and keeps its report.
func (g *gatherer) examine(ctx context.Context, s *source.Source) {
	x := &check.Examination{Client: s}
	doctor.Examine(ctx, x, walk.UnusedDays)
	if x.Err != nil {
		g.miss("the report of doctor", x.Err)
		return
	}
	x.Conclude()
	var report strings.Builder
	doctor.Write(&report, &x.Report)
	if err := g.write("doctor.txt", []byte(report.String())); err != nil {
		g.miss("doctor.txt", err)
	}
}

// follow reads what the walks from the objects of a namespace read.
func follow(ctx context.Context, s *source.Source) {
	w := walk.New(&check.Examination{Client: s})
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &listenersv1alpha1.ListenerList{}, &corev1.PodList{}} {
		w.List(ctx, list, client.InNamespace(s.Namespace))
		_ = meta.EachListItem(list, func(o runtime.Object) error { // it is a list
			w.Apart().Step(ctx, o.(client.Object))
			return nil
		})
	}
}
