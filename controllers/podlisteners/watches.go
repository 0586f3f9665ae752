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

// workers is the number of Pods that are reconciled concurrently: as many as a node commonly starts at once.
const workers = 16

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	changes := predicates.NotInInitialList() // the first two watches enqueue all requests at the start
	return ctrl.NewControllerManagedBy(mgr).
		Named("podlisteners").
		For(&listenersv1alpha1.PodListeners{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(podToPodListeners), builder.WithPredicates(mayNeedPodListeners())).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.claimToPodListeners), builder.WithPredicates(changes)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.volumeToPodListeners), builder.WithPredicates(changes)).
		Watches(&listenersv1alpha1.Listener{}, handler.EnqueueRequestsFromMapFunc(r.listenerToPodListeners), builder.WithPredicates(changes)).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.classToPodListeners), builder.WithPredicates(changes)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nodeToPodListeners), builder.WithPredicates(changes, predicates.NodeAddressesChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter[reconcile.Request]()}).
		Complete(r)
}

// mayNeedPodListeners passes Pods that mount a Listener, because a PodListeners must exist for them; Pods that are
// being deleted, because a mount may wait; and Pods with claims that are added to the cache, because earlier changes of
// other objects were not mapped to them.
func mayNeedPodListeners() predicate.Predicate {
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

func podToPodListeners(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: o.GetNamespace(), Name: listenersv1alpha1.PodListenersName(o.GetUID()),
	}}}
}

func (r *Reconciler) claimToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var pods corev1.PodList
	index.List(ctx, r.Client, &pods, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.PodsByClaim: o.GetName()})
	var requests []reconcile.Request
	for i := range pods.Items {
		requests = append(requests, podToPodListeners(ctx, &pods.Items[i])...)
	}
	return requests
}

func (r *Reconciler) volumeToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name = ref.Namespace, ref.Name
	return r.claimToPodListeners(ctx, pvc)
}

func (r *Reconciler) listenerToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var volumes corev1.PersistentVolumeList
	index.List(ctx, r.Client, &volumes, client.MatchingFields{index.VolumesByListener: index.VolumeListenerKey(client.ObjectKeyFromObject(o))})
	var requests []reconcile.Request
	for i := range volumes.Items {
		requests = append(requests, r.volumeToPodListeners(ctx, &volumes.Items[i])...)
	}
	return requests
}

func (r *Reconciler) classToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, r.Client, &listeners, client.MatchingFields{index.ListenersByClass: o.GetName()})
	var requests []reconcile.Request
	for i := range listeners.Items {
		requests = append(requests, r.listenerToPodListeners(ctx, &listeners.Items[i])...)
	}
	return requests
}

func (r *Reconciler) nodeToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var all listenersv1alpha1.PodListenersList
	index.List(ctx, r.Client, &all, client.MatchingFields{index.PodListenersByNode: o.GetName()})
	requests := make([]reconcile.Request, 0, len(all.Items))
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}
