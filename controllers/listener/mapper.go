package listener

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// serviceToListeners maps a Service to the Listener whose Service has its name.
func (r *Reconciler) serviceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Named(ctx, r.Client, o.GetNamespace(), o.GetName())
}

// classToListeners maps a ListenerClass to its Listeners.
func (r *Reconciler) classToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	r.settler.mark(changedClass(o.GetName()))
	return r.listeners(ctx, client.MatchingFields{index.ListenersByClass: o.GetName()})
}

// namespaceToListeners maps a Namespace to its Listeners, because classes may select namespaces by labels, as may what
// exclusive objects belong to.
func (r *Reconciler) namespaceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	r.waiting.free(r.Backends.TakenReasons()...)
	return r.listeners(ctx, client.InNamespace(o.GetName()))
}

func (r *Reconciler) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, index.Request, options...)
}

// objectToListeners maps an object that backends generate to the Listener that controls it, or else to the Listeners
// that are not accepted because of a foreign object. Those that were refused exclusive objects follow.
func (r *Reconciler) objectToListeners(kind *exposure.Kind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if kind.Exclusive {
			r.waiting.free(r.Backends.TakenReasons()...)
		}
		if listener, ok := listenerOf(o); ok {
			return index.Named(ctx, r.Client, listener.Namespace, listener.Name)
		}
		return r.listeners(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.ListenersByRefusal: kind.ForeignReason})
	}
}

// referenceToListeners maps an object that backends only read to the Listeners whose class or objects refer to it. Its
// previous state is mapped first. A change of its spec is one of the class; its status may be so for seconds only.
func (r *Reconciler) referenceToListeners(kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		var classes listenersv1alpha1.ListenerClassList
		index.List(ctx, r.Client, &classes)
		toListeners := func(ctx context.Context, class client.Object) []reconcile.Request {
			return r.listeners(ctx, client.MatchingFields{index.ListenersByClass: class.GetName()})
		}
		if r.settler.differs(reference(o.GetUID()), strconv.FormatInt(o.GetGeneration(), 10)) {
			toListeners = r.classToListeners
		}
		for _, backend := range r.Backends {
			if backend.Reads == nil || backend.Reads.GroupVersionKind != kind {
				continue
			}
			refers := func(class *listenersv1alpha1.ListenerClass, objects ...exposure.Object) bool {
				return slices.Contains(backend.References(class, objects), client.ObjectKeyFromObject(o))
			}
			for i := range classes.Items {
				if refers(&classes.Items[i]) {
					requests = append(requests, toListeners(ctx, &classes.Items[i])...)
				}
			}
			for _, kind := range backend.Generates {
				for _, object := range r.kinds.readable(ctx, kind) {
					if listener, ok := listenerOf(object); ok && refers(&listenersv1alpha1.ListenerClass{}, object) {
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
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*listenersv1alpha1.Listener), e.ObjectNew.(*listenersv1alpha1.Listener)
			r.waiting.changed(q, before, after)
			if published := before.Status.TargetAddresses(); len(published) > 0 && !reflect.DeepEqual(published, after.Status.TargetAddresses()) {
				r.waiting.free(r.Backends.TakenReasons()...)
				if key := client.ObjectKeyFromObject(after); r.hosts.holds(key) {
					q.Add(reconcile.Request{NamespacedName: key}) // it gives back the hosts that it no longer publishes
				}
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			key := client.ObjectKeyFromObject(e.Object)
			r.waiting.changed(q, e.Object.(*listenersv1alpha1.Listener), nil)
			r.hosts.forget(key)
			r.advertised.forget(key)
			r.waiting.free(append(r.Backends.TakenReasons(), listenersv1alpha1.ReasonClusterIPsExhausted)...)
		},
	}
}

// policyToListeners maps the NetworkPolicy of a Listener to this one, and to others of the same Pods; and any other
// NetworkPolicy to the Listener that needs its name, and to those of the namespace whose clients are restricted: what
// their policies admit depends on it.
func (r *Reconciler) policyToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	name, ok := strings.CutSuffix(o.GetName(), exposure.ClientPolicySuffix)
	if ok {
		requests = index.RequestsFor(o.GetNamespace(), name)
	}
	inNamespace := client.InNamespace(o.GetNamespace())
	if exposure.IsClientPolicy(o) {
		ofPods := client.MatchingFields{index.PodListenersByListener: name}
		return append(requests, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, podListenersToListeners, inNamespace, ofPods)...)
	}
	return append(requests, index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.restrictedListener, inNamespace)...)
}

func (r *Reconciler) restrictedListener(ctx context.Context, o client.Object) []reconcile.Request {
	listener := o.(*listenersv1alpha1.Listener)
	if len(listener.Spec.AllowedClients) == 0 {
		class, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: listener.Class()}, &listenersv1alpha1.ListenerClass{})
		if err != nil || class == nil || len(class.Spec.AllowedClients) == 0 {
			return nil
		}
	}
	return index.Request(ctx, o)
}

// volumeToListeners maps a PersistentVolume to the Listener that its labels name.
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

// podToListeners maps a Pod to the Listeners that its labels name, and to those of its claims.
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
	if node, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(o), &corev1.Node{}); err == nil && node == nil {
		r.settler.nodes.Forget(o.GetName())
	} else {
		r.settler.nodes.Settle(o.(*corev1.Node), nil)
	}
	reserved := index.Requests[corev1.PersistentVolumeList](ctx, r.Client, r.volumeToListeners, client.MatchingFields{index.VolumesByNode: o.GetName()})
	onNode := client.MatchingFields{index.PodListenersByNode: o.GetName()}
	return append(reserved, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, podListenersToListeners, onNode)...)
}
