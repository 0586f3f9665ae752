package listener

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/index"
)

// advertised gives each advertised address, with a port, to one Listener. After a restart, the statuses in the cache
// show which Listener had it.
type advertised struct {
	*keys
	client client.Reader
}

// apply puts advertised addresses in the place of those to publish, if the class says so, and reserves them. If they
// cannot be published, the status keeps what it has, and a refusal says why. Those of a previous exposure, for which
// the templates are not, stay without a refusal.
func (x *advertised) apply(ctx context.Context, s *snapshot, p *plan, w *written, placement exposure.Placement, a addresses) addresses {
	switch {
	case s.class == nil, w.service == nil, s.serviceTerminating(), a.kept:
		return a // the Listener keeps what it has
	case s.class.Spec.Advertise == nil:
		_ = x.reserve(ctx, s, nil, true) // which releases all
		return a
	case len(a.published.Addresses) == 0:
		return a
	}
	targets, refusal := advertise.Targets(s.forBackend(s.backend, w.present, p.service), placement, a.published.Addresses)
	if refusal == nil {
		refusal = x.reserve(ctx, s, targets, a.published.Complete)
	}
	if refusal == nil {
		a.targets, a.published.Addresses = targets, advertise.Published(targets)
		return a
	}
	if a.kept = true; !a.previous && w.err == nil {
		a.taken = refusal
	}
	return a
}

// reserve gives the Listener the addresses that its targets are published as, in place of all that it had, or in
// addition unless the targets are complete. If another Listener has one of these addresses, nothing changes.
func (x *advertised) reserve(ctx context.Context, s *snapshot, targets []listenersv1alpha1.Target, complete bool) *exposure.Refusal {
	wanted, had := advertise.Endpoints(s.listener, targets), sets.New(index.Advertised(s.listener)...)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range wanted {
		if holder, taken := x.holder(ctx, e, s.listener); taken {
			return exposure.RefuseTaken(x.reason, fmt.Sprintf("by spec.advertise of ListenerClass %s, a port of Listener %s is at", s.class.Name, s.key()),
				e, holder, "use a class with another address or port for one of the two")
		}
	}
	x.set(s.key(), sets.New(wanted...), had, !complete)
	return nil
}

// holder returns who has an address. One in a status that was not reconciled yet belongs to the Listener created first.
func (x *advertised) holder(ctx context.Context, e string, listener *listenersv1alpha1.Listener) (holder types.NamespacedName, taken bool) {
	key := client.ObjectKeyFromObject(listener)
	if held := x.holders[e]; held != nil {
		return held.listener, held.listener != key
	}
	var others listenersv1alpha1.ListenerList
	index.List(ctx, x.client, &others, client.MatchingFields{index.ListenersByAdvertised: e})
	first := listener
	if !slices.Contains(index.Advertised(listener), e) {
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
