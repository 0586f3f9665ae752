package nodeagent

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
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
	first := requests.Controller(mgr, "first-start", 1).WatchesRawSource(requests.OnlyAtStart())
	if err := first.Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, r.createConfiguration(ctx)
	})); err != nil {
		return err
	}
	always, whileWaiting := handler.EnqueueRequestsFromMapFunc(toListenerOperator),
		handler.EnqueueRequestsFromMapFunc(r.toWaitingListenerOperator)
	changed := predicates.Changed(func(c *operatorv1alpha1.ListenerOperator) any {
		return []any{c.Generation, c.Finalizers}
	})
	// The status of the DaemonSet may be older than what the cache has of its Pods, or newer.
	agents := predicate.NewPredicateFuncs(func(o client.Object) bool { return names.IsNodeAgent(o) })
	readiness := predicates.Changed(func(pod *corev1.Pod) any {
		return []any{claim.PodReady(pod), pod.DeletionTimestamp}
	})
	// Conditions name them.
	withClaims := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return len(claim.NamesOf(o.(*corev1.Pod))) > 0
	})
	b := requests.Controller(mgr, "nodeagent", 1).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(changed)).
		Watches(&appsv1.Deployment{}, always, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, whileWaiting,
			builder.WithPredicates(predicates.Changed(func(pv *corev1.PersistentVolume) any { return inUse(pv) }))).
		Watches(&corev1.Pod{}, whileWaiting, builder.WithPredicates(predicates.Changed(func(pod *corev1.Pod) any {
			return claim.PodFinished(pod)
		}), withClaims)).
		Watches(&corev1.Pod{}, always, builder.WithPredicates(stackable.Pods())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, always,
			builder.WithPredicates(confinement.IsPolicy())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, always,
			builder.WithPredicates(confinement.IsPolicy())).
		Watches(tenancy.Namespace(), always, builder.WithPredicates(predicate.LabelChangedPredicate{},
			predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == r.Namespace }))).
		Watches(&corev1.Pod{}, always, builder.WithPredicates(agents, readiness)).
		Watches(&corev1.Node{}, always, builder.WithPredicates(predicates.NodeReadinessChanged())).
		Watches(&corev1.Node{}, whileWaiting, builder.WithPredicates(predicates.NodeSchedulingChanged()))
	for _, c := range installation.Components() {
		// By name, not by owner: the deletion of a foreign object has to trigger a reconciliation, too.
		if c.Optional.Empty() {
			b = b.Watches(c.Empty(), always,
				builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
					// A DaemonSet counts in any namespace.
					return client.ObjectKeyFromObject(o) == c.Key(r.Namespace) ||
						c.Kind == "DaemonSet" && o.GetName() == c.Name
				})))
			continue
		}
		source, err := r.optionalSource(mgr, c)
		if err != nil {
			return err
		}
		b = b.WatchesRawSource(source)
	}
	return b.Complete(requests.Requeue(mgr, "nodeagent", reconcile.AsReconciler(r.Client, r)))
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

// readOperatorPod returns the template of the operator's own Pods. If its Deployment no longer exists, it returns the
// last template: then the operator is being uninstalled, which must not change the agents.
func (r *Reconciler) readOperatorPod(ctx context.Context) (corev1.PodSpec, error) {
	deployment, err := lookup.Get(ctx, r.Client, types.NamespacedName{Namespace: r.Namespace, Name: names.Operator},
		&appsv1.Deployment{})
	if err == nil && deployment != nil {
		r.operatorPod = deployment.Spec.Template.Spec
	}
	return r.operatorPod, err
}
