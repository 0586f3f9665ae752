package holdings

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// ServiceHandler tells the registry which node ports Services have: an index of the cache would need a hundred times
// its memory.
func (h *Holdings) ServiceHandler() handler.EventHandler {
	observed := func(before, after client.Object) {
		h.Registry.Observe(client.ObjectKeyFromObject(cmp.Or(after, before)), nodePortsOf(before), nodePortsOf(after))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ Queue) { observed(nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ Queue) { observed(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ Queue) {
			observed(e.Object, nil)
			h.Waiting.Free(registry.Key{Kind: listenersv1alpha1.WaitingKindClusterIP})
		},
	}
}

func nodePortsOf(o client.Object) sets.Set[registry.Key] {
	keys := sets.New[registry.Key]()
	if service, ok := o.(*corev1.Service); ok {
		for number := range exposure.AllocatedNodePorts(service) {
			keys.Insert(registry.Number(listenersv1alpha1.WaitingKindNodePort, number))
		}
	}
	return keys
}

// Know tells the registry, once, what Listeners have by the cache. Of those that show the same, an accepted one has it,
// or else the oldest. What their classes give them comes last.
func (h *Holdings) Know(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known {
		return
	}
	h.known = true
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, h.reader.Client, &listeners)
	rank := func(l *listenersv1alpha1.Listener) int {
		if observe.Condition(l, listenersv1alpha1.ListenerAccepted).Status == metav1.ConditionTrue {
			return 0
		}
		return 1
	}
	slices.SortFunc(listeners.Items, func(a, b listenersv1alpha1.Listener) int {
		return cmp.Or(rank(&a)-rank(&b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	given := make([][]registry.Held, len(listeners.Items))
	for i := range listeners.Items {
		if s, err := h.reader.Snapshot(ctx, &listeners.Items[i]); err == nil { // else its pass fails
			h.Registry.Begin(s.ServiceKey()).Keep(h.shown(s, s.Listener.Status)...)
			given[i] = h.given(s)
		}
	}
	for i := range listeners.Items {
		h.Registry.Begin(names.ServiceKey(&listeners.Items[i])).Keep(given[i]...)
	}
}

// shown returns what a Listener has by a status.
func (h *Holdings) shown(s *observe.Snapshot, status *listenersv1alpha1.ListenerStatus) (all []registry.Held) {
	if status == nil {
		return nil
	}
	listener := *s.Listener
	listener.Status = status
	add := func(kind listenersv1alpha1.WaitingKind, numbers map[string]int32) {
		for port, number := range numbers {
			all = append(all, registry.Held{Key: registry.Number(kind, number), Use: port})
		}
	}
	add(listenersv1alpha1.WaitingKindNodePort, status.NodePorts) // while its Service is created again
	if status.ServiceName != nil {                               // no quota counts other ones
		add(listenersv1alpha1.WaitingKindSharedPort, status.SharedPorts)
	}
	hosts := observe.PublishedOf(&listener, listenersv1alpha1.AddressTypeHostname)
	if s.Class != nil && s.Class.Spec.Hostname != nil {
		for _, target := range status.Targets {
			hosts = append(hosts, target.Advertised.Address)
		}
	}
	keys := append(registry.Keys(listenersv1alpha1.WaitingKindHost, hosts...), advertised(&listener, status.Targets)...)
	if s.Class != nil && s.Class.Spec.ClusterIPs != nil {
		addresses := observe.PublishedOf(&listener, listenersv1alpha1.AddressTypeIP)
		keys = append(keys, registry.Keys(listenersv1alpha1.WaitingKindClusterIP, addresses...)...)
	}
	if s.Class != nil && s.Backend.Published != nil {
		l := s.ForBackend(s.Backend, s.Objects, nil)
		l.Listener = &listener
		keys = append(keys, s.Backend.Published(l)...)
	}
	return append(all, registry.For("", keys...)...)
}

// given returns what the class of a Listener gives it. Objects do not: users of the namespace may have written them.
// But which listener of a Gateway a Listener has chosen, nothing else says.
func (h *Holdings) given(s *observe.Snapshot) []registry.Held {
	if s.Class == nil {
		return nil
	}
	p := decide.ServiceFor(s)
	if p.Refusal != nil {
		return nil
	}
	keys := append(nameOf(s, p), h.ofObjects(s.Objects)...)
	if !s.Backend.IsExclusive() {
		objects, _ := decide.ObjectsFor(s, p, exposure.Others{})
		ofObjects, _ := h.reader.Kinds.HeldBy(s.Backend, objects...) // else its pass fails
		keys = append(keys, ofObjects...)
	}
	return registry.For("", keys...)
}

// nameOf returns the name of a Listener, if its class has a template.
func nameOf(s *observe.Snapshot, p decide.Service) []registry.Key {
	name := host.NameOf(s.ForBackend(s.Backend, s.Objects, p.Desired))
	return registry.Keys(listenersv1alpha1.WaitingKindHost, name)
}

// ofObjects returns what existing objects have that exclude each other.
func (h *Holdings) ofObjects(objects observe.Objects) (keys []registry.Key) {
	for _, backend := range h.reader.Backends {
		for key, o := range objects.OfBackend[backend.Name] {
			if kind := backend.Generated(key.Kind.Kind); kind.Exclusive != "" {
				keys = append(keys, kind.Holds(o)...)
			}
		}
	}
	return keys
}

// Commit gives back what the Listener neither needs any more nor has by its objects and the status that was written. If
// it was refused, it still needs what it had, apart from numbers and cluster IPs: it has those of its Service. A nil
// status is one that was not written; nothing changes then, or while the API server has not decided.
func (h *Holdings) Commit(pass *registry.Pass, s *observe.Snapshot, o *decide.Outcome,
	status *listenersv1alpha1.ListenerStatus) {
	if status == nil || o.Undecided() {
		return
	}
	shown := h.shown(s, status)
	keys := sets.New[registry.Key]()
	for _, held := range shown {
		keys.Insert(held.Key)
	}
	pass.Keep(slices.DeleteFunc(shown, func(held registry.Held) bool {
		return held.Kind == listenersv1alpha1.WaitingKindHost
	})...)
	pass.Keep(registry.For("", h.ofObjects(o.Written.Objects)...)...)
	ofService := sets.New(listenersv1alpha1.WaitingKindNodePort, listenersv1alpha1.WaitingKindSharedPort,
		listenersv1alpha1.WaitingKindClusterIP)
	pass.Commit(func(key registry.Key) bool {
		return keys.Has(key) || o.Refused() != nil && !ofService.Has(key.Kind)
	})
}

// Reconciled ends the pass of a Listener, which may have been deleted meanwhile.
func (h *Holdings) Reconciled(ctx context.Context, listener *listenersv1alpha1.Listener) {
	if now, err := lookup.Get(ctx, h.reader.Client, client.ObjectKeyFromObject(listener),
		&listenersv1alpha1.Listener{}); err == nil && now == nil {
		h.Registry.Forget(names.ServiceKey(listener))
	}
	h.Waiting.Reconciled(client.ObjectKeyFromObject(listener))
}
