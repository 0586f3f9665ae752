package listener

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// mapper maps changes of objects to the Listeners that depend on them.
type mapper struct {
	client    client.Reader
	backends  backends.List
	kinds     *kinds
	hosts     *hosts
	exclusive map[string]*exclusive
}

// serviceToListeners maps a Service to the Listener of the same name, and to those that wait for its host.
func (m *mapper) serviceToListeners(_ context.Context, o client.Object) []reconcile.Request {
	return append(m.hosts.waiting.requests(index.ServiceHost(o)...), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// classToListeners maps a ListenerClass to its Listeners, and to those that wait for a host, which may be one that
// these do not have any more.
func (m *mapper) classToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(m.listeners(ctx, client.MatchingFields{index.ListenersByClass: o.GetName()}), m.hosts.waiting.all()...)
}

// namespaceToListeners maps a Namespace to its Listeners, because classes may select namespaces by labels, and to those
// that wait for exclusive objects, because what these belong to may select namespaces, too.
func (m *mapper) namespaceToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(m.listeners(ctx, client.InNamespace(o.GetName())), m.waitingForOthers()...)
}

// configurationToListeners maps the ListenerOperator to all Listeners, because it depends on their classes which of
// them publish a name in the cluster domain.
func (m *mapper) configurationToListeners(ctx context.Context, _ client.Object) []reconcile.Request {
	return m.listeners(ctx)
}

// listeners returns a request for each of the selected Listeners.
func (m *mapper) listeners(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, m.client, index.Request, options...)
}

// objectToListeners maps an object of a backend's kind to the Listener that controls it, or else to the Listeners that
// are not accepted because of a foreign object. If objects are exclusive, those that were refused follow.
func (m *mapper) objectToListeners(backend *exposure.Backend) handler.MapFunc {
	kind := backend.Kind
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		if x := m.exclusive[backend.Name]; x != nil {
			requests = x.waiting.all()
		}
		if kind.Hosts != nil {
			requests = append(requests, m.hosts.waiting.requests(index.ObjectHosts(kind.Hosts)(o)...)...)
		}
		if listener, ok := listenerOf(o); ok {
			return append(requests, reconcile.Request{NamespacedName: listener})
		}
		isRefused := func(ctx context.Context, o client.Object) []reconcile.Request {
			l := o.(*listenersv1alpha1.Listener)
			if l.Status == nil {
				return nil
			}
			if c := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted); c == nil || c.Reason != kind.ForeignReason {
				return nil
			}
			return index.Request(ctx, l)
		}
		return append(requests, index.Requests[listenersv1alpha1.ListenerList](ctx, m.client, isRefused, client.InNamespace(o.GetNamespace()))...)
	}
}

// waitingForOthers returns the Listeners that wait for exclusive objects of others.
func (m *mapper) waitingForOthers() []reconcile.Request {
	var requests []reconcile.Request
	for _, x := range m.exclusive {
		requests = append(requests, x.waiting.all()...)
	}
	return requests
}

// referenceToListeners maps an object that backends only read to the Listeners whose class or whose objects refer to
// it: the class need not refer to it any more.
func (m *mapper) referenceToListeners(kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		var classes listenersv1alpha1.ListenerClassList
		index.List(ctx, m.client, &classes)
		for _, backend := range m.backends {
			if backend.Reads == nil || backend.Reads.GroupVersionKind != kind {
				continue
			}
			refers := func(class *listenersv1alpha1.ListenerClass, objects ...exposure.Object) bool {
				return slices.Contains(backend.References(class, objects), client.ObjectKeyFromObject(o))
			}
			for i := range classes.Items {
				if refers(&classes.Items[i]) {
					requests = append(requests, m.classToListeners(ctx, &classes.Items[i])...)
				}
			}
			for _, object := range m.kinds.readable(ctx, backend.Kind) {
				if listener, ok := listenerOf(object); ok && refers(&listenersv1alpha1.ListenerClass{}, object) {
					requests = append(requests, reconcile.Request{NamespacedName: listener})
				}
			}
		}
		return requests
	}
}

// listenerToListeners handles changes of Listeners: it requests those that wait for a host of a Listener when that is
// changed, and those that wait for anything of it when it is deleted.
func (m *mapper) listenerToListeners() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, requests []reconcile.Request) {
		for _, request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			add(q, m.hosts.waiting.requests(m.hosts.heldBy(client.ObjectKeyFromObject(e.ObjectNew))...))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			add(q, m.hosts.waiting.requests(m.hosts.heldBy(client.ObjectKeyFromObject(e.Object))...))
			m.hosts.forget(client.ObjectKeyFromObject(e.Object))
			add(q, m.waitingForOthers())
		},
	}
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
func (m *mapper) nodeToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return append(
		index.Requests[corev1.PersistentVolumeList](ctx, m.client, volumeToListeners, client.MatchingFields{index.VolumesByNode: o.GetName()}),
		index.Requests[listenersv1alpha1.PodListenersList](ctx, m.client, podListenersToListeners, client.MatchingFields{index.PodListenersByNode: o.GetName()})...,
	)
}
