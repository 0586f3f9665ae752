package listener

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
)

// chosenAddresses are the addresses of a Listener.
type chosenAddresses struct {
	// desired are those that the backend of the class provides, complete or not.
	desired exposure.Exposed
	// published are those to report: the desired ones, or those of the previous exposure.
	published exposure.Exposed
	// previous states that the published addresses are those of the previous exposure.
	previous bool
	// targets are the addresses that lead to the published ones, if the class advertises others. kept states that the
	// status keeps what it has, because those to publish are not known, or another Listener has one, which taken says.
	targets []listenersv1alpha1.Target
	kept    bool
	taken   *exposure.Refusal
}

// addressesOf returns the addresses of the Listener. Those of its backend are published as soon as they are complete,
// because the first one must be right from the beginning. Until then, those of the previous exposure are published
// while its objects exist. Once addresses were published, the remaining ones stay published.
func addressesOf(s *snapshot, p *plan, w *written, placement exposure.Placement) chosenAddresses {
	if s.class == nil || w.service == nil || s.serviceTerminating() {
		// Cluster IPs of a range lead to the Pods until the Service is deleted, and the next one gets the same.
		return chosenAddresses{kept: s.class != nil && s.class.Spec.ClusterIPs != nil && s.serviceTerminating()}
	}
	desired := exposedBy(s.backend, s.forBackend(s.backend, w.present, p.service), s, w, placement)
	if desired.Complete {
		return chosenAddresses{desired: desired, published: desired}
	}
	if previous, ok := previousAddresses(s, p, w, placement); ok {
		return chosenAddresses{desired: desired, published: previous, previous: true}
	}
	published := desired
	if s.listener.Status == nil || len(s.listener.Status.IngressAddresses) == 0 {
		published.Addresses = nil
	}
	return chosenAddresses{desired: desired, published: published}
}

// fitsClass reports whether the Service has the type of the class, and a cluster IP if it must.
func fitsClass(s *snapshot, p *plan, w *written) bool {
	return !p.fixed && (w.service.Spec.Type == "" || listenersv1alpha1.ServiceType(w.service.Spec.Type) == s.class.Spec.ServiceType)
}

// keepsNodePorts reports whether published node ports are those of a Service that now has a load balancer.
func keepsNodePorts(s *snapshot, service *corev1.Service) bool {
	return s.backend.PlainService && service != nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer && s.listener.Status != nil && len(s.listener.Status.NodePorts) > 0
}

// previousAddresses returns the addresses by another backend's objects, or by the type or node ports of the Service.
func previousAddresses(s *snapshot, p *plan, w *written, placement exposure.Placement) (exposed exposure.Exposed, ok bool) {
	if keepsNodePorts(s, w.service) {
		l := s.forBackend(s.backend, w.present, p.service)
		l.Class = s.class.DeepCopy()
		l.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort
		if e := exposedBy(s.backend, l, s, w, placement); len(e.Addresses) > 0 {
			return e, true
		}
	}
	for _, backend := range s.others {
		l := s.forBackend(backend, w.present, p.service)
		ofService := backend.PlainService || backend.Headless
		switch {
		case !ofService && len(l.Objects) == 0, ofService && (backend.Headless != exposure.IsHeadless(w.service) || fitsClass(s, p, w)):
			continue
		case ofService:
			l.Class = classWithTypeOf(w.service, s.class)
		}
		if e := exposedBy(backend, l, s, w, placement); len(e.Addresses) > 0 {
			return e, true
		}
	}
	return exposure.Exposed{}, false
}

// exposedBy returns the addresses that a backend provides. Users of the namespace may write objects that the Listener
// controls. So objects that are not known to be as planned keep the published addresses, but provide no others: a host
// is published only if the template of the class, or the platform, has chosen it.
func exposedBy(backend *exposure.Backend, l *exposure.Listener, s *snapshot, w *written, placement exposure.Placement) exposure.Exposed {
	e := backend.Addresses(l, placement)
	if len(l.Objects) == 0 || w.applied && backend.Name == s.backend.Name {
		return e
	}
	all := len(e.Addresses)
	e.Addresses = slices.DeleteFunc(e.Addresses, func(a listenersv1alpha1.IngressAddress) bool { return !l.Publishes(a.Address) })
	e.Complete = e.Complete && len(e.Addresses) == all
	if !e.Complete && e.Reason == "" && w.terminating != "" {
		e.Reason = listenersv1alpha1.ReasonObjectTerminating
		e.Message = w.terminating + " is being deleted, and will then be created again; if the deletion does not finish, check its finalizers"
	}
	return e
}

// advertised gives each advertised address, with a port, to one Listener.
type advertised struct{ *keys }

// apply puts advertised addresses in the place of those to publish, if the class says so, and reserves them. If they
// cannot be published, the status keeps what it has, and a refusal says why, unless they are of a previous exposure.
func (x *advertised) apply(ctx context.Context, s *snapshot, p *plan, w *written, placement exposure.Placement, a chosenAddresses) chosenAddresses {
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
