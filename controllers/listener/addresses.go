package listener

import (
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// exposed is where a Listener can be reached.
type exposed struct {
	// wanted is by the backend of its class.
	wanted exposure.Exposed
	// used is what is published: what is wanted, or what there was before.
	used exposure.Exposed
	// before says that it is what there was before.
	before bool
}

// expose finds out where the Listener can be reached. The addresses of a backend are published as soon as they are
// complete: the first one has to be the right one from the beginning. Until then those of before are, if what they lead
// through still exists; afterwards, those that are left.
func (r *Reconciler) expose(o *observed) exposed {
	if o.class == nil || o.service == nil || o.terminating() {
		return exposed{}
	}
	wanted := o.backend.Addresses(o.forBackend(o.backend))
	if wanted.Complete {
		return exposed{wanted: wanted, used: wanted}
	}
	if before, ok := r.fromBefore(o); ok {
		return exposed{wanted: wanted, used: before, before: true}
	}
	used := wanted
	if o.listener.Status == nil || len(o.listener.Status.IngressAddresses) == 0 {
		used.Addresses = nil
	}
	return exposed{wanted: wanted, used: used}
}

// fromBefore returns where the Listener can be reached by what its class no longer asks for but still exists.
func (r *Reconciler) fromBefore(o *observed) (exposure.Exposed, bool) {
	for _, backend := range r.Backends {
		if backend == o.backend {
			continue
		}
		l := o.forBackend(backend)
		if len(backend.Kinds()) > 0 && len(l.Objects) == 0 {
			continue
		}
		if len(backend.Kinds()) == 0 {
			if o.service.Spec.Type == "" || listenersv1alpha1.ServiceType(o.service.Spec.Type) == o.class.Spec.ServiceType {
				continue
			}
			l.Class = o.asBefore()
		}
		if e := backend.Addresses(l); len(e.Addresses) > 0 {
			return e, true
		}
	}
	return exposure.Exposed{}, false
}
