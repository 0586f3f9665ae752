package listener

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
)

// advertised gives each advertised address, with a port, to one Listener.
type advertised struct{ *keys }

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
	wanted := advertise.Endpoints(s.listener, targets)
	defer x.lock(ctx)()
	refusal := x.refusal(s.key(), wanted, fmt.Sprintf("by spec.advertise of ListenerClass %s, a port of Listener %s is at", s.listener.Class(), s.key()),
		"use a class with another address or port for one of the two")
	if refusal == nil {
		x.set(s.key(), sets.New(wanted...), !complete)
	}
	return refusal
}

// statusEndpoints returns the advertised addresses in the status of a Listener.
func statusEndpoints(_ context.Context, listener *listenersv1alpha1.Listener) []string {
	return advertise.Endpoints(listener, ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Targets)
}
