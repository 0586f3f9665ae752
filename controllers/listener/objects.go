package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// ensureObjects applies what the backend layers over the Service. Every object is tried; the refusal is that of the
// first one that has one.
func (r *Reconciler) ensureObjects(ctx context.Context, o *observed) (*exposure.Refusal, error) {
	for _, kind := range o.backend.Kinds() {
		if !r.kinds[kind.GroupVersionKind].Served() {
			return exposure.Refuse(listenersv1alpha1.ReasonNotServed, "ListenerClass %s asks for objects of kind %s, which this cluster does not serve in %s; name another class",
				o.class.Name, kind.Kind, kind.GroupVersion()), nil
		}
		o.desired[kind.GroupVersionKind] = sets.New[string]()
	}
	all, err := o.backend.Objects(o.forBackend(o.backend))
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	if err != nil {
		return nil, fmt.Errorf("deciding on what listener %s is exposed through: %w", client.ObjectKeyFromObject(o.listener), err)
	}
	var first *exposure.Refusal
	var errs []error
	for _, kind := range o.backend.Kinds() {
		for _, desired := range all {
			if desired.GroupVersionKind() != kind.GroupVersionKind {
				continue
			}
			o.desired[kind.GroupVersionKind].Insert(desired.GetName())
			refusal, err := r.ensureObject(ctx, o, kind, desired)
			if first == nil {
				first = refusal
			}
			errs = append(errs, err)
		}
	}
	return first, errors.Join(errs...)
}

// ensureObject applies one object, unless one of its name belongs to somebody else.
func (r *Reconciler) ensureObject(ctx context.Context, o *observed, kind exposure.Kind, desired exposure.Desired) (*exposure.Refusal, error) {
	existing, err := r.existing(ctx, o, kind, desired)
	if err != nil {
		return nil, err
	}
	switch {
	case existing == nil:
	case !controls(o.listener, existing):
		return exposure.Refuse(kind.ForeignReason, "%s %s exists and is not controlled by this Listener but by %s; delete it, or rename the Listener or its port",
			kind.Kind, client.ObjectKeyFromObject(existing), controllerOf(existing)), nil
	case !existing.GetDeletionTimestamp().IsZero():
		return nil, nil //nolint:nilnil // nothing was refused: it is made anew when it is gone
	case desired.Anew:
		return nil, r.remove(ctx, o, kind, existing) // and made anew when it is gone
	}
	_, err = r.applier.Apply(ctx, desired.Unstructured, existing)
	if message, ok := rejected(err); ok {
		if remedy := kind.Remedy(message); remedy != "" {
			message += "; " + remedy
		}
		return exposure.Refuse(kind.RejectedReason, "the API server rejects %s %s: %s", kind.Kind, client.ObjectKeyFromObject(desired), message), err
	}
	if err != nil || desired.GetResourceVersion() == "" {
		return nil, err // or nothing had to be sent
	}
	applied, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, applied); err != nil {
		return nil, fmt.Errorf("reading the applied %s %s: %w", kind.Kind, client.ObjectKeyFromObject(desired), err)
	}
	o.objects[kind.GroupVersionKind][applied.GetName()] = applied
	return nil, nil //nolint:nilnil // nothing was refused
}

// existing returns the object of the desired one's name, or nil. If the cache has none it asks the API server, because
// an object that is made by someone else at this moment must not be mistaken for our own.
func (r *Reconciler) existing(ctx context.Context, o *observed, kind exposure.Kind, desired exposure.Desired) (client.Object, error) {
	if own, ok := o.objects[kind.GroupVersionKind][desired.GetName()]; ok {
		return own, nil
	}
	object, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(desired)
	err = r.kinds[kind.GroupVersionKind].Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	default:
		return object, nil
	}
}

// retire removes what the Listener has been exposed through and no longer should be. What is of the class's own backend
// goes at once; all else stays until the addresses of this backend have stood for a while. It returns how long that
// still takes, if there is anything else.
func (r *Reconciler) retire(ctx context.Context, o *observed, e exposed) (time.Duration, error) {
	if o.terminating() {
		return 0, nil
	}
	narrow, err := exposure.Service(o.class, o.listener)
	if err != nil {
		return 0, err
	}
	if err := r.removeUndesired(ctx, o, o.backend); err != nil {
		return 0, err
	}
	former := r.former(o)
	remaining := r.remaining(o, e, len(former) > 0 || o.narrows(narrow))
	if !e.wanted.Complete || remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range former {
		errs = append(errs, r.removeUndesired(ctx, o, backend))
	}
	if o.narrows(narrow) {
		errs = append(errs, r.applyService(ctx, o, narrow))
	}
	return 0, errors.Join(errs...)
}

// former returns the other backends that the Listener still has objects of.
func (r *Reconciler) former(o *observed) []exposure.Backend {
	return slices.DeleteFunc(r.otherBackends(o), func(b exposure.Backend) bool { return len(o.forBackend(b).Objects) == 0 })
}

// otherBackends returns all backends but that of the class. Backends are compared by name: a comparison of interface
// values panics if their type is not comparable.
func (r *Reconciler) otherBackends(o *observed) []exposure.Backend {
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b exposure.Backend) bool { return b.Name() == o.backend.Name() })
}

// remaining returns how long what the Listener was exposed through before, if there is anything, still has to stay.
// Neither the opening of a node port nor the reload of a router can be watched, and clients need time to hear of a new
// address.
func (r *Reconciler) remaining(o *observed, e exposed, anything bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !anything || !e.wanted.Complete {
		delete(r.stood, o.listener.UID)
		return 0
	}
	since, ok := r.stood[o.listener.UID]
	if !ok || since.backend != o.backend.Name() {
		maps.DeleteFunc(r.stood, func(_ types.UID, s standing) bool { return r.clock.Since(s.time) > time.Hour }) // of Listeners that were deleted meanwhile
		since = standing{backend: o.backend.Name(), time: r.clock.Now()}
		r.stood[o.listener.UID] = since
	}
	return since.time.Add(r.overlap).Sub(r.clock.Now())
}

// removeUndesired deletes the objects of a backend that there should not be.
func (r *Reconciler) removeUndesired(ctx context.Context, o *observed, backend exposure.Backend) error {
	var errs []error
	for _, kind := range backend.Kinds() {
		for name, object := range o.objects[kind.GroupVersionKind] {
			if !o.desired[kind.GroupVersionKind].Has(name) && object.GetDeletionTimestamp().IsZero() {
				errs = append(errs, r.remove(ctx, o, kind, object))
			}
		}
	}
	return errors.Join(errs...)
}

// remove deletes an object of the Listener's own.
func (r *Reconciler) remove(ctx context.Context, o *observed, kind exposure.Kind, object client.Object) error {
	key, uid := client.ObjectKeyFromObject(object), object.GetUID()
	err := r.Client.Delete(ctx, object.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("deleting %s %s: %w", kind.Kind, key, err)
	}
	log.FromContext(ctx).Info("Deleted an object that exposed the Listener", "kind", kind.Kind, "object", key.String())
	delete(o.objects[kind.GroupVersionKind], key.Name)
	return nil
}
