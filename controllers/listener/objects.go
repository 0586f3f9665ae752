package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// objectWriter writes the objects of the backends.
type objectWriter struct {
	applier   *apply.Applier
	kinds     *kinds
	exclusive *exclusive
}

// apply applies the planned objects. It tries all of them, and records the first refusal, but for those of further
// kinds after a refusal: they refer to the former ones, in whose place others' may be.
func (w *objectWriter) apply(ctx context.Context, s *snapshot, p *plan, o *outcome) {
	var errs []error
	for i, desired := range p.objects {
		if o.refusal != nil && desired.GetKind() != p.objects[i-1].GetKind() {
			break
		}
		refusal, err := w.applyObject(ctx, s, desired, o)
		if o.refusal == nil {
			o.refusal = refusal
		}
		errs = append(errs, err)
	}
	o.err = errors.Join(errs...)
	o.applied = o.refusal == nil && o.err == nil && o.terminating == ""
	w.release(s, p, !o.applied)
}

// release ends the reservations of planned objects that were not written. If that failed, others may have them.
func (w *objectWriter) release(s *snapshot, p *plan, failed bool) {
	released := false
	for _, desired := range p.objects {
		released = w.exclusive.restore(exclusiveKey(desired), !failed) || released
	}
	if released && failed {
		w.exclusive.waiting.free(s.backend.TakenReasons...)
	}
}

// applyObject applies one object, unless an object of the same name exists that the Listener does not control.
func (w *objectWriter) applyObject(ctx context.Context, s *snapshot, desired exposure.Desired, o *outcome) (*exposure.Refusal, error) {
	kind := s.backend.Generated(desired.GetKind())
	existing := client.Object(o.objects[s.backend.Name][nameOf(desired)])
	if existing == nil { // one that the cache does not have yet is not written to, as with Services
		var err error
		if existing, err = w.kinds.get(ctx, kind, client.ObjectKeyFromObject(desired)); err != nil {
			return nil, err
		}
	}
	switch {
	case existing == nil:
	case beingDeleted(s.listener, existing):
		o.terminating = fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(existing))
		return nil, nil //nolint:nilnil // nothing is refused: it is created again after its deletion
	case !controls(s.listener, existing):
		return exposure.Refuse(kind.ForeignReason, "%s %s already exists and %s; delete it, or rename the Listener or its port",
			kind.Kind, client.ObjectKeyFromObject(existing), describeController(existing)), nil
	case desired.Recreate:
		return nil, w.delete(ctx, s.backend, kind, existing, o) // it is created again after its deletion
	}
	desired.SetGroupVersionKind(kind.GroupKind().WithVersion(s.served[kind.GroupVersionKind]))
	sent, err := w.applier.Apply(ctx, desired.Unstructured, existing)
	if sent {
		err = w.record(s, desired, o)
	}
	if status := rejection(err); status != nil {
		message := status.Message
		if kind.Remedy != nil && kind.Remedy(message) != "" {
			message += "; " + kind.Remedy(message)
		}
		return exposure.Refuse(kind.RejectedReason, "the API server rejects %s %s: %s", kind.Kind, client.ObjectKeyFromObject(desired), message), err
	}
	return nil, err
}

// record records the object that the API server answered with.
func (w *objectWriter) record(s *snapshot, desired exposure.Desired, o *outcome) error {
	kind := s.backend.Generated(desired.GetKind())
	applied, err := w.kinds.typed(kind, desired)
	if err != nil {
		return err
	}
	o.objects[s.backend.Name][nameOf(desired)] = applied
	w.exclusive.written(kind, client.ObjectKeyFromObject(applied), applied)
	return nil
}

// deleteUnplanned deletes the objects of a backend, but for the planned ones.
func (w *objectWriter) deleteUnplanned(ctx context.Context, backend *exposure.Backend, planned []exposure.Desired, o *outcome) error {
	keep := sets.New[objectName]()
	for _, desired := range planned {
		keep.Insert(nameOf(desired))
	}
	var errs []error
	for name, object := range o.objects[backend.Name] {
		if !keep.Has(name) && object.GetDeletionTimestamp().IsZero() {
			errs = append(errs, w.delete(ctx, backend, backend.Generated(name.kind), object, o))
		}
	}
	return errors.Join(errs...)
}

// delete deletes an object that the Listener controls, in the version that the cluster serves.
func (w *objectWriter) delete(ctx context.Context, backend *exposure.Backend, kind *exposure.Kind, object client.Object, o *outcome) error {
	key := client.ObjectKeyFromObject(object)
	identity := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: object.GetUID()}}
	identity.SetGroupVersionKind(kind.GroupKind().WithVersion(cmp.Or(w.kinds.version(kind), kind.Version)))
	if err := w.applier.Delete(ctx, identity); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	w.exclusive.written(kind, key, nil)
	log.FromContext(ctx).Info("Deleted an object that exposed the Listener", "kind", kind.Kind, "object", key.String())
	delete(o.objects[backend.Name], objectName{kind.Kind, key.Name})
	return nil
}

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
