package listener

import (
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// addresses are the addresses of a Listener.
type addresses struct {
	// desired are those that the backend of the class provides, complete or not.
	desired exposure.Exposed
	// published are those to report: the desired ones, or those of the previous exposure.
	published exposure.Exposed
	// previous states that the published addresses are those of the previous exposure.
	previous bool
}

// addresses returns the addresses of the Listener. Those of its backend are published as soon as they are complete,
// because the first one must be right from the beginning. Until then, those of the previous exposure are published
// while its objects exist. Once addresses were published, the remaining ones stay published.
func (r *Reconciler) addresses(o *observed) addresses {
	if o.class == nil || o.service == nil || o.serviceTerminating() {
		return addresses{}
	}
	desired := o.backend.Addresses(o.forBackend(o.backend))
	if desired.Complete {
		return addresses{desired: desired, published: desired}
	}
	if previous, ok := r.previousExposure(o); ok {
		return addresses{desired: desired, published: previous, previous: true}
	}
	published := desired
	if o.listener.Status == nil || len(o.listener.Status.IngressAddresses) == 0 {
		published.Addresses = nil
	}
	return addresses{desired: desired, published: published}
}

// previousExposure returns the addresses that the objects of another backend, or the type that the Service still has,
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
			l.Class = o.classWithCurrentServiceType()
		}
		if e := backend.Addresses(l); len(e.Addresses) > 0 {
			return e, true
		}
	}
	return exposure.Exposed{}, false
}
