package listener

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/conflict"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/fairqueue"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/retry"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// workers is the number of concurrent reconciliations. Most of them only read the cache; the others wait for the API
// server.
const workers = 8

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.initialize()
	notInitial := predicates.NotInInitialList() // at the start, all Listeners are reconciled
	controlled := ctrl.NewControllerManagedBy(mgr).
		Named("listener").
		For(&listenersv1alpha1.Listener{}, builder.WithPredicates(specLabelsOrStatusChanged())).
		// By name rather than by owner, because the deletion of a foreign Service matters, too.
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.serviceToListeners), builder.WithPredicates(notInitial)).
		Watches(&corev1.Service{}, r.nodePorts.Handler()).
		Watches(&listenersv1alpha1.Listener{}, r.nodePorts.Handler()).
		Watches(&listenersv1alpha1.Listener{}, r.sharedPorts.Handler()).
		WatchesRawSource(r.nodePorts.Freed()).
		WatchesRawSource(r.sharedPorts.Freed()).
		Watches(&listenersv1alpha1.Listener{}, r.hosts.handler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&listenersv1alpha1.Listener{}, handler.EnqueueRequestsFromMapFunc(r.waitingForOthers), builder.WithPredicates(deleted())).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.classToListeners),
			builder.WithPredicates(notInitial, predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(volumeToListeners), builder.WithPredicates(notInitial, reservationChanged())).
		Watches(&listenersv1alpha1.PodListeners{}, handler.EnqueueRequestsFromMapFunc(podListenersToListeners),
			builder.WithPredicates(notInitial, predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(podToListeners), builder.WithPredicates(notInitial, predicate.Or(podFinished(), podWithClaimsReplaced(), podLabelsChanged()))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nodeToListeners), builder.WithPredicates(notInitial, predicates.NodeAddressesChanged())).
		WatchesMetadata(tenancy.Namespace(), handler.EnqueueRequestsFromMapFunc(r.namespaceToListeners),
			builder.WithPredicates(notInitial, predicate.LabelChangedPredicate{})).
		Watches(&operatorv1alpha1.ListenerOperator{}, handler.EnqueueRequestsFromMapFunc(r.configurationToListeners),
			builder.WithPredicates(notInitial, clusterDomainChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.New, RateLimiter: retry.Limiter[reconcile.Request]()})
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			if r.kinds[kind.GroupVersionKind] != nil {
				continue // another backend reads it, too
			}
			view, err := r.viewOf(kind)
			if err != nil {
				return err
			}
			r.kinds[kind.GroupVersionKind] = view
			controlled = controlled.WatchesRawSource(view)
		}
	}
	return controlled.Complete(conflict.Requeue("listener", reconcile.AsReconciler(r.Client, r)))
}

// viewOf returns the view of a backend's kind: a reader of its objects, and a source of requests for their Listeners.
func (r *Reconciler) viewOf(kind exposure.Kind) (*platform.View, error) {
	o, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	options := platform.ViewOptions{
		Scheme:     r.Client.Scheme(),
		Object:     o,
		Cache:      cache.ByObject{Transform: r.trimForeign(kind)},
		Indexes:    map[string]client.IndexerFunc{index.ObjectsByController: index.Controller},
		Handler:    handler.EnqueueRequestsFromMapFunc(r.objectToListeners(kind)),
		Predicates: []predicate.Predicate{controlledOrDeleted(kind.Contended)},
		Changed:    func(ctx context.Context) []reconcile.Request { return r.listeners(ctx) },
	}
	if kind.Hosts != nil {
		options.Indexes[index.ObjectsByHost] = index.ObjectHosts(kind.Hosts)
	}
	if kind.ReadOnly {
		options.Indexes = nil
		options.Handler = handler.EnqueueRequestsFromMapFunc(r.referenceToListeners(kind.GroupVersionKind))
		options.Predicates = []predicate.Predicate{trimmedChanged()}
	}
	view, err := r.Platform.View(options)
	if err != nil {
		return nil, fmt.Errorf("watching objects of kind %s: %w", kind.Kind, err)
	}
	return view, nil
}

// trimForeign reduces objects that no Listener controls, of which a cluster may have many, to what the backend needs,
// or else to what identifies them.
func (r *Reconciler) trimForeign(kind exposure.Kind) toolscache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(client.Object)
		if !ok {
			return o, nil // a tombstone of an object that was trimmed before
		}
		object.SetManagedFields(nil)
		switch {
		case isListener(metav1.GetControllerOf(object)):
			return object, nil
		case kind.Trim != nil:
			kind.Trim(object.(exposure.Object))
			return object, nil
		}
		trimmed, err := r.newObject(kind.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		trimmed.SetNamespace(object.GetNamespace())
		trimmed.SetName(object.GetName())
		trimmed.SetUID(object.GetUID())
		trimmed.SetResourceVersion(object.GetResourceVersion())
		trimmed.SetOwnerReferences(object.GetOwnerReferences())
		return trimmed, nil
	}
}

// controlledOrDeleted passes objects that a Listener controls or has controlled, and the deletion of any object, which
// may have had a name that a Listener needs. If objects are contended, it passes changes of any of them, too.
func controlledOrDeleted(contended bool) predicate.Predicate {
	controlled := func(o client.Object) bool { return isListener(metav1.GetControllerOf(o)) }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return controlled(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return contended || controlled(e.ObjectOld) || controlled(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// objectToListeners maps an object of a backend's kind to the Listener that controls it, or else to the Listeners that
// are not accepted because of a foreign object. If objects are contended, those that were refused follow.
func (r *Reconciler) objectToListeners(kind exposure.Kind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		if kind.Contended {
			requests = r.contended[kind.GroupVersionKind].wake()
		}
		if kind.Hosts != nil {
			requests = append(requests, r.hosts.wake(index.ObjectHosts(kind.Hosts)(o)...)...)
		}
		if owner := controllingListener(o); owner.Name != "" {
			return append(requests, reconcile.Request{NamespacedName: owner})
		}
		var listeners listenersv1alpha1.ListenerList
		index.List(ctx, r.Client, &listeners, client.InNamespace(o.GetNamespace()))
		for i := range listeners.Items {
			l := &listeners.Items[i]
			if l.Status == nil {
				continue
			}
			if c := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted); c != nil && c.Reason == kind.ForeignReason {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(l)})
			}
		}
		return requests
	}
}

// waitingForOthers returns the Listeners that wait for contended objects of others.
func (r *Reconciler) waitingForOthers(context.Context, client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, c := range r.contended {
		requests = append(requests, c.wake()...)
	}
	return requests
}

// deleted passes objects that are deleted.
func deleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// podWithClaimsReplaced passes Pods with claims that are created, begin to terminate, or are deleted.
func podWithClaimsReplaced() predicate.Predicate {
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

// podLabelsChanged passes Pods that mount a Listener, and whose other labels changed, which the Listener may select.
func podLabelsChanged() predicate.Predicate {
	other := func(o client.Object) map[string]string {
		labels := maps.Clone(o.GetLabels())
		maps.DeleteFunc(labels, func(label, _ string) bool { return strings.HasPrefix(label, names.PodMountLabelPrefix) })
		return labels
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(index.PodClaims(e.ObjectNew)) > 0 && !maps.Equal(other(e.ObjectOld), other(e.ObjectNew))
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// specLabelsOrStatusChanged passes Listeners whose spec, deletion timestamp or labels, which the Service inherits,
// changed, and those whose status another writer has overwritten. It does not pass what this controller writes.
func specLabelsOrStatusChanged() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{},
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			listener := o.(*listenersv1alpha1.Listener)
			return listener.Status == nil || listener.Status.ObservedGeneration != listener.Generation
		}),
	)
}

// reservationChanged passes listener volumes that are created, deleted or released, or have another Listener or node.
func reservationChanged() predicate.Predicate {
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

// podFinished passes Pods that have just finished.
func podFinished() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !claim.PodFinished(e.ObjectOld.(*corev1.Pod)) && claim.PodFinished(e.ObjectNew.(*corev1.Pod))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false }, // its PodListeners are deleted with it
	}
}

// clusterDomainChanged passes a ListenerOperator that is created, is deleted, or has another cluster domain.
func clusterDomainChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		domain := func(o client.Object) string { return o.(*operatorv1alpha1.ListenerOperator).Spec.ClusterDomain }
		return domain(e.ObjectOld) != domain(e.ObjectNew)
	}}
}

// serviceToListeners maps a Service to the Listener of the same name, and to those that wait for its host.
func (r *Reconciler) serviceToListeners(_ context.Context, o client.Object) []reconcile.Request {
	return append(r.hosts.wake(index.ServiceHost(o)...), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// classToListeners maps a ListenerClass to its Listeners, and to those that wait for a host, which may be one that
// these do not have any more.
func (r *Reconciler) classToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.listeners(ctx, client.MatchingFields{index.ListenersByClass: o.GetName()}), r.hosts.wakeAll()...)
}

// namespaceToListeners maps a Namespace to its Listeners, because classes may select namespaces by labels, and to those
// that wait for contended objects, because what these belong to may select namespaces, too.
func (r *Reconciler) namespaceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.listeners(ctx, client.InNamespace(o.GetName())), r.waitingForOthers(ctx, o)...)
}

// configurationToListeners maps the ListenerOperator to all Listeners, because it depends on their classes which of
// them publish a name in the cluster domain.
func (r *Reconciler) configurationToListeners(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.listeners(ctx)
}

// listeners returns a request for each of the selected Listeners.
func (r *Reconciler) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, r.Client, &listeners, options...)
	requests := make([]reconcile.Request, 0, len(listeners.Items))
	for i := range listeners.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&listeners.Items[i])})
	}
	return requests
}

// volumeToListeners maps a PersistentVolume to the Listener that its labels name.
func volumeToListeners(_ context.Context, o client.Object) []reconcile.Request {
	labels := o.GetLabels()
	key := types.NamespacedName{Namespace: labels[names.LabelListenerNamespace], Name: labels[names.LabelListenerName]}
	if key.Namespace == "" || key.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// podListenersToListeners maps a PodListeners to the Listeners that it names.
func podListenersToListeners(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range index.PodListenersListeners(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// podToListeners maps a Pod to the Listeners that its labels name, and to those of its claims, which have the names of
// the claims.
func podToListeners(_ context.Context, o client.Object) []reconcile.Request {
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

// nodeToListeners maps a Node to the Listeners with volumes that are reserved or mounted on it.
func (r *Reconciler) nodeToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	var volumes corev1.PersistentVolumeList
	index.List(ctx, r.Client, &volumes, client.MatchingFields{index.VolumesByNode: o.GetName()})
	for i := range volumes.Items {
		requests = append(requests, volumeToListeners(ctx, &volumes.Items[i])...)
	}
	var mounts listenersv1alpha1.PodListenersList
	index.List(ctx, r.Client, &mounts, client.MatchingFields{index.PodListenersByNode: o.GetName()})
	for i := range mounts.Items {
		requests = append(requests, podListenersToListeners(ctx, &mounts.Items[i])...)
	}
	return requests
}
