package gather

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/doctor"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

type list struct {
	schema.GroupVersionKind
	// keep reports whether an object is kept. Nil means that all are.
	keep    func(*unstructured.Unstructured) bool
	options []client.ListOption
}

// lists returns what is gathered, in an order in which each list depends on earlier ones only. Both generations of the
// Operator Lifecycle Manager (OLM) have objects about operators, also if they could not install one.
func (g *gatherer) lists() (lists []list) {
	notCopied, _ := labels.Parse("!olm.copiedFrom") // to another namespace, by OLM
	byName := []client.ListOption{client.MatchingFields{"metadata.name": names.Operator}}
	add := func(apiVersion string, keep func(*unstructured.Unstructured) bool, options []client.ListOption,
		kinds ...string) {
		for _, kind := range kinds {
			lists = append(lists, list{schema.FromAPIVersionAndKind(apiVersion, kind), keep, options})
		}
	}
	add("apps/v1", g.operator, byName, "Deployment")
	add("coordination.k8s.io/v1", g.ofOperator, byName, "Lease")
	add("apps/v1", g.isOwn, []client.ListOption{client.HasLabels{labelName}}, "ReplicaSet")
	add("v1", nil, nil, "Namespace", "Node")
	add("v1", g.claim, nil, "PersistentVolumeClaim")
	add("v1", has(names.Driver, "spec", "csi", "driver"), nil, "PersistentVolume")
	add("v1", g.pod, nil, "Pod")
	add("v1", g.service, nil, "Service")
	add("discovery.k8s.io/v1", g.endpoints, nil, "EndpointSlice")
	add("networking.k8s.io/v1", nil, nil, "NetworkPolicy")
	add("certificates.k8s.io/v1", has(names.Signer, "spec", "signerName"), nil, "PodCertificateRequest",
		"ClusterTrustBundle")
	add("storage.k8s.io/v1", nil, nil, "CSIDriver", "CSINode", "StorageClass")
	add(listenersv1alpha1.GroupVersion.String(), nil, nil, "Listener", "ListenerClass", "PodListeners")
	add(operatorv1alpha1.GroupVersion.String(), nil, nil, "ListenerOperator")
	add(names.KindDNSEndpoint.GroupVersion().String(), isOfListener, nil, names.KindDNSEndpoint.Kind)
	add("operators.coreos.com/v1alpha1", g.clusterServiceVersion,
		[]client.ListOption{client.MatchingLabelsSelector{Selector: notCopied}}, "ClusterServiceVersion")
	add("operators.coreos.com/v1alpha1", g.subscription, nil, "Subscription")
	add("operators.coreos.com/v1alpha1", g.isOwned, nil, "InstallPlan")
	add("operators.coreos.com/v1", g.operatorGroup, nil, "OperatorGroup")
	add("olm.operatorframework.io/v1", g.clusterExtension, nil, "ClusterExtension")
	add("admissionregistration.k8s.io/v1", isNamedLikeOperator, nil,
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding")
	add("rbac.authorization.k8s.io/v1", g.binding, nil, "ClusterRoleBinding", "RoleBinding")
	add("rbac.authorization.k8s.io/v1", g.role, nil, "ClusterRole", "Role")
	for _, backend := range g.Backends {
		for _, kind := range backend.Kinds() {
			l := list{}
			l.GroupVersionKind, _ = walk.Served(g.client, kind)
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

const (
	labelName = "app.kubernetes.io/name"
	// packageName is the name of the operator's package in its own catalogues. Others may have another one.
	packageName = names.Operator
)

func has(value string, path ...string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		found, _, _ := unstructured.NestedString(o.Object, path...)
		return found == value
	}
}

func (g *gatherer) remember(kind, namespace, name string) {
	g.found.Insert([3]string{kind, namespace, name})
}

func (g *gatherer) knows(kind, namespace, name string) bool {
	return g.found.Has([3]string{kind, namespace, name})
}

// operator remembers the namespace of an operator, and the ClusterExtension that has installed it.
func (g *gatherer) operator(o *unstructured.Unstructured) bool {
	g.operators.Insert(o.GetNamespace())
	g.remember("ClusterExtension", "", o.GetLabels()["olm.operatorframework.io/owner-name"])
	return true
}

func (g *gatherer) ofOperator(o *unstructured.Unstructured) bool {
	return g.operators.Has(o.GetNamespace())
}

// isOwn reports whether an object belongs to an operator or a node agent.
func (g *gatherer) isOwn(o *unstructured.Unstructured) bool {
	return g.ofOperator(o) && o.GetLabels()[labelName] == names.Operator
}

// claim remembers a claim for a listener volume. All claims are kept: each may be missing in a Pod.
func (g *gatherer) claim(o *unstructured.Unstructured) bool {
	if walk.RequestsListener(typed[corev1.PersistentVolumeClaim](o)) {
		g.remember("PersistentVolumeClaim", o.GetNamespace(), o.GetName())
	}
	return true
}

// pod reports whether a Pod mounts a listener volume or is the operator's own, and remembers the latter.
func (g *gatherer) pod(o *unstructured.Unstructured) bool {
	pod := typed[corev1.Pod](o)
	if g.isOwn(o) {
		if !g.uids.Has(pod.UID) { // or else an earlier list had it
			g.own = append(g.own, pod)
		}
		return true
	}
	for label := range pod.Labels {
		if strings.HasPrefix(label, names.PodMountLabelPrefix) {
			return true
		}
	}
	return walk.Concerns(pod, func(claim string) bool { return g.knows("PersistentVolumeClaim", pod.Namespace, claim) })
}

// service remembers the Service of a Listener. All Services are kept: each may have the node port that a class lacks.
func (g *gatherer) service(o *unstructured.Unstructured) bool {
	if isOfListener(o) || o.GetLabels()[names.LabelManagedBy] == names.ServiceManagedBy {
		g.remember("Service", o.GetNamespace(), o.GetName())
	}
	return true
}

func (g *gatherer) endpoints(o *unstructured.Unstructured) bool {
	return g.knows("Service", o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName])
}

func isNamedLikeOperator(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), names.Operator)
}

// binding reports whether a binding is for an operator or a node agent, and remembers its role.
func (g *gatherer) binding(o *unstructured.Unstructured) bool {
	b := typed[rbacv1.ClusterRoleBinding](o) // a RoleBinding has the same fields
	if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && g.operators.Has(s.Namespace) &&
			(s.Name == names.Operator || s.Name == names.NodeAgent)
	}) {
		return false
	}
	g.remember(b.RoleRef.Kind, "", b.RoleRef.Name)
	return true
}

func (g *gatherer) role(o *unstructured.Unstructured) bool {
	return g.knows(o.GetKind(), "", o.GetName()) && (o.GetNamespace() == "" || g.ofOperator(o))
}

func isOfListener(o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.Kind == "Listener"
}

// event reports whether an event is about something that is gathered, or in the namespace of an operator.
func (g *gatherer) event(o *unstructured.Unstructured) bool {
	e := typed[corev1.Event](o)
	return g.uids.Has(e.InvolvedObject.UID) || g.operators.Has(e.Namespace) ||
		e.ReportingController == names.EventReporter
}

// typed returns an object as one of a type. The recorder does the same, and reports errors.
func typed[T any](o *unstructured.Unstructured) *T {
	into := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
	return into
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
			if len(l.options) == 0 {
				_ = s.Load(ctx, l.GroupVersionKind)
			} else {
				_ = r.List(ctx, lookup.MetadataList(l.GroupVersionKind),
					append(l.options, client.InNamespace(namespace))...)
			}
		}
		for operator := range g.operators {
			for _, c := range installation.Components() {
				_ = s.Get(ctx, c.Key(operator), c.Empty().(client.Object))
			}
		}
		if namespace == "" {
			g.examine(ctx, s)
		} else {
			g.follow(ctx, s)
		}
		// Again, because events concern what was read.
		_ = r.List(ctx, &corev1.EventList{}, client.InNamespace(namespace))
		if !r.forbidden {
			return
		}
	}
}

func (g *gatherer) examine(ctx context.Context, s *source.Source) {
	x := &check.Examination{Client: s, Backends: g.Backends}
	doctor.Examine(ctx, x, walk.UnusedDays)
	if x.Err != nil {
		g.miss("the report of doctor", x.Err)
		return
	}
	x.Conclude()
	var report strings.Builder
	command.WriteChecks(&report, &x.Report)
	g.miss("doctor.txt", g.write("doctor.txt", []byte(report.String())))
}

// follow reads what the walks from the objects of a namespace read.
func (g *gatherer) follow(ctx context.Context, s *source.Source) {
	w := walk.New(&check.Examination{Client: s, Backends: g.Backends})
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &listenersv1alpha1.ListenerList{},
		&corev1.PodList{}} {
		w.List(ctx, list, client.InNamespace(s.Namespace))
		_ = meta.EachListItem(list, func(o runtime.Object) error { // it is a list
			w.Apart().Step(ctx, o.(client.Object))
			return nil
		})
	}
}

// clusterServiceVersion reports whether a ClusterServiceVersion is a version of the operator: whether it owns the
// definition of the configuration. It remembers those that are.
func (g *gatherer) clusterServiceVersion(o *unstructured.Unstructured) bool {
	configuration := operatorv1alpha1.GroupVersion.WithResource("listeneroperators").GroupResource().String()
	owned, _, _ := unstructured.NestedSlice(o.Object, "spec", "customresourcedefinitions", "owned")
	if !slices.ContainsFunc(owned, func(crd any) bool {
		description, _ := crd.(map[string]any)
		return description["name"] == configuration
	}) {
		return false
	}
	g.remember(o.GetKind(), o.GetNamespace(), o.GetName())
	return true
}

// subscription reports whether a Subscription is to the operator's package, or has led to a version of it.
func (g *gatherer) subscription(o *unstructured.Unstructured) bool {
	of := has(packageName, "spec", "name")(o)
	for _, field := range []string{"currentCSV", "installedCSV"} {
		version, _, _ := unstructured.NestedString(o.Object, "status", field)
		of = of || g.knows("ClusterServiceVersion", o.GetNamespace(), version)
	}
	if of {
		g.remember("Subscription", o.GetNamespace(), "")
	}
	return of
}

// isOwned reports whether an object has an owner that was gathered, as the InstallPlan of a Subscription has.
func (g *gatherer) isOwned(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(),
		func(owner metav1.OwnerReference) bool { return g.uids.Has(owner.UID) })
}

// operatorGroup reports whether an OperatorGroup is in the namespace of an operator, or of a Subscription to one.
func (g *gatherer) operatorGroup(o *unstructured.Unstructured) bool {
	return g.ofOperator(o) || g.knows("Subscription", o.GetNamespace(), "")
}

// clusterExtension reports whether a ClusterExtension has installed an operator, or is to.
func (g *gatherer) clusterExtension(o *unstructured.Unstructured) bool {
	return has(packageName, "spec", "source", "catalog", "packageName")(o) || g.knows(o.GetKind(), "", o.GetName())
}
