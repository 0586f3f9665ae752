// Package nodeagent is the controller of ListenerOperator/cluster. It installs the components of package installation,
// which the nodes need to mount listener volumes. ListenerOperator/cluster owns all of them, so that an upgrade of the
// operator removes nothing. While Stackable's listener operator runs, it does nothing but report.
//
// It must never modify an object that another installation controls, nor remove anything while volumes are in use, even
// when ListenerOperator/cluster is deleted, which a finalizer delays until then. Only agents that an operator left in
// another namespace are deleted at once, because their tokens are invalid. It grants no permissions: the ServiceAccount
// of the agents and its ClusterRole are part of the operator's manifests.
package nodeagent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler is the controller of ListenerOperator/cluster. It becomes usable by SetupWithManager.
type Reconciler struct {
	Client    client.Client
	Namespace string
	Image     string
	// OperatorCondition is the name of the object that tells OLM whether it may upgrade the operator, or empty.
	OperatorCondition string
	// ClusterDomain is the DNS domain of the cluster that the operator's resolver has. Empty if it has none.
	ClusterDomain string
	// FirstSpec has fields of ListenerOperator/cluster, as JSON, for when the operator creates it. May be empty.
	FirstSpec string
	APIs      *platform.APIs
	Clock     clock.PassiveClock

	apiReader client.Reader
	stackable func(context.Context) (stackable.Installation, error)
	serves    func(schema.GroupVersionKind) bool
	applier   *apply.Applier
	events    events.EventRecorder

	// State of earlier reconciliations, which never run concurrently.

	operatorPod corev1.PodSpec
	// replacements are the last ones, by the kinds and names of the components.
	replacements map[string]replacement
	// uncreated is how many Pods of agents are missing, and uncreatedSince when this number has last changed.
	uncreated      int32
	uncreatedSince time.Time
	// template is the template of the agents, and templateSince the first generation of the DaemonSet that has it.
	template      string
	templateSince int64
	// guardsScheduling is whether the API server has a field of the CSIDriver, as the last one that was read says.
	guardsScheduling bool
	// waitingForUsers is set if the last reconciliation read the users of volumes.
	waitingForUsers atomic.Bool
}

// replacement is the last replacement of the content of an object, or its creation.
type replacement struct {
	uid             types.UID
	resourceVersion string
	// desired was sent, and result is what the API server answered with, which also has defaults.
	desired, result content
}

// content is what an object has besides its metadata and its status.
type content = map[string]any

func (r *Reconciler) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: name}
}

// SetupWithManager registers two controllers: the second creates ListenerOperator/cluster at the first start.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.apiReader = mgr.GetAPIReader()
	r.applier = apply.New(r.Client, names.FieldManagerOperator)
	r.events = mgr.GetEventRecorder(names.EventReporter)
	r.serves = r.APIs.Serves
	finder := &stackable.Finder{}
	r.stackable = func(ctx context.Context) (stackable.Installation, error) {
		return finder.Running(ctx, r.Client, r.Clock.Now())
	}
	first := &FirstStart{Client: r.Client, APIReader: r.apiReader, Namespace: r.Namespace,
		ClusterDomain: r.ClusterDomain, Spec: r.FirstSpec}
	err := requests.Controller(mgr, "first-start", 1).WatchesRawSource(requests.OnlyAtStart()).Complete(first)
	if err != nil {
		return err
	}
	always, whileWaiting, where := toListenerOperator, r.toWaitingListenerOperator, predicate.NewPredicateFuncs
	b := requests.Controller(mgr, "nodeagent", 1)
	b.For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(predicates.Changed(
		func(c *operatorv1alpha1.ListenerOperator) any { return []any{c.Generation, c.Finalizers} })))
	requests.Watch(b, &appsv1.Deployment{}, always, predicate.GenerationChangedPredicate{})
	requests.Watch(b, &corev1.PersistentVolume{}, whileWaiting,
		predicates.Changed(func(pv *corev1.PersistentVolume) any { return inUse(pv) }))
	requests.Watch(b, &corev1.Pod{}, whileWaiting,
		predicates.Changed(func(pod *corev1.Pod) any { return claim.PodFinished(pod) }),
		where(func(o client.Object) bool { return len(claim.NamesOf(o.(*corev1.Pod))) > 0 })) // conditions name them
	requests.Watch(b, &corev1.Pod{}, always, stackable.Pods())
	requests.Watch(b, &admissionregistrationv1.ValidatingAdmissionPolicy{}, always, confinement.IsPolicy())
	requests.Watch(b, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, always, confinement.IsPolicy())
	requests.Watch(b, tenancy.Namespace(), always, predicate.LabelChangedPredicate{},
		where(func(o client.Object) bool { return o.GetName() == r.Namespace }))
	// The status of the DaemonSet may be older than what the cache has of its Pods, or newer.
	requests.Watch(b, &corev1.Pod{}, always, where(func(o client.Object) bool { return names.IsNodeAgent(o) }),
		predicates.Changed(func(pod *corev1.Pod) any { return []any{claim.PodReady(pod), pod.DeletionTimestamp} }))
	requests.Watch(b, &corev1.Node{}, always, predicates.NodeReadinessChanged())
	requests.Watch(b, &corev1.Node{}, whileWaiting, predicates.NodeSchedulingChanged())
	for _, c := range installation.Components() {
		if !c.Optional.Empty() {
			source, err := r.optionalSource(mgr, c)
			if err != nil {
				return err
			}
			b.WatchesRawSource(source)
			continue
		}
		// By name, not by owner: the deletion of a foreign object has to trigger a reconciliation, too. A DaemonSet
		// counts in any namespace.
		requests.Watch(b, c.Empty(), always, where(func(o client.Object) bool {
			return o.GetName() == c.Name && (c.Kind == "DaemonSet" || o.GetNamespace() == c.Key(r.Namespace).Namespace)
		}))
	}
	return b.Complete(requests.Requeue(mgr, "nodeagent", reconcile.AsReconciler(r.Client, r)))
}

// Reconcile updates components and status. Conditions report what an administrator has to resolve, errors the rest.
func (r *Reconciler) Reconcile(ctx context.Context,
	config *operatorv1alpha1.ListenerOperator) (reconcile.Result, error) {
	r.waitingForUsers.Store(false)
	o, err := r.observe(ctx, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	other, err := r.stackable(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var done outcome
	switch {
	case len(other.Workloads) > 0:
		done = outcome{stackable: other}
	case o.state == operatorv1alpha1.Removed:
		done = r.remove(ctx, o)
	case o.state == operatorv1alpha1.Unmanaged:
	default:
		done = r.install(ctx, o)
	}
	r.observeTemplate(o.rollout, o.agents())
	status, deadlines := describe(o, done, r.Clock.Now())
	if err := errors.Join(done.err, r.writeStatus(ctx, config, status), r.reportUpgradeable(ctx, status)); err != nil {
		return reconcile.Result{}, err
	}
	return deadlines.Result(ctx), nil
}

// optionalSource watches a component of an optional kind. Its cache holds metadata alone.
func (r *Reconciler) optionalSource(mgr manager.Manager, c installation.Component) (*platform.View, error) {
	only := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name)}
	if c.Namespaced {
		only.Namespaces = map[string]cache.Config{r.Namespace: {}}
	}
	return r.APIs.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: lookup.Metadata(c.Optional), Cache: only,
		Handler: handler.EnqueueRequestsFromMapFunc(toListenerOperator),
		Changed: func(ctx context.Context) []reconcile.Request { return toListenerOperator(ctx, nil) },
	})
}

func toListenerOperator(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}}}
}

// toWaitingListenerOperator maps to ListenerOperator/cluster if a change may wait for volumes that are in use.
func (r *Reconciler) toWaitingListenerOperator(ctx context.Context, o client.Object) []reconcile.Request {
	if !r.waitingForUsers.Load() {
		return nil
	}
	return toListenerOperator(ctx, o)
}
