package holdings

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// Advertise puts advertised addresses in the place of those to publish, if the class says so, and reserves them. If
// they cannot be published, the status keeps what it has, and a refusal says why, unless they are of a previous
// exposure.
func (h *Holdings) Advertise(ctx context.Context, pass *registry.Pass, s *observe.Snapshot, p *decide.Plan,
	w *observe.Written, placement exposure.Placement, a decide.Addresses) decide.Addresses {
	if s.Class != nil {
		if advertised, _ := s.Class.Advertised(); advertised == nil {
			return a
		}
	}
	if !a.Published.Complete || a.KeepsStatus {
		pass.Retain(listenersv1alpha1.WaitingKindAdvertisedAddress)
	}
	exists := s.Class != nil && w.Objects.Service != nil && !s.ServiceTerminating()
	if !exists || a.KeepsStatus || len(a.Published.Addresses) == 0 {
		return a // the Listener keeps what it has
	}
	l := s.ForBackend(s.Backend, w.Objects, p.Service.Desired)
	targets, refusal := advertise.Targets(l, placement, a.Published.Addresses)
	if refusal == nil {
		refusal = h.reserveAdvertised(ctx, pass, s, targets)
	}
	if refusal == nil {
		a.Targets, a.Published.Addresses = targets, advertise.Published(targets)
		return a
	}
	return withoutAdvertised(s, w, a, refusal)
}

// withoutAdvertised returns the addresses if advertised ones are refused. Those that were published as they are follow
// their sources.
func withoutAdvertised(s *observe.Snapshot, w *observe.Written, a decide.Addresses,
	refusal *exposure.Refusal) decide.Addresses {
	before := ptr.Deref(s.Listener.Status, listenersv1alpha1.ListenerStatus{})
	a.KeepsStatus = len(before.Targets) > 0 || len(before.IngressAddresses) == 0
	if !a.Previous && w.Err == nil {
		a.Taken = refusal
	}
	return a
}

func (h *Holdings) reserveAdvertised(ctx context.Context, pass *registry.Pass, s *observe.Snapshot,
	targets []listenersv1alpha1.Target) *exposure.Refusal {
	err := pass.Reserve(advertised(s.Listener, targets)...)
	if taken, ok := errors.AsType[*registry.TakenError](err); ok {
		need := fmt.Sprintf("by spec.advertise of ListenerClass %s, a port of Listener %s is at", s.Listener.Class(),
			s.Key())
		return exposure.RefuseTaken(listenersv1alpha1.ReasonAddressTaken, need, h.waitingFor(ctx, taken),
			"use a class with another address or port for one of the two")
	}
	return nil
}

func advertised(listener *listenersv1alpha1.Listener, targets []listenersv1alpha1.Target) []registry.Key {
	return registry.Keys(listenersv1alpha1.WaitingKindAdvertisedAddress, advertise.Endpoints(listener, targets)...)
}
