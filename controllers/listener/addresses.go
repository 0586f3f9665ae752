package listener

import (
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
	if before, ok := r.previousExposure(o); ok {
		return exposed{wanted: wanted, used: before, before: true}
	}
	used := wanted
	if o.listener.Status == nil || len(o.listener.Status.IngressAddresses) == 0 {
		used.Addresses = nil
	}
	return exposed{wanted: wanted, used: used}
}

// previousExposure returns the addresses that objects of other backends, or the type that the Service still has,
// provide. ok is false if there are none.
func (r *Reconciler) previousExposure(o *observed) (exposed exposure.Exposed, ok bool) {
	for _, backend := range r.otherBackends(o) {
		l := o.forBackend(backend)
		switch {
		case !backend.PlainService() && len(l.Objects) == 0:
			continue
		case backend.PlainService() && !o.serviceTypeDiffers():
			continue
		case backend.PlainService():
			l.Class = o.classOfCurrentType()
		}
		if e := backend.Addresses(l); len(e.Addresses) > 0 {
			return e, true
		}
	}
	return exposure.Exposed{}, false
}
