package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/requests"
)

type objectWriter struct {
	client  client.Client
	applier *apply.Applier
	kinds   *observe.Kinds
}

// apply applies the planned objects, unless there can be none. It tries all of them, and returns the first refusal,
// except those of further kinds after a refusal: they refer to the former ones, in whose place others' may be.
func (w *objectWriter) apply(ctx context.Context, s *observe.Snapshot, p *decide.Plan, pass *registry.Pass,
	after observe.Written) *observe.Written {
	own := maps.Clone(s.Objects.OfBackend[s.Backend.Name])
	after.Refusal = p.ObjectsRefusal
	var errs []error
	for i, desired := range p.Objects {
		if after.Refusal != nil && (i == 0 || desired.GetKind() != p.Objects[i-1].GetKind()) {
			errs = append(errs, w.giveBack(s, pass, p.Objects[i:]...))
			break
		}
		object, terminating, refusal, err := w.applyObject(ctx, s, desired)
		if own[observe.KeyOf(desired)] = object; object == nil {
			delete(own, observe.KeyOf(desired))
		}
		if refusal != nil {
			err = errors.Join(err, w.giveBack(s, pass, desired))
		}
		after.Refusal, after.Terminating = cmp.Or(after.Refusal, refusal), cmp.Or(terminating, after.Terminating)
		errs = append(errs, err)
	}
	after.Err = errors.Join(errs...)
	after.Applied = after.Refusal == nil && after.Err == nil && after.Terminating == ""
	after.Objects.OfBackend = maps.Clone(s.Objects.OfBackend)
	after.Objects.OfBackend[s.Backend.Name] = own
	return &after
}

// giveBack gives back what the pass has reserved for objects that do not exist.
func (w *objectWriter) giveBack(s *observe.Snapshot, pass *registry.Pass, objects ...exposure.Desired) error {
	keys, err := w.kinds.HeldBy(s.Backend, objects...)
	pass.Withdraw(func(key registry.Key) bool { return slices.Contains(keys, key) })
	return err //nolint:wrapcheck // names the object
}

// applyObject applies one object, unless a foreign one has its name. It returns the Listener's own then, or nil.
func (w *objectWriter) applyObject(ctx context.Context, s *observe.Snapshot,
	desired exposure.Desired) (own exposure.Object, terminating string, _ *exposure.Refusal, _ error) {
	kind := s.Backend.Generated(desired.GetKind())
	own = s.Objects.OfBackend[s.Backend.Name][observe.KeyOf(desired)]
	existing := client.Object(own)
	if existing == nil { // one that the cache does not have yet is not written to, as with Services
		var err error
		if existing, err = w.kinds.Get(ctx, kind, client.ObjectKeyFromObject(desired)); err != nil {
			return own, "", nil, err
		}
	}
	switch {
	case existing == nil:
	case observe.BeingDeleted(s.Listener, existing):
		// It is created again after its deletion.
		return own, fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(existing)), nil, nil
	case !observe.Controls(s.Listener, existing):
		return own, "", exposure.Refuse(kind.ForeignReason(),
			"%s %s already exists and %s; delete it, or rename the Listener or its port",
			kind.Kind, client.ObjectKeyFromObject(existing), observe.DescribeController(existing)), nil
	case desired.Recreate:
		if err := w.delete(ctx, kind, existing); err != nil {
			return own, "", nil, err
		}
		return nil, "", nil, nil // it is created again after its deletion
	}
	desired.SetGroupVersionKind(kind.GroupKind().WithVersion(s.Served[kind.GroupVersionKind]))
	sent, err := w.applier.Apply(ctx, desired.Unstructured, existing)
	if sent {
		own, err = w.kinds.Typed(kind, desired)
	}
	status := rejection(err)
	if status == nil {
		return own, "", nil, err
	}
	message := status.Message
	if kind.Remedy != nil && kind.Remedy(message) != "" {
		message += "; " + kind.Remedy(message)
	}
	return own, "", exposure.Refuse(kind.RejectedReason(), "the API server rejects %s %s: %s", kind.Kind,
		client.ObjectKeyFromObject(desired), message), err
}

func (w *objectWriter) deleteUnplanned(ctx context.Context, backend *exposure.Backend, planned []exposure.Desired,
	objects map[observe.ObjectKey]exposure.Object) error {
	keep := sets.New[observe.ObjectKey]()
	for _, desired := range planned {
		keep.Insert(observe.KeyOf(desired))
	}
	var errs []error
	for key, object := range objects {
		if !keep.Has(key) && object.GetDeletionTimestamp().IsZero() {
			errs = append(errs, w.delete(ctx, backend.Generated(key.Kind.Kind), object))
		}
	}
	return errors.Join(errs...)
}

// delete deletes an object that the Listener controls, in the version that the cluster serves.
func (w *objectWriter) delete(ctx context.Context, kind *exposure.Kind, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	identity := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		UID: object.GetUID()}}
	identity.SetGroupVersionKind(kind.GroupKind().WithVersion(cmp.Or(w.kinds.Version(kind), kind.Version)))
	if err := w.applier.Delete(ctx, identity); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	log.FromContext(ctx).Info("Deleted an object that exposed the Listener", "kind", kind.Kind, "object", key.String())
	return nil
}

// The time from one touch of a rejected object to the next one. It doubles from the first to the last.
const (
	firstTouch = 10 * time.Second
	LastTouch  = 5 * time.Minute
)

func (w *objectWriter) touchRejected(ctx context.Context, rejected []exposure.Rejected,
	now metav1.Time) (next time.Duration, _ error) {
	var errs []error
	for _, object := range rejected {
		wait := untilTouch(object, now.Time)
		if wait <= 0 {
			errs = append(errs, w.touch(ctx, object, now))
			continue // the change starts another reconciliation
		}
		next = requests.Earliest(next, wait)
	}
	return next, errors.Join(errs...)
}

// untilTouch returns how long to wait before a rejected object is touched, which is not positive if it is due.
func untilTouch(object exposure.Rejected, now time.Time) time.Duration {
	from, interval := object.Since.Time, firstTouch
	touched, err := time.Parse(time.RFC3339, object.GetAnnotations()[names.AnnotationTouched])
	if err == nil && !touched.Before(from) {
		from, interval = touched, min(max(touched.Sub(from), firstTouch), LastTouch)
	}
	return from.Add(interval).Sub(now)
}

// touch changes the annotation of an object. The API server rejects the patch for a new object of the same name.
func (w *objectWriter) touch(ctx context.Context, object exposure.Rejected, now metav1.Time) error {
	err := apply.PatchMetadata(ctx, w.client, object.DeepCopyObject().(client.Object), names.FieldManagerDefault,
		map[string]any{
			"annotations": map[string]any{names.AnnotationTouched: now.UTC().Format(time.RFC3339)},
		})
	if err == nil {
		log.FromContext(ctx).Info("Touched an object that is rejected, so that it is looked at again", "object",
			client.ObjectKeyFromObject(object).String())
	}
	return client.IgnoreNotFound(err)
}

// applyPolicy applies the NetworkPolicy that the Listener needs beside what exists now, and returns it. It is called
// before the Service is applied, so that no other client reaches the Pods meanwhile, and when all ports are known.
func (w *objectWriter) applyPolicy(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	now observe.Objects) (*networkingv1.NetworkPolicy, *exposure.Refusal, error) {
	desired := decide.PlannedPolicy(s, p, now)
	if desired == nil {
		return now.Policy, nil, nil
	}
	policy, err := apply.Typed(ctx, w.applier, desired, now.Policy)
	if status := rejection(err); status != nil {
		return policy, exposure.Refuse(listenersv1alpha1.ReasonNetworkPolicyRejected,
			"the API server rejects NetworkPolicy %s, without which other clients would reach the Pods: %s",
			client.ObjectKeyFromObject(desired), status.Message), err
	}
	return policy, nil, err
}

func (w *objectWriter) removePolicy(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	now observe.Objects) error {
	if now.Policy == nil || !now.Policy.DeletionTimestamp.IsZero() || decide.PlannedPolicy(s, p, now) != nil {
		return nil
	}
	if err := w.applier.Delete(ctx, now.Policy); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted the NetworkPolicy of the Listener", "networkPolicy",
		client.ObjectKeyFromObject(now.Policy).String())
	return nil
}
