package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// ensureObjects applies the objects of the backend. It tries all of them, and returns the first refusal.
func (r *Reconciler) ensureObjects(ctx context.Context, o *observed) (*exposure.Refusal, error) {
	l := o.forBackend(o.backend)
	for _, kind := range o.backend.Kinds() {
		if r.kinds[kind.GroupVersionKind].Version() == "" {
			return exposure.Refuse(listenersv1alpha1.ReasonNotServed, "ListenerClass %s requires objects of kind %s, which this cluster does not serve in %s; use another class",
				o.class.Name, kind.Kind, strings.Join(append([]string{kind.GroupVersion().String()}, kind.OtherVersions...), ", ")), nil
		}
		if kind.ReadOnly {
			continue
		}
		o.desired[kind.GroupVersionKind] = sets.New[string]()
		if c := r.contended[kind.GroupVersionKind]; c != nil {
			c.deciding.Lock()
			defer c.deciding.Unlock()
			if err := r.observeOthers(ctx, l, kind); err != nil {
				return nil, err
			}
		}
	}
	all, err := o.backend.Objects(l)
	if err == nil {
		var hosts []string
		if hosts, err = r.hostsOf(o.backend, all); err == nil {
			err = r.claimHosts(ctx, o, hostsOfObjects, hosts)
		}
	}
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generating the objects of backend %s for listener %s: %w", o.backend.Name(), client.ObjectKeyFromObject(o.listener), err)
	}
	return r.ensureEach(ctx, o, all)
}

// ensureEach applies the objects that the backend desires.
func (r *Reconciler) ensureEach(ctx context.Context, o *observed, all []exposure.Desired) (*exposure.Refusal, error) {
	var first *exposure.Refusal
	var errs []error
	for _, kind := range o.backend.Kinds() {
		if c := r.contended[kind.GroupVersionKind]; c != nil {
			c.setWaiting(client.ObjectKeyFromObject(o.listener), false)
		}
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
	err := errors.Join(errs...)
	o.applied = first == nil && err == nil && o.terminating == ""
	return first, err
}

// observeOthers sets the objects of a contended kind that the Listener does not control, and records that it waits for
// them, before it reads them, so that no change is missed.
func (r *Reconciler) observeOthers(ctx context.Context, l *exposure.Listener, kind exposure.Kind) (err error) {
	r.contended[kind.GroupVersionKind].setWaiting(client.ObjectKeyFromObject(l.Listener), true)
	l.Others = r.others(ctx, l.Listener, kind)
	l.OtherNamespaces, err = r.namespacesOf(ctx, l.Others)
	return err
}

// ensureObject applies one object, unless an object of the same name exists that the Listener does not control.
func (r *Reconciler) ensureObject(ctx context.Context, o *observed, kind exposure.Kind, desired exposure.Desired) (*exposure.Refusal, error) {
	existing, err := r.existing(ctx, o, kind, desired)
	if err != nil {
		return nil, err
	}
	switch {
	case existing == nil:
	case beingDeleted(o.listener, existing):
		o.terminating = fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(existing))
		return nil, nil //nolint:nilnil // nothing is refused: it is created again after its deletion
	case !controls(o.listener, existing):
		return exposure.Refuse(kind.ForeignReason, "%s %s already exists and %s; delete it, or rename the Listener or its port",
			kind.Kind, client.ObjectKeyFromObject(existing), controllerOf(existing)), nil
	case desired.Recreate:
		return nil, r.deleteObject(ctx, o, kind, existing) // it is created again after its deletion
	}
	desired.SetGroupVersionKind(kind.GroupKind().WithVersion(r.kinds[kind.GroupVersionKind].Version()))
	_, err = r.applier.Apply(ctx, desired.Unstructured, existing)
	if message, ok := rejection(err); ok {
		if remedy := kind.Remedy(message); remedy != "" {
			message += "; " + remedy
		}
		return exposure.Refuse(kind.RejectedReason, "the API server rejects %s %s: %s", kind.Kind, client.ObjectKeyFromObject(desired), message), err
	}
	if err != nil || desired.GetResourceVersion() == "" {
		return nil, err // or no request was sent
	}
	return nil, r.setApplied(o, kind, desired)
}

// setApplied makes the object that the API server answered with an observed one.
func (r *Reconciler) setApplied(o *observed, kind exposure.Kind, desired exposure.Desired) error {
	applied, err := r.typed(kind, desired)
	if err != nil {
		return err
	}
	o.objects[kind.GroupVersionKind][applied.GetName()] = applied
	if c := r.contended[kind.GroupVersionKind]; c != nil {
		c.record(applied)
	}
	return nil
}

// typed returns a desired object as one of its Go type.
func (r *Reconciler) typed(kind exposure.Kind, desired exposure.Desired) (client.Object, error) {
	o, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o); err != nil {
		return nil, fmt.Errorf("reading the applied %s %s: %w", kind.Kind, client.ObjectKeyFromObject(desired), err)
	}
	return o, nil
}

// existing returns the object with the name of the desired one, or nil. One that the cache does not have yet is not
// written to, as with Services.
func (r *Reconciler) existing(ctx context.Context, o *observed, kind exposure.Kind, desired exposure.Desired) (client.Object, error) {
	if own, ok := o.objects[kind.GroupVersionKind][desired.GetName()]; ok {
		return own, nil
	}
	object, err := r.newObject(kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	return lookup.Get(ctx, r.kinds[kind.GroupVersionKind], client.ObjectKeyFromObject(desired), object)
}

// removePrevious removes what no longer exposes the Listener. Objects of the class's own backend are deleted
// immediately. Everything else is the previous exposure, which is removed when its grace period ends. It returns the
// rest of the grace period, or 0 if there is no previous exposure or the addresses are not complete yet.
func (r *Reconciler) removePrevious(ctx context.Context, o *observed, a addresses) (time.Duration, error) {
	if o.serviceTerminating() {
		return 0, nil
	}
	service, err := exposure.Service(o.class, o.listener)
	if err != nil {
		return 0, err
	}
	if err := r.deleteUndesired(ctx, o, o.backend); err != nil {
		return 0, err
	}
	previous := r.previousBackends(o)
	remaining := r.remainingGracePeriod(o, a, len(previous) > 0 || o.removesEntryPoint(service))
	if !a.desired.Complete || remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range previous {
		errs = append(errs, r.deleteUndesired(ctx, o, backend))
	}
	if o.removesEntryPoint(service) {
		errs = append(errs, r.applyService(ctx, o, service))
	}
	return 0, errors.Join(errs...)
}

// previousBackends returns the other backends that the Listener still has objects of.
func (r *Reconciler) previousBackends(o *observed) []exposure.Backend {
	return slices.DeleteFunc(r.otherBackends(o), func(b exposure.Backend) bool { return len(o.forBackend(b).Objects) == 0 })
}

// otherBackends returns all backends but that of the class. Backends are compared by name, because the comparison of
// interface values panics if their type is not comparable.
func (r *Reconciler) otherBackends(o *observed) []exposure.Backend {
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b exposure.Backend) bool { return b.Name() == o.backend.Name() })
}

// remainingGracePeriod returns how long the previous exposure, if there is one, has to stay. There is a grace period
// because neither the opening of a node port nor the reload of a router can be watched, and clients need time to learn
// a new address.
func (r *Reconciler) remainingGracePeriod(o *observed, a addresses, previousExists bool) time.Duration {
	if !previousExists || !a.desired.Complete {
		r.ready.Delete(o.listener.UID)
		return 0
	}
	now := r.clock.Now()
	return r.ready.since(o.listener.UID, o.backend.Name(), now).Add(r.gracePeriod).Sub(now)
}

// deleteUndesired deletes the objects of a backend that are not desired.
func (r *Reconciler) deleteUndesired(ctx context.Context, o *observed, backend exposure.Backend) error {
	var errs []error
	for _, kind := range backend.Kinds() {
		for name, object := range o.objects[kind.GroupVersionKind] {
			if !o.desired[kind.GroupVersionKind].Has(name) && object.GetDeletionTimestamp().IsZero() {
				errs = append(errs, r.deleteObject(ctx, o, kind, object))
			}
		}
	}
	return errors.Join(errs...)
}

// deleteObject deletes an object that the Listener controls, in the version that the cluster serves.
func (r *Reconciler) deleteObject(ctx context.Context, o *observed, kind exposure.Kind, object client.Object) error {
	identity := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}}
	identity.SetGroupVersionKind(kind.GroupKind().WithVersion(cmp.Or(r.kinds[kind.GroupVersionKind].Version(), kind.Version)))
	if err := r.applier.Delete(ctx, identity); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	if c := r.contended[kind.GroupVersionKind]; c != nil {
		c.forget(client.ObjectKeyFromObject(object))
	}
	log.FromContext(ctx).Info("Deleted an object that exposed the Listener", "kind", kind.Kind, "object", client.ObjectKeyFromObject(object).String())
	delete(o.objects[kind.GroupVersionKind], object.GetName())
	return nil
}
