package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Addresses are those that a Listener will have, and those to report now.
type Addresses struct {
	// Desired are those that the backend of the class provides, complete or not.
	Desired exposure.Exposed
	// Published are those to report: the desired ones, or those of the previous exposure.
	Published exposure.Exposed
	// Previous states that the published addresses are those of the previous exposure.
	Previous bool
	// Targets are the addresses that lead to the published ones, if the class advertises others. KeepsStatus states
	// that the status keeps what it has: those to publish are not known, or another Listener has one, which Taken says.
	Targets     []listenersv1alpha1.Target
	KeepsStatus bool
	Taken       *exposure.Refusal
}

// AddressesFor returns the addresses of the Listener. Those of its backend are published as soon as they are complete,
// because the first one must be right from the beginning. Until then, those of the previous exposure are published
// while its objects exist. Once addresses were published, the remaining ones stay published.
func AddressesFor(s *observe.Snapshot, p *Plan, w *observe.Written, placement exposure.Placement) Addresses {
	if s.Class == nil || w.Objects.Service == nil || s.ServiceTerminating() {
		// Cluster IPs of a range lead to the Pods until the Service is deleted, and the next one gets the same.
		return Addresses{KeepsStatus: s.Class != nil && s.Class.Spec.ClusterIPs != nil && s.ServiceTerminating()}
	}
	desired := exposedBy(s.Backend, s.ForBackend(s.Backend, w.Objects, p.Service.Desired), s, w, placement)
	if desired.Complete {
		return Addresses{Desired: desired, Published: desired}
	}
	if previous, ok := previousAddresses(s, p, w, placement); ok {
		return Addresses{Desired: desired, Published: previous, Previous: true}
	}
	published := desired
	if s.Listener.Status == nil || len(s.Listener.Status.IngressAddresses) == 0 {
		published.Addresses = nil
	}
	return Addresses{Desired: desired, Published: published}
}

// fitsClass reports whether the Service has the type of the class, and a cluster IP if it must.
func fitsClass(s *observe.Snapshot, p *Plan, w *observe.Written) bool {
	return !p.Service.fixed && (w.Objects.Service.Spec.Type == "" ||
		listenersv1alpha1.ServiceType(w.Objects.Service.Spec.Type) == s.Class.Spec.ServiceType)
}

// KeepsNodePorts reports whether published node ports are those of a Service that now has a load balancer.
func KeepsNodePorts(s *observe.Snapshot, service *corev1.Service) bool {
	return s.Backend.PlainService && service != nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Listener.Status != nil && len(s.Listener.Status.NodePorts) > 0
}

// previousAddresses returns the addresses by another backend's objects, or by the type or node ports of the Service.
func previousAddresses(s *observe.Snapshot, p *Plan, w *observe.Written,
	placement exposure.Placement) (exposed exposure.Exposed, ok bool) {
	if KeepsNodePorts(s, w.Objects.Service) {
		l := s.ForBackend(s.Backend, w.Objects, p.Service.Desired)
		l.Class = s.Class.DeepCopy()
		l.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort
		if e := exposedBy(s.Backend, l, s, w, placement); len(e.Addresses) > 0 {
			return e, true
		}
	}
	for _, backend := range previousBackends(s, p, w) {
		l := s.ForBackend(backend, w.Objects, p.Service.Desired)
		if backend.PlainService || backend.Headless {
			l.Class = classWithTypeOf(w.Objects.Service, s.Class)
		}
		if e := exposedBy(backend, l, s, w, placement); len(e.Addresses) > 0 {
			return e, true
		}
	}
	return exposure.Exposed{}, false
}

// previousBackends returns the backends that may still expose the Listener, by their objects or by the Service. If the
// plan is refused, the Service stays as it is, and may have another type than the class says.
func previousBackends(s *observe.Snapshot, p *Plan, w *observe.Written) (backends []*exposure.Backend) {
	all := slices.Clone(s.Others)
	if w.Refusal != nil {
		all = append(all, s.Backend)
	}
	for _, backend := range all {
		exposes := backend != s.Backend && len(w.Objects.OfBackend[backend.Name]) > 0
		if backend.PlainService || backend.Headless {
			exposes = backend.Headless == exposure.IsHeadless(w.Objects.Service) && !fitsClass(s, p, w)
		}
		if exposes {
			backends = append(backends, backend)
		}
	}
	return backends
}

// exposedBy returns the addresses that a backend provides. Users of the namespace may write objects that the Listener
// controls. So objects that are not known to be as planned keep the published addresses, but provide no others: a host
// is published only if the template of the class, or the platform, has chosen it.
func exposedBy(backend *exposure.Backend, l *exposure.Listener, s *observe.Snapshot, w *observe.Written,
	placement exposure.Placement) exposure.Exposed {
	e := backend.Addresses(l, placement)
	if len(l.Objects) == 0 || w.Applied && backend.Name == s.Backend.Name {
		return e
	}
	all := len(e.Addresses)
	e.Addresses = slices.DeleteFunc(e.Addresses,
		func(a listenersv1alpha1.IngressAddress) bool { return !l.Publishes(a.Address) })
	e.Complete = e.Complete && len(e.Addresses) == all
	if !e.Complete && e.Reason == "" && w.Terminating != "" {
		e.Reason = listenersv1alpha1.ReasonObjectTerminating
		e.Message = w.Terminating + " is being deleted, and will then be created again; if the deletion does not " +
			"finish, check its finalizers"
	}
	return e
}
