package podlisteners

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/retry"
)

// workers is how many Pods are worked on at once: as many as a node commonly starts together.
const workers = 16

// SetupWithManager registers the controller and everything that it waits for.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	after := predicates.NotInInitialList() // all PodListeners, and all Pods that may lack one, are looked at at the start
	later := builder.WithPredicates(after)
	return ctrl.NewControllerManagedBy(mgr).
		Named("podlisteners").
		For(&listenersv1alpha1.PodListeners{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod), builder.WithPredicates(mounted())).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), later).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume), later).
		Watches(&listenersv1alpha1.Listener{}, handler.EnqueueRequestsFromMapFunc(r.ofListener), later).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass), later).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(after, predicates.NodeAddressesChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter[reconcile.Request]()}).
		Complete(r)
}

// mounted passes Pods that mount a Listener, for which a PodListeners has to exist, those that go away, which may be
// waiting for one, and those that are new to the cache: while they were not in it, no change of what they wait for led
// to them.
func mounted() predicate.Predicate {
	passes := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod := o.(*corev1.Pod)
		return hasMountLabel(pod) || pod.DeletionTimestamp != nil && mountsClaims(pod)
	})
	return predicate.Or(passes, predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return mountsClaims(e.Object.(*corev1.Pod)) },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
}

func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: o.GetNamespace(), Name: listenersv1alpha1.PodListenersName(o.GetUID()),
	}}}
}

func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	var pods corev1.PodList
	index.List(ctx, r.Client, &pods, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.PodsByClaim: o.GetName()})
	var requests []reconcile.Request
	for i := range pods.Items {
		requests = append(requests, ofPod(ctx, &pods.Items[i])...)
	}
	return requests
}

func (r *Reconciler) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name = ref.Namespace, ref.Name
	return r.ofClaim(ctx, pvc)
}

func (r *Reconciler) ofListener(ctx context.Context, o client.Object) []reconcile.Request {
	var volumes corev1.PersistentVolumeList
	index.List(ctx, r.Client, &volumes, client.MatchingFields{index.VolumesByListener: index.VolumeListenerKey(client.ObjectKeyFromObject(o))})
	var requests []reconcile.Request
	for i := range volumes.Items {
		requests = append(requests, r.ofVolume(ctx, &volumes.Items[i])...)
	}
	return requests
}

func (r *Reconciler) ofClass(ctx context.Context, o client.Object) []reconcile.Request {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, r.Client, &listeners, client.MatchingFields{index.ListenersByClass: o.GetName()})
	var requests []reconcile.Request
	for i := range listeners.Items {
		requests = append(requests, r.ofListener(ctx, &listeners.Items[i])...)
	}
	return requests
}

func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	var all listenersv1alpha1.PodListenersList
	index.List(ctx, r.Client, &all, client.MatchingFields{index.PodListenersByNode: o.GetName()})
	requests := make([]reconcile.Request, 0, len(all.Items))
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}
