package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// objectWriter writes the objects of the backends, and NetworkPolicies.
type objectWriter struct {
	client    client.Client
	applier   *apply.Applier
	exclusive *exclusive
}

// apply applies the planned objects, unless there can be none. It tries all of them, and returns the first refusal,
// except those of further kinds after a refusal: they refer to the former ones, in whose place others' may be.
func (w *objectWriter) apply(ctx context.Context, s *snapshot, p *plan, after written) *written {
	own := maps.Clone(s.objects[s.backend.Name])
	after.refusal = p.objectsRefusal
	var errs []error
	for i, desired := range p.objects {
		if after.refusal != nil && (i == 0 || desired.GetKind() != p.objects[i-1].GetKind()) {
			break
		}
		object, terminating, refusal, err := w.applyObject(ctx, s, desired)
		if own[keyOf(desired)] = object; object == nil {
			delete(own, keyOf(desired))
		}
		after.refusal, after.terminating = cmp.Or(after.refusal, refusal), cmp.Or(terminating, after.terminating)
		errs = append(errs, err)
	}
	after.err = errors.Join(errs...)
	after.applied = after.refusal == nil && after.err == nil && after.terminating == ""
	w.exclusive.release(s, p.objects, !after.applied)
	after.objects = maps.Clone(s.objects)
	after.objects[s.backend.Name] = own
	return &after
}

// applyObject applies one object, unless a foreign one has its name. It returns the Listener's own then, or nil.
func (w *objectWriter) applyObject(ctx context.Context, s *snapshot, desired exposure.Desired) (own exposure.Object, terminating string, _ *exposure.Refusal, _ error) {
	kind := s.backend.Generated(desired.GetKind())
	own = s.objects[s.backend.Name][keyOf(desired)]
	existing := client.Object(own)
	if existing == nil { // one that the cache does not have yet is not written to, as with Services
		var err error
		if existing, err = w.exclusive.kinds.get(ctx, kind, client.ObjectKeyFromObject(desired)); err != nil {
			return own, "", nil, err
		}
	}
	switch {
	case existing == nil:
	case beingDeleted(s.listener, existing):
		return own, fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(existing)), nil, nil // it is created again after its deletion
	case !controls(s.listener, existing):
		return own, "", exposure.Refuse(kind.ForeignReason, "%s %s already exists and %s; delete it, or rename the Listener or its port",
			kind.Kind, client.ObjectKeyFromObject(existing), describeController(existing)), nil
	case desired.Recreate:
		if err := w.delete(ctx, kind, existing); err != nil {
			return own, "", nil, err
		}
		return nil, "", nil, nil // it is created again after its deletion
	}
	desired.SetGroupVersionKind(kind.GroupKind().WithVersion(s.served[kind.GroupVersionKind]))
	sent, err := w.applier.Apply(ctx, desired.Unstructured, existing)
	if sent {
		own, err = w.record(kind, desired)
	}
	status := rejection(err)
	if status == nil {
		return own, "", nil, err
	}
	message := status.Message
	if kind.Remedy != nil && kind.Remedy(message) != "" {
		message += "; " + kind.Remedy(message)
	}
	return own, "", exposure.Refuse(kind.RejectedReason, "the API server rejects %s %s: %s", kind.Kind, client.ObjectKeyFromObject(desired), message), err
}

// record records and returns the object that the API server answered with.
func (w *objectWriter) record(kind *exposure.Kind, desired exposure.Desired) (exposure.Object, error) {
	applied, err := w.exclusive.kinds.typed(kind, desired)
	if err != nil {
		return nil, err
	}
	w.exclusive.written(kind, client.ObjectKeyFromObject(applied), applied)
	return applied, nil
}

// deleteUnplanned deletes the objects of a backend, except the planned ones.
func (w *objectWriter) deleteUnplanned(ctx context.Context, backend *exposure.Backend, planned []exposure.Desired, objects map[objectKey]exposure.Object) error {
	keep := sets.New[objectKey]()
	for _, desired := range planned {
		keep.Insert(keyOf(desired))
	}
	var errs []error
	for key, object := range objects {
		if !keep.Has(key) && object.GetDeletionTimestamp().IsZero() {
			errs = append(errs, w.delete(ctx, backend.Generated(key.kind.Kind), object))
		}
	}
	return errors.Join(errs...)
}

// delete deletes an object that the Listener controls, in the version that the cluster serves.
func (w *objectWriter) delete(ctx context.Context, kind *exposure.Kind, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	identity := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: object.GetUID()}}
	identity.SetGroupVersionKind(kind.GroupKind().WithVersion(cmp.Or(w.exclusive.kinds.version(kind), kind.Version)))
	if err := w.applier.Delete(ctx, identity); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	w.exclusive.written(kind, key, nil)
	log.FromContext(ctx).Info("Deleted an object that exposed the Listener", "kind", kind.Kind, "object", key.String())
	return nil
}

// The time from one touch of a rejected object to the next one. It doubles from the first to the last.
const (
	firstTouch = 10 * time.Second
	lastTouch  = 5 * time.Minute
)

// touchRejected changes the objects that another controller has rejected for the content of a Secret, which neither it
// nor the operator watches, so that it looks at them again. It returns the time until the next touch, or 0.
func (w *objectWriter) touchRejected(ctx context.Context, rejected []exposure.Rejected, now metav1.Time) (next time.Duration, _ error) {
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

func untilTouch(object exposure.Rejected, now time.Time) time.Duration {
	from, interval := object.Since.Time, firstTouch
	touched, err := time.Parse(time.RFC3339, object.GetAnnotations()[names.AnnotationTouched])
	if err == nil && !touched.Before(from) {
		from, interval = touched, min(max(touched.Sub(from), firstTouch), lastTouch)
	}
	return from.Add(interval).Sub(now)
}

// touch changes the annotation of an object. The API server rejects the patch for a new object of the same name.
func (w *objectWriter) touch(ctx context.Context, object exposure.Rejected, now metav1.Time) error {
	err := apply.PatchMetadata(ctx, w.client, object.DeepCopyObject().(client.Object), names.FieldManagerDefault, map[string]any{
		"annotations": map[string]any{names.AnnotationTouched: now.UTC().Format(time.RFC3339)},
	})
	if err == nil {
		log.FromContext(ctx).Info("Touched an object that is rejected, so that it is looked at again", "object", client.ObjectKeyFromObject(object).String())
	}
	return client.IgnoreNotFound(err)
}

// applyPolicy applies the NetworkPolicy that the Listener needs beside what exists now, and returns it. It is called
// before the Service is applied, so that no other client reaches the Pods meanwhile, and when all ports are known.
func (w *objectWriter) applyPolicy(ctx context.Context, s *snapshot, p *plan, now present) (*networkingv1.NetworkPolicy, *exposure.Refusal, error) {
	desired := plannedPolicy(s, p, now)
	if desired == nil {
		return now.policy, nil, nil
	}
	policy, err := apply.Typed(ctx, w.applier, desired, now.policy)
	if status := rejection(err); status != nil {
		return policy, exposure.Refuse(listenersv1alpha1.ReasonNetworkPolicyRejected, "the API server rejects NetworkPolicy %s, without which other clients would reach the Pods: %s",
			client.ObjectKeyFromObject(desired), status.Message), err
	}
	return policy, nil, err
}

// removePolicy deletes the NetworkPolicy of a Listener that needs none any more.
func (w *objectWriter) removePolicy(ctx context.Context, s *snapshot, p *plan, now present) error {
	if now.policy == nil || !now.policy.DeletionTimestamp.IsZero() || plannedPolicy(s, p, now) != nil {
		return nil
	}
	if err := w.applier.Delete(ctx, now.policy); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted the NetworkPolicy of the Listener", "networkPolicy", client.ObjectKeyFromObject(now.policy).String())
	return nil
}

// plannedPolicy returns the NetworkPolicy for the Service as it is applied now, or nil.
func plannedPolicy(s *snapshot, p *plan, now present) *unstructured.Unstructured {
	service, _ := withTargetPorts(s, now.service, p.serviceNow)
	return s.backend.ClientPolicy(s.forBackend(s.backend, now, p.service), service, s.otherPolicies)
}
