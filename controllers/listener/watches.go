package listener

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/holdings"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// workers is how many reconciliations run at a time. Most only read the cache; the others wait for the API server.
const workers = 8

func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.initialize(clock.RealClock{})
	controlled := requests.Controller(mgr, "listener", workers).
		For(&listenersv1alpha1.Listener{}, builder.WithPredicates(specLabelsOrStatusChanged())).
		Watches(&listenersv1alpha1.Listener{}, r.listenerToListeners()).
		Watches(&corev1.Service{}, r.held.ServiceHandler()).
		WatchesRawSource(source.Channel(r.held.Waiting.Signal,
			handler.EnqueueRequestsFromMapFunc(r.held.Waiting.FreedRequests)))
	watch := func(o client.Object, toListeners handler.MapFunc, changes ...predicate.Predicate) {
		// At the start, all Listeners are reconciled.
		changes = append([]predicate.Predicate{predicates.NotInInitialList()}, changes...)
		requests.Watch(controlled, o, toListeners, changes...)
	}
	// By name rather than by owner, because the deletion of a foreign Service matters, too.
	watch(&corev1.Service{}, r.serviceToListeners)
	watch(&networkingv1.NetworkPolicy{}, r.policyToListeners, predicates.Changed(unversioned))
	watch(&listenersv1alpha1.ListenerClass{}, r.classToListeners, predicate.GenerationChangedPredicate{})
	watch(&corev1.PersistentVolume{}, r.volumeToListeners, reservationChanged())
	watch(&listenersv1alpha1.PodListeners{}, podListenersToListeners, predicate.GenerationChangedPredicate{})
	// After the deletion of a claim, the Listener of its name may be kept.
	watch(&corev1.PersistentVolumeClaim{}, index.Request, predicates.Deleted())
	watch(&corev1.Pod{}, r.podToListeners, podMattersToListener())
	watch(&corev1.Node{}, r.nodeToListeners, predicate.Or(predicates.NodeAddressesChanged(),
		predicates.NodeReadinessChanged(),
		predicates.Changed(func(n *corev1.Node) any { return n.Spec.Unschedulable })))
	watch(tenancy.Namespace(), r.namespaceToListeners, predicate.LabelChangedPredicate{})
	// Their classes decide which publish a name in the domain.
	all := func(ctx context.Context, _ client.Object) []reconcile.Request { return r.listeners(ctx) }
	watch(&operatorv1alpha1.ListenerOperator{}, all,
		predicates.Changed(func(o *operatorv1alpha1.ListenerOperator) any { return o.Spec.ClusterDomain }))
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			if r.reader.Kinds.Readers[kind.GroupVersionKind] != nil {
				continue // another backend has it, too
			}
			view, err := r.view(backend, kind)
			if err != nil {
				return err
			}
			r.reader.Kinds.Readers[kind.GroupVersionKind] = view
			controlled.WatchesRawSource(view)
		}
	}
	return errors.Join(
		controlled.Complete(requests.Requeue(mgr, "listener", reconcile.AsReconciler(r.Client, r))),
		mgr.Add(manager.RunnableFunc(rangeMetrics{r.Client, r.held.Registry}.export)),
	)
}

// view returns a reader of a kind's objects, which is a source of requests for their Listeners, too.
func (r *Reconciler) view(backend *exposure.Backend, kind *exposure.Kind) (*platform.View, error) {
	options := platform.ViewOptions{
		Scheme:  r.Client.Scheme(),
		Object:  r.reader.Kinds.NewObject(kind),
		Cache:   ctrlcache.ByObject{Transform: trimForeign(kind)},
		Changed: func(ctx context.Context) []reconcile.Request { return r.listeners(ctx) },
	}
	if kind == backend.Reads {
		options.Handler = handler.EnqueueRequestsFromMapFunc(r.referenceToListeners(kind.GroupVersionKind))
		options.Predicates = []predicate.Predicate{predicates.Changed(unversioned)}
	} else {
		options.Handler = handler.EnqueueRequestsFromMapFunc(r.objectToListeners(kind))
		options.Predicates = []predicate.Predicate{controlledOrDeleted(kind.Exclusive != "")}
		options.Indexes = index.OfObjects(backend)
	}
	return r.Platform.View(options)
}

// trimForeign reduces objects that no Listener controls to what the backend needs or what identifies them.
func trimForeign(kind *exposure.Kind) toolscache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(client.Object)
		if !ok {
			return o, nil // a tombstone of an object that was trimmed before
		}
		object.SetManagedFields(nil)
		cache.Bound(object)
		switch {
		case exposure.ListenerOf(object) != "":
			return object, nil
		case kind.Trim != nil:
			kind.Trim(object.(exposure.Object))
			return object, nil
		}
		trimmed := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
		trimmed.SetNamespace(object.GetNamespace())
		trimmed.SetName(object.GetName())
		trimmed.SetUID(object.GetUID())
		trimmed.SetResourceVersion(object.GetResourceVersion())
		trimmed.SetOwnerReferences(object.GetOwnerReferences())
		return trimmed, nil
	}
}

// unversioned returns an object without what differs between any two versions of it.
func unversioned(o client.Object) any {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	o.SetGeneration(0)
	return o
}

// controlledOrDeleted passes objects that a Listener controls or has controlled, and deletions, which may free a name
// that a Listener needs. If objects are exclusive, it passes all changes.
func controlledOrDeleted(exclusive bool) predicate.Predicate {
	controlled := func(o client.Object) bool { return exposure.ListenerOf(o) != "" }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return controlled(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return exclusive || controlled(e.ObjectOld) || controlled(e.ObjectNew)
		},
	}
}

// podMattersToListener passes Pods with claims that are created or deleted, get a node, begin to terminate, have just
// finished, or whose labels changed, which a Listener may select, except those that name a mounted Listener.
func podMattersToListener() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return len(claim.NamesOf(o.(*corev1.Pod))) > 0 }),
		predicates.Changed(func(pod *corev1.Pod) any {
			labels := maps.Clone(pod.Labels)
			maps.DeleteFunc(labels, func(label, _ string) bool {
				return strings.HasPrefix(label, names.PodMountLabelPrefix)
			})
			return []any{pod.Spec.NodeName, pod.DeletionTimestamp.IsZero(), claim.PodFinished(pod), labels}
		}),
	)
}

// specLabelsOrStatusChanged passes changes of the spec, of the deletion timestamp, of labels, which the Service
// inherits, of what keeps the Listener, and by others of the status. It does not pass what this controller writes.
func specLabelsOrStatusChanged() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{},
		predicates.Changed(func(l *listenersv1alpha1.Listener) any { return claim.KeepOf(l).Owners }),
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			listener := o.(*listenersv1alpha1.Listener)
			return listener.Status == nil || listener.Status.ObservedGeneration != listener.Generation
		}),
	)
}

// reservationChanged passes listener volumes that are created, deleted or released, or have another Listener or node.
func reservationChanged() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			return claim.IsListenerVolume(o.(*corev1.PersistentVolume))
		}),
		predicates.Changed(func(pv *corev1.PersistentVolume) any {
			return []any{index.VolumeListener(pv), claim.VolumeNodes(pv), pv.Status.Phase == corev1.VolumeReleased}
		}),
	)
}

func (r *Reconciler) serviceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Named(ctx, r.Client, o.GetNamespace(), o.GetName())
}

func (r *Reconciler) classToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	r.settler.Mark(settle.ChangedClass(o.GetName()))
	return r.ofClass(ctx, o)
}

func (r *Reconciler) ofClass(ctx context.Context, class client.Object) []reconcile.Request {
	return r.listeners(ctx, client.MatchingFields{index.ListenersByClass: class.GetName()})
}

// namespaceToListeners maps a Namespace, by whose labels classes and Gateways may select it, to its Listeners.
func (r *Reconciler) namespaceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	for _, backend := range r.Backends {
		for _, kind := range backend.Generates {
			r.free(kind)
		}
	}
	return r.listeners(ctx, client.InNamespace(o.GetName()))
}

func (r *Reconciler) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, index.Request, options...)
}

// free requests Listeners that may get something which objects of a kind have had.
func (r *Reconciler) free(kind *exposure.Kind) {
	if kind.Exclusive != "" {
		r.held.Waiting.Free(registry.Key{Kind: kind.Exclusive})
	}
}

// objectToListeners maps an object to the Listener that controls it, or else to those refused for a foreign object.
func (r *Reconciler) objectToListeners(kind *exposure.Kind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		r.free(kind)
		if listener, ok := observe.ListenerOf(o); ok {
			return index.Named(ctx, r.Client, listener.Namespace, listener.Name)
		}
		return r.listeners(ctx, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{index.ListenersByRefusal: kind.ForeignReason()})
	}
}

// referenceToListeners maps an object that backends only read to the Listeners whose class or objects refer to it. Its
// previous state is mapped first. A change of its spec is one of the class; its status may be so for seconds only.
// Tenants may write such objects. What nothing refers to is not remembered, and costs no look at the objects of others.
func (r *Reconciler) referenceToListeners(kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		key := client.ObjectKeyFromObject(o)
		toListeners := sync.OnceValue(func() handler.MapFunc {
			if r.settler.Differs(settle.Reference(o.GetUID()), strconv.FormatInt(o.GetGeneration(), 10)) {
				return r.classToListeners
			}
			return r.ofClass
		})
		var classes listenersv1alpha1.ListenerClassList
		index.List(ctx, r.Client, &classes)
		for _, backend := range r.Backends {
			if backend.Reads == nil || backend.Reads.GroupVersionKind != kind {
				continue
			}
			for i := range classes.Items {
				if slices.Contains(backend.References(&classes.Items[i], nil), key) {
					requests = append(requests, toListeners()(ctx, &classes.Items[i])...)
				}
			}
			for _, kind := range backend.Generates {
				for _, object := range r.reader.Kinds.Readable(ctx, kind,
					client.MatchingFields{index.ObjectsByReference: key.String()}) {
					if listener, ok := observe.ListenerOf(object); ok {
						requests = append(requests, reconcile.Request{NamespacedName: listener})
					}
				}
			}
		}
		return requests
	}
}

// listenerToListeners handles changes of Listeners, which may free what others were refused.
func (r *Reconciler) listenerToListeners() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q holdings.Queue) {
			r.held.Waiting.Changed(q, e.ObjectOld.(*listenersv1alpha1.Listener),
				e.ObjectNew.(*listenersv1alpha1.Listener))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q holdings.Queue) {
			r.held.Waiting.Changed(q, e.Object.(*listenersv1alpha1.Listener), nil)
			r.held.Registry.Forget(names.ServiceKey(e.Object))
		},
	}
}

// policyToListeners maps the NetworkPolicy of a Listener to this one, and to others of the same Pods; and any other one
// to the Listener that needs its name, and to those whose clients are restricted, which depends on it.
func (r *Reconciler) policyToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	name, ok := strings.CutSuffix(o.GetName(), exposure.ClientPolicySuffix)
	if ok {
		requests = index.RequestsFor(o.GetNamespace(), name)
	}
	inNamespace := client.InNamespace(o.GetNamespace())
	if exposure.IsClientPolicy(o) {
		ofPods := client.MatchingFields{index.PodListenersByListener: name}
		return append(requests, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client,
			podListenersToListeners, inNamespace, ofPods)...)
	}
	return append(requests, index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.restrictedListener,
		inNamespace)...)
}

func (r *Reconciler) restrictedListener(ctx context.Context, o client.Object) []reconcile.Request {
	listener := o.(*listenersv1alpha1.Listener)
	if len(listener.Spec.AllowedClients) == 0 {
		class, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: listener.Class()},
			&listenersv1alpha1.ListenerClass{})
		if err != nil || class == nil || len(class.Spec.AllowedClients) == 0 {
			return nil
		}
	}
	return index.Request(ctx, o)
}

func (r *Reconciler) volumeToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	namespace, name := o.GetLabels()[names.LabelListenerNamespace], o.GetLabels()[names.LabelListenerName]
	if namespace == "" || name == "" {
		return nil
	}
	return index.Named(ctx, r.Client, namespace, name)
}

func podListenersToListeners(_ context.Context, o client.Object) []reconcile.Request {
	return index.RequestsFor(o.GetNamespace(), index.PodListenersListeners(o)...)
}

func (r *Reconciler) podToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	requests := index.PodToClaims(ctx, o)
	for label, name := range o.GetLabels() {
		if strings.HasPrefix(label, names.PodMountLabelPrefix) {
			requests = append(requests, index.Named(ctx, r.Client, o.GetNamespace(), name)...)
		}
	}
	return requests
}

// nodeToListeners maps a Node to the Listeners with volumes that are reserved or mounted on it. The previous state of a
// Node is mapped first, so its addresses are known before they change.
func (r *Reconciler) nodeToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	if node, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(o), &corev1.Node{}); err == nil &&
		node == nil {
		r.settler.Nodes.Forget(o.GetName())
	} else {
		r.settler.Nodes.Settle(o.(*corev1.Node), nil)
	}
	reserved := index.Requests[corev1.PersistentVolumeList](ctx, r.Client, r.volumeToListeners,
		client.MatchingFields{index.VolumesByNode: o.GetName()})
	onNode := client.MatchingFields{index.PodListenersByNode: o.GetName()}
	return append(reserved, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, podListenersToListeners,
		onNode)...)
}
