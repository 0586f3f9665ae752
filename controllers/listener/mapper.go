package listener

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// serviceToListeners maps a Service to the Listener of the same name, and to those that wait for its host.
func (r *Reconciler) serviceToListeners(_ context.Context, o client.Object) []reconcile.Request {
	return append(r.hosts.waiting.requests(index.ServiceHost(o)...), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// classToListeners maps a ListenerClass to its Listeners, and to those that wait for a host, which may be free now.
func (r *Reconciler) classToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.listeners(ctx, client.MatchingFields{index.ListenersByClass: o.GetName()}), r.hosts.waiting.all()...)
}

// namespaceToListeners maps a Namespace to its Listeners, because classes may select namespaces by labels, and to those
// that wait for exclusive objects, because what these belong to may select namespaces, too.
func (r *Reconciler) namespaceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.listeners(ctx, client.InNamespace(o.GetName())), r.objects.exclusive.waiting.all()...)
}

// listeners returns a request for each of the selected Listeners.
func (r *Reconciler) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, index.Request, options...)
}

// objectToListeners maps an object of a kind that backends generate to the Listener that controls it, or else to the
// Listeners that are not accepted because of a foreign object. If objects are exclusive, those that were refused
// follow.
func (r *Reconciler) objectToListeners(kind *exposure.Kind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		if kind.Exclusive {
			requests = r.objects.exclusive.waiting.all()
		}
		if kind.Hosts != nil {
			requests = append(requests, r.hosts.waiting.requests(index.ObjectHosts(kind.Hosts)(o)...)...)
		}
		if listener, ok := listenerOf(o); ok {
			return append(requests, reconcile.Request{NamespacedName: listener})
		}
		isRefused := func(ctx context.Context, o client.Object) []reconcile.Request {
			if condition(o.(*listenersv1alpha1.Listener), listenersv1alpha1.ListenerAccepted).Reason != kind.ForeignReason {
				return nil
			}
			return index.Request(ctx, o)
		}
		return append(requests, index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, isRefused, client.InNamespace(o.GetNamespace()))...)
	}
}

// referenceToListeners maps an object that backends only read to the Listeners whose class or objects refer to it.
func (r *Reconciler) referenceToListeners(kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		var classes listenersv1alpha1.ListenerClassList
		index.List(ctx, r.Client, &classes)
		for _, backend := range r.Backends {
			if backend.Reads == nil || backend.Reads.GroupVersionKind != kind {
				continue
			}
			refers := func(class *listenersv1alpha1.ListenerClass, objects ...exposure.Object) bool {
				return slices.Contains(backend.References(class, objects), client.ObjectKeyFromObject(o))
			}
			for i := range classes.Items {
				if refers(&classes.Items[i]) {
					requests = append(requests, r.classToListeners(ctx, &classes.Items[i])...)
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

// listenerToListeners handles changes of Listeners: it requests those that wait for a host of a Listener when that is
// changed, those that wait for an exclusive object when it publishes other addresses, and those that wait for anything
// of it when it is deleted.
func (r *Reconciler) listenerToListeners() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			add(q, r.hosts.waiting.requests(r.hosts.heldBy(client.ObjectKeyFromObject(e.ObjectNew))...))
			before, after := e.ObjectOld.(*listenersv1alpha1.Listener), e.ObjectNew.(*listenersv1alpha1.Listener)
			if !reflect.DeepEqual(before.Status.TargetAddresses(), after.Status.TargetAddresses()) {
				add(q, r.objects.exclusive.waiting.all())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			add(q, r.hosts.waiting.requests(r.hosts.heldBy(client.ObjectKeyFromObject(e.Object))...))
			r.hosts.forget(client.ObjectKeyFromObject(e.Object))
			r.advertised.forget(e.Object.(*listenersv1alpha1.Listener))
			add(q, r.objects.exclusive.waiting.all())
			r.services.clusterIPs.remove(client.ObjectKeyFromObject(e.Object))
			add(q, r.services.clusterIPs.first())
		},
	}
}

// deletedServiceToListeners requests Listeners that wait for a cluster IP when a Service is deleted: those that still
// publish that of the Service, and the first of the others. If it gets one, the next one follows.
func (r *Reconciler) deletedServiceToListeners() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
		add(q, r.services.clusterIPs.requests(e.Object.(*corev1.Service).Spec.ClusterIPs...))
		add(q, r.services.clusterIPs.first())
	}}
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

// podToListeners maps a Pod to the Listeners that its labels name, and to those of its claims, which have their names.
func podToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	requests := index.PodToClaims(ctx, o)
	for label, name := range o.GetLabels() {
		if strings.HasPrefix(label, names.PodMountLabelPrefix) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	return requests
}

// nodeToListeners maps a Node to the Listeners with volumes that are reserved or mounted on it.
func (r *Reconciler) nodeToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	reserved := index.Requests[corev1.PersistentVolumeList](ctx, r.Client, volumeToListeners, client.MatchingFields{index.VolumesByNode: o.GetName()})
	onNode := client.MatchingFields{index.PodListenersByNode: o.GetName()}
	return append(reserved, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, podListenersToListeners, onNode)...)
}
