package listener

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/index"
)

// advertised gives each advertised address, with a port, to one Listener. After a restart, the statuses in the cache
// show which Listener had it.
type advertised struct {
	client  client.Reader
	waiting *waiting

	mu sync.Mutex
	// holders are the Listeners that have an address, and held are the addresses of each. Those in held have been
	// reconciled since the start: what the cache has of their statuses may be older.
	holders map[advertise.Endpoint]types.NamespacedName
	held    map[types.NamespacedName]sets.Set[advertise.Endpoint]
}

func newAdvertised(reader client.Reader, w *waiting) *advertised {
	return &advertised{
		client: reader, waiting: w,
		holders: map[advertise.Endpoint]types.NamespacedName{}, held: map[types.NamespacedName]sets.Set[advertise.Endpoint]{},
	}
}

// apply puts advertised addresses in the place of those to publish, if the class says so, and makes them those of the
// Listener. If they cannot be published, the status keeps the addresses that it has, and a refusal says why. Those of a
// previous exposure, for which the templates are not, stay without a refusal.
func (x *advertised) apply(ctx context.Context, s *snapshot, p *plan, o *outcome, a addresses) addresses {
	if s.class == nil || o.service == nil || s.serviceTerminating() {
		return a // the Listener keeps what it has
	}
	if s.class.Spec.Advertise == nil {
		x.release(s.listener)
		return a
	}
	if len(a.published.Addresses) == 0 {
		return a
	}
	targets, refusal := advertise.Targets(s.forBackend(s.backend, o.present, p.service), o.placement, a.published.Addresses)
	if refusal == nil {
		refusal = x.reserve(ctx, s, targets, a.published.Complete)
	}
	if refusal != nil {
		if a.kept = true; !a.previous && o.refusal == nil && o.err == nil {
			o.refusal = refusal
		}
		return a
	}
	a.targets, a.published.Addresses = targets, advertise.Published(targets)
	return a
}

// reserve makes what the targets are published as that of the Listener: in place of all that it had if the targets are
// complete, and otherwise in addition. If another Listener has one of these addresses, nothing changes.
func (x *advertised) reserve(ctx context.Context, s *snapshot, targets []listenersv1alpha1.Target, complete bool) *exposure.Refusal {
	wanted := advertise.Endpoints(s.listener, targets)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range wanted {
		if holder, taken := x.holder(ctx, e, s.listener); taken {
			return exposure.RefuseTaken(listenersv1alpha1.ReasonAddressTaken, fmt.Sprintf("by spec.advertise of ListenerClass %s, a port of Listener %s is at", s.class.Name, s.key()),
				e.String(), holder, "use a class with another address or port for one of the two")
		}
	}
	have := sets.New(wanted...)
	if !complete {
		have = have.Union(x.had(s.listener))
	}
	x.set(s.listener, have)
	return nil
}

// holder returns the other Listener that has an address. One that the status of a Listener has, and which was not
// reconciled yet, belongs to the Listener that was created first.
func (x *advertised) holder(ctx context.Context, e advertise.Endpoint, listener *listenersv1alpha1.Listener) (holder types.NamespacedName, taken bool) {
	key := client.ObjectKeyFromObject(listener)
	if holder, taken = x.holders[e]; taken {
		return holder, holder != key
	}
	var others listenersv1alpha1.ListenerList
	index.List(ctx, x.client, &others, client.MatchingFields{index.ListenersByAdvertised: e.String()})
	first := listener
	if !slices.Contains(endpointsOf(listener), e) {
		first = nil
	}
	for i := range others.Items {
		other := &others.Items[i]
		if _, known := x.held[client.ObjectKeyFromObject(other)]; known || client.ObjectKeyFromObject(other) == key {
			continue
		}
		if first == nil || other.CreationTimestamp.Before(&first.CreationTimestamp) {
			first = other
		}
	}
	if first == nil || first == listener {
		return key, false
	}
	return client.ObjectKeyFromObject(first), true
}

// had returns the addresses that a Listener has: by its status, if it was not reconciled yet.
func (x *advertised) had(listener *listenersv1alpha1.Listener) sets.Set[advertise.Endpoint] {
	if held, known := x.held[client.ObjectKeyFromObject(listener)]; known {
		return held
	}
	return sets.New(endpointsOf(listener)...)
}

// set makes the addresses those of a Listener, in place of all others.
func (x *advertised) set(listener *listenersv1alpha1.Listener, wanted sets.Set[advertise.Endpoint]) {
	key, had := client.ObjectKeyFromObject(listener), x.had(listener)
	for e := range had {
		if x.holders[e] == key {
			delete(x.holders, e)
		}
	}
	for e := range wanted {
		x.holders[e] = key
	}
	x.held[key] = wanted
	for e := range had.Difference(wanted) {
		x.waiting.free(index.Refusal(listenersv1alpha1.ReasonAddressTaken, e.String()))
	}
}

// release takes all addresses from a Listener whose class advertises none.
func (x *advertised) release(listener *listenersv1alpha1.Listener) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.held[client.ObjectKeyFromObject(listener)]; known || len(endpointsOf(listener)) > 0 {
		x.set(listener, nil)
	}
}

// forget removes a Listener that was deleted.
func (x *advertised) forget(listener *listenersv1alpha1.Listener) {
	x.release(listener)
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.held, client.ObjectKeyFromObject(listener))
}

// endpointsOf returns the advertised addresses in the status of a Listener.
func endpointsOf(listener *listenersv1alpha1.Listener) []advertise.Endpoint {
	return advertise.Endpoints(listener, ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Targets)
}
