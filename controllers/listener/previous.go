package listener

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// gracePeriod is the default of Reconciler.GracePeriod.
const gracePeriod = 10 * time.Second

// previous removes what no longer exposes Listeners.
type previous struct {
	services *serviceWriter
	objects  *objectWriter
	// complete is since when the addresses of a backend are complete, until the previous exposure is removed. The state
	// is the backend's name.
	complete    periods
	gracePeriod time.Duration
}

// remove removes what no longer exposes the Listener. Objects of the class's own backend are deleted immediately.
// Everything else is the previous exposure, which is removed when its grace period ends. It returns the rest of the
// grace period, or 0 if there is no previous exposure or the addresses are not complete yet.
func (r *previous) remove(ctx context.Context, s *snapshot, p *plan, o *outcome, a addresses) (time.Duration, error) {
	if s.serviceTerminating() {
		return 0, nil
	}
	if err := r.objects.deleteUnplanned(ctx, s.backend, p.objects, o); err != nil {
		return 0, err
	}
	backends := slices.DeleteFunc(slices.Clone(s.others), func(b *exposure.Backend) bool { return len(o.objects[b.Name]) == 0 })
	if !a.desired.Complete || len(backends) == 0 && !p.keepsType {
		r.complete.Delete(s.listener.UID)
		return 0, nil
	}
	// The opening of a node port and the reload of a router cannot be watched, and clients need time to learn a new address.
	if remaining := r.gracePeriod - r.complete.age(s.listener.UID, s.backend.Name); remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range backends {
		errs = append(errs, r.objects.deleteUnplanned(ctx, backend, nil, o))
	}
	if p.keepsType {
		errs = append(errs, r.services.applyOnce(ctx, s, p.service, o))
	}
	return 0, errors.Join(errs...)
}
