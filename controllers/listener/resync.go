package listener

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// The time from one touch of a rejected object to the next one. It doubles from the first to the last.
const (
	firstTouch = 10 * time.Second
	lastTouch  = 5 * time.Minute
)

// resync makes other controllers look again at objects that they have rejected.
type resync struct {
	client client.Client
	clock  clock.PassiveClock
}

// trigger changes the objects that another controller has rejected, when their time has come, so that it looks at
// them again: what it rejected them for, the content of a Secret, neither it nor the operator watches. It returns the
// time until the next touch, or 0 if there is none.
func (r resync) trigger(ctx context.Context, rejected []exposure.Rejected) (next time.Duration, _ error) {
	var errs []error
	for _, object := range rejected {
		wait := untilTouch(object, r.clock.Now())
		if wait <= 0 {
			errs = append(errs, r.touch(ctx, object))
			continue // the change starts another reconciliation
		}
		next = requests.Earliest(next, wait)
	}
	return next, errors.Join(errs...)
}

func untilTouch(object exposure.Rejected, now time.Time) time.Duration {
	from, interval := object.Since.Time, firstTouch
	touched, err := time.Parse(time.RFC3339, object.GetAnnotations()[names.AnnotationTouched])
	if err == nil && !touched.Before(from) {
		from, interval = touched, min(max(touched.Sub(from), firstTouch), lastTouch)
	}
	return from.Add(interval).Sub(now)
}

// touch changes the annotation of an object. The API server rejects the patch for a new object of the same name.
func (r resync) touch(ctx context.Context, object exposure.Rejected) error {
	err := apply.PatchMetadata(ctx, r.client, object.DeepCopyObject().(client.Object), names.FieldManagerDefault, map[string]any{
		"annotations": map[string]any{names.AnnotationTouched: r.clock.Now().UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Touched an object that is rejected, so that it is looked at again", "object", client.ObjectKeyFromObject(object).String())
	return nil
}
