package listener

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hosts gives each host to one Listener. A template gives no two Listeners the same host, but the templates of two
// classes can. After a restart, the objects in the cache show which Listener was the first.
type hosts struct {
	reader *reader

	mu sync.Mutex
	// holders are the Listeners that have a host, and held are the hosts of each.
	holders map[string]types.NamespacedName
	held    map[types.NamespacedName]sets.Set[string]
}

func newHosts(r *reader) *hosts {
	return &hosts{reader: r, holders: map[string]types.NamespacedName{}, held: map[types.NamespacedName]sets.Set[string]{}}
}

// reserve makes the hosts of a plan those of the Listener, in place of those that it had. If another Listener has one,
// the plan is refused, and the Listener is reconciled again when that may have changed. A Listener whose objects are
// refused keeps the hosts that it had, which these objects may still have.
func (h *hosts) reserve(ctx context.Context, s *snapshot, p *plan) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ofService, ofObjects, err := h.planned(s, p)
	if err != nil {
		return err
	}
	if p.refusal, err = h.refusal(ctx, s, ofService); err != nil || p.refusal != nil {
		return err
	}
	if p.objectsRefusal == nil {
		p.objectsRefusal, err = h.refusal(ctx, s, ofObjects)
	}
	if err != nil {
		return err
	}
	if p.objectsRefusal != nil {
		ofObjects = h.held[s.key()].UnsortedList()
	}
	h.set(s.key(), sets.New(ofService...).Insert(ofObjects...))
	return nil
}

// refusal returns why a Listener cannot have the hosts, because another one has one of them, or nil.
func (h *hosts) refusal(ctx context.Context, s *snapshot, wanted []string) (*exposure.Refusal, error) {
	for _, host := range wanted {
		holder, err := h.holder(ctx, s, host)
		if err != nil {
			return nil, err
		}
		if holder != nil {
			return exposure.RefuseTaken(listenersv1alpha1.ReasonInvalidHost, "by ListenerClass "+s.class.Name+" the host is", host, client.ObjectKeyFromObject(holder),
				"rename the Listener, or use a class whose hosts end differently"), nil
		}
	}
	return nil, nil //nolint:nilnil // nothing is refused
}

// set makes the hosts those of a Listener, in place of all others.
func (h *hosts) set(listener types.NamespacedName, wanted sets.Set[string]) {
	for host := range h.held[listener] {
		if h.holders[host] == listener {
			delete(h.holders, host)
		}
	}
	delete(h.held, listener)
	if len(wanted) > 0 {
		h.held[listener] = wanted
	}
	for host := range wanted {
		h.holders[host] = listener
	}
}

func (h *hosts) heldBy(listener types.NamespacedName) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[listener].UnsortedList()
}

// forget removes a Listener that was deleted.
func (h *hosts) forget(listener types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(listener, nil)
}

// planned returns the hosts of a plan: the name of the Service, if the class has a template, and those of the objects.
func (h *hosts) planned(s *snapshot, p *plan) (ofService, ofObjects []string, _ error) {
	if s.class.Spec.Hostname != nil {
		ofService = []string{p.serviceNow.Annotations[names.AnnotationHostname]}
	}
	for _, desired := range p.objects {
		kind := s.backend.Generated(desired.GetKind())
		if kind.Hosts == nil {
			continue
		}
		o, err := h.reader.kinds.typed(kind, desired)
		if err != nil {
			return nil, nil, err
		}
		ofObjects = append(ofObjects, kind.Hosts(o)...)
	}
	return ofService, slices.DeleteFunc(ofObjects, func(host string) bool { return host == "" }), nil
}

// holder returns the other Listener that has a host, or nil. It is the one that got it first.
func (h *hosts) holder(ctx context.Context, s *snapshot, host string) (*listenersv1alpha1.Listener, error) {
	if key, ok := h.holders[host]; ok {
		if key == s.key() {
			return nil, nil //nolint:nilnil // a host has one holder, and it is this Listener
		}
		if holder, err := h.entitled(ctx, key, host); holder != nil || err != nil {
			return holder, err
		}
		h.held[key].Delete(host)
		delete(h.holders, host)
	}
	objects := h.objectsWith(ctx, host)
	seen := sets.New(s.key())
	for _, object := range objects {
		other, ok := listenerOf(object)
		if !ok || seen.Has(other) {
			continue
		}
		seen.Insert(other)
		holder, err := h.entitled(ctx, other, host)
		if err != nil {
			return nil, err
		}
		if holder != nil && precedes(holder, s.listener, objects) {
			return holder, nil
		}
	}
	return nil, nil //nolint:nilnil // nobody has it
}

// objectsWith returns the objects of Listeners that request a host. Those of a kind that cannot be read are left out:
// the Listeners that have other kinds do not wait for its API.
func (h *hosts) objectsWith(ctx context.Context, host string) []client.Object {
	var objects []client.Object
	var services corev1.ServiceList
	index.List(ctx, h.reader.client, &services, client.MatchingFields{index.ServicesByHost: host})
	for i := range services.Items {
		objects = append(objects, &services.Items[i])
	}
	for _, backend := range h.reader.backends {
		for _, kind := range backend.Generates {
			if kind.Hosts == nil {
				continue
			}
			for _, object := range h.reader.kinds.readable(ctx, kind, client.MatchingFields{index.ObjectsByHost: host}) {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

// entitled returns a Listener if it exists and a host is that of its class, or still published for it, and otherwise
// nil. Objects do not show that: tenants can write some that name a Listener as their controller.
func (h *hosts) entitled(ctx context.Context, key types.NamespacedName, host string) (*listenersv1alpha1.Listener, error) {
	listener, err := lookup.Get(ctx, h.reader.client, key, &listenersv1alpha1.Listener{})
	if err != nil || listener == nil || (&exposure.Listener{Listener: listener}).Publishes(host) {
		return listener, err
	}
	s, err := h.reader.snapshot(ctx, listener)
	if err != nil {
		return nil, err
	}
	p := newPlan(s)
	if p.refusal != nil {
		return nil, nil //nolint:nilnil // it is not
	}
	p.addObjects(s, exposure.Others{})
	ofService, ofObjects, err := h.planned(s, p)
	if err != nil || !slices.Contains(ofService, host) && !slices.Contains(ofObjects, host) {
		return nil, err
	}
	return listener, nil
}

// precedes reports whether a has had the host of the objects before b: if it is accepted, or its objects are earlier.
func precedes(a, b *listenersv1alpha1.Listener, objects []client.Object) bool {
	since := func(l *listenersv1alpha1.Listener) (first time.Time, ok bool) {
		for _, object := range objects {
			if created := object.GetCreationTimestamp().Time; controls(l, object) && (!ok || created.Before(first)) {
				first, ok = created, true
			}
		}
		return first, ok
	}
	isAccepted := func(l *listenersv1alpha1.Listener) bool {
		return condition(l, listenersv1alpha1.ListenerAccepted).Status == metav1.ConditionTrue
	}
	sinceA, hasA := since(a)
	sinceB, hasB := since(b)
	switch {
	case !hasA || !hasB:
		return hasA
	case isAccepted(a) != isAccepted(b):
		return isAccepted(a)
	}
	return cmp.Or(sinceA.Compare(sinceB), cmp.Compare(client.ObjectKeyFromObject(a).String(), client.ObjectKeyFromObject(b).String())) < 0
}
