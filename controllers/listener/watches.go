package listener

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/retry"
)

// workers is how many Listeners are worked on at once. Most passes read the cache alone; the rest wait for the API
// server.
const workers = 8

// SetupWithManager registers the controller and everything that it waits for.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.live = mgr.GetAPIReader()
	r.applier, r.statuses = apply.New(r.Client, names.FieldManagerService), apply.New(r.Client, names.FieldManagerListenerStatus)
	r.clock, r.overlap, r.stood = clock.RealClock{}, overlap, map[types.UID]standing{}
	later := predicates.NotInInitialList() // all Listeners are looked at then
	controlled := ctrl.NewControllerManagedBy(mgr).
		Named("listener").
		For(&listenersv1alpha1.Listener{}, builder.WithPredicates(asked())).
		// By name, not by owner: a foreign Service that makes way has to be noticed, too.
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(ofService), builder.WithPredicates(later)).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass),
			builder.WithPredicates(later, predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(ofVolume), builder.WithPredicates(later, reserved())).
		Watches(&listenersv1alpha1.PodListeners{}, handler.EnqueueRequestsFromMapFunc(ofPodListeners),
			builder.WithPredicates(later, predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod), builder.WithPredicates(later, predicate.Or(ended(), replaced()))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(later, predicates.NodeAddressesChanged())).
		Watches(&operatorv1alpha1.ListenerOperator{}, handler.EnqueueRequestsFromMapFunc(r.ofConfiguration),
			builder.WithPredicates(later, renamed())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter[reconcile.Request]()})
	r.kinds = map[schema.GroupVersionKind]optionalKind{}
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			source, err := r.kindSource(kind)
			if err != nil {
				return err
			}
			r.kinds[kind.GroupVersionKind] = source
			controlled = controlled.WatchesRawSource(source)
		}
	}
	return controlled.Complete(reconcile.AsReconciler(r.Client, r))
}

// kindSource returns a view of a backend's kind, and a source of the Listeners that its objects concern.
func (r *Reconciler) kindSource(kind exposure.Kind) (*platform.View, error) {
	o, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	source, err := r.Platform.View(platform.ViewOptions{
		Scheme:     r.Client.Scheme(),
		Object:     o,
		Cache:      cache.ByObject{Transform: r.trimForeign(kind.GroupVersionKind)},
		Indexes:    map[string]client.IndexerFunc{index.ObjectsByController: index.Controller},
		Handler:    handler.EnqueueRequestsFromMapFunc(r.ofObject(kind.ForeignReason)),
		Predicates: []predicate.Predicate{concerning()},
		Changed:    func(ctx context.Context) []reconcile.Request { return r.listeners(ctx) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching objects of kind %s: %w", kind.Kind, err)
	}
	return source, nil
}

// trimForeign keeps of an object that no Listener controls only what shows that it is there: a cluster may have many.
func (r *Reconciler) trimForeign(kind schema.GroupVersionKind) toolscache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(client.Object)
		if !ok {
			return o, nil // a tombstone of what was trimmed before
		}
		if isListener(metav1.GetControllerOf(object)) {
			object.SetManagedFields(nil)
			return object, nil
		}
		kept, err := r.newObject(kind)
		if err != nil {
			return nil, err
		}
		kept.SetNamespace(object.GetNamespace())
		kept.SetName(object.GetName())
		kept.SetUID(object.GetUID())
		kept.SetResourceVersion(object.GetResourceVersion())
		kept.SetOwnerReferences(object.GetOwnerReferences())
		return kept, nil
	}
}

// concerning passes objects that a Listener controls, or did, and any that makes way.
func concerning() predicate.Predicate {
	ours := func(o client.Object) bool { return isListener(metav1.GetControllerOf(o)) }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return ours(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return ours(e.ObjectOld) || ours(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ofObject asks for the Listener that controls an object of a backend's kind, or else for those that an object of
// another has been in the way of.
func (r *Reconciler) ofObject(foreignReason string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if owner := metav1.GetControllerOf(o); isListener(owner) {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
		}
		var listeners listenersv1alpha1.ListenerList
		index.List(ctx, r.Client, &listeners, client.InNamespace(o.GetNamespace()))
		var requests []reconcile.Request
		for i := range listeners.Items {
			l := &listeners.Items[i]
			if l.Status == nil {
				continue
			}
			if c := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted); c != nil && c.Reason == foreignReason {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(l)})
			}
		}
		return requests
	}
}

// replaced passes Pods with claims that come or go, or are about to.
func replaced() predicate.Predicate {
	claims := func(o client.Object) bool { return len(index.PodClaims(o)) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return claims(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return claims(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return claims(e.ObjectNew) && e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// asked passes Listeners whose spec, labels (the Service has them, too) or deletion changed, and those whose status
// someone else overwrote. It does not pass what this controller writes.
func asked() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{},
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			listener := o.(*listenersv1alpha1.Listener)
			return listener.Status == nil || listener.Status.ObservedGeneration != listener.Generation
		}),
	)
}

// reserved passes volumes of ours that come, go, lose their claim, or change their Listener or node.
func reserved() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return claim.IsListenerVolume(o.(*corev1.PersistentVolume)) }),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return !slices.Equal(index.VolumeListener(e.ObjectOld), index.VolumeListener(e.ObjectNew)) ||
				!slices.Equal(index.VolumeNodes(e.ObjectOld), index.VolumeNodes(e.ObjectNew)) ||
				!released(e.ObjectOld) && released(e.ObjectNew)
		}},
	)
}

func released(o client.Object) bool {
	return o.(*corev1.PersistentVolume).Status.Phase == corev1.VolumeReleased
}

// ended passes Pods that have just finished.
func ended() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !claim.PodFinished(e.ObjectOld.(*corev1.Pod)) && claim.PodFinished(e.ObjectNew.(*corev1.Pod))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false }, // its PodListeners goes with it
	}
}

// renamed passes a configuration that comes, goes, or changes the cluster's domain.
func renamed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		domain := func(o client.Object) string { return o.(*operatorv1alpha1.ListenerOperator).Spec.ClusterDomain }
		return domain(e.ObjectOld) != domain(e.ObjectNew)
	}}
}

// ofService asks for the Listener of the Service's name.
func ofService(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

func (r *Reconciler) ofClass(ctx context.Context, o client.Object) []reconcile.Request {
	return r.listeners(ctx, client.MatchingFields{index.ListenersByClass: o.GetName()})
}

// ofConfiguration asks for all Listeners: which of them publish a name below the cluster's domain is their classes'
// matter.
func (r *Reconciler) ofConfiguration(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.listeners(ctx)
}

func (r *Reconciler) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, r.Client, &listeners, options...)
	requests := make([]reconcile.Request, 0, len(listeners.Items))
	for i := range listeners.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&listeners.Items[i])})
	}
	return requests
}

func ofVolume(_ context.Context, o client.Object) []reconcile.Request {
	labels := o.GetLabels()
	key := types.NamespacedName{Namespace: labels[names.LabelListenerNamespace], Name: labels[names.LabelListenerName]}
	if key.Namespace == "" || key.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func ofPodListeners(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range index.PodListenersListeners(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// ofPod asks for the Listeners that the Pod is labelled with, and those of its own claims, which are named like them.
func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range index.PodClaims(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	for label, name := range o.GetLabels() {
		if strings.HasPrefix(label, names.PodMountLabelPrefix) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	return requests
}

// ofNode asks for the Listeners with volumes that are reserved, or mounted, on the node.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	var volumes corev1.PersistentVolumeList
	index.List(ctx, r.Client, &volumes, client.MatchingFields{index.VolumesByNode: o.GetName()})
	for i := range volumes.Items {
		requests = append(requests, ofVolume(ctx, &volumes.Items[i])...)
	}
	var mounts listenersv1alpha1.PodListenersList
	index.List(ctx, r.Client, &mounts, client.MatchingFields{index.PodListenersByNode: o.GetName()})
	for i := range mounts.Items {
		requests = append(requests, ofPodListeners(ctx, &mounts.Items[i])...)
	}
	return requests
}
