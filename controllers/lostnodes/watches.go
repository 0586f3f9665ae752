package lostnodes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// SetupWithManager registers the controller and its watches. Of the two workers, a namespace has one, because the
// condition of a Listener describes all of its volumes: a second one could overwrite it with what it observed earlier.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.conditions = apply.New(r.Client, names.FieldManagerLostNodes)
	changes := predicates.NotInInitialList() // the first watch enqueues all requests at the start
	provisionedOnly := predicate.NewPredicateFuncs(func(o client.Object) bool { return claim.IsListenerClaim(o) })
	return requests.Controller(mgr, "lostnodes", 2).
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(provisionedOnly, predicates.StatusIgnored())).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(index.VolumeToClaim), builder.WithPredicates(changes, predicates.StatusIgnored())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nodeToClaims), builder.WithPredicates(changes, predicates.NodeSchedulingChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(index.PodToClaims), builder.WithPredicates(changes, podMayReleaseVolume())).
		Watches(&listenersv1alpha1.Listener{}, handler.EnqueueRequestsFromMapFunc(r.listenerToClaims),
			builder.WithPredicates(changes, predicate.GenerationChangedPredicate{})).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.classToClaims),
			builder.WithPredicates(changes, predicate.GenerationChangedPredicate{})).
		Complete(requests.Requeue(mgr, "lostnodes", r))
}

// podMayReleaseVolume passes Pods that the scheduler finds no node for, or has found one for, and those that do not
// mount their volumes any more.
func podMayReleaseVolume() predicate.Predicate {
	return predicate.And(
		predicates.Changed(func(pod *corev1.Pod) any {
			return []any{claim.Unschedulable(pod), pod.Spec.NodeName, claim.PodFinished(pod)}
		}),
		predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return claim.Unschedulable(e.Object.(*corev1.Pod)) != "" }},
	)
}

func (r *Reconciler) nodeToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[corev1.PersistentVolumeList](ctx, r.Client, index.VolumeToClaim, client.MatchingFields{index.VolumesByNode: o.GetName()})
}

func (r *Reconciler) listenerToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[corev1.PersistentVolumeList](ctx, r.Client, index.VolumeToClaim, index.VolumesOf(o))
}

func (r *Reconciler) classToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.listenerToClaims, client.MatchingFields{index.ListenersByClass: o.GetName()})
}
