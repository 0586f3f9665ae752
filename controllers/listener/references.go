package listener

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// observeReferences gets the objects that the backends only read, as far as the class or the Listener's objects refer
// to them, and the labels of the namespace, which those objects may select.
func (r *Reconciler) observeReferences(ctx context.Context, o *observed) error {
	if o.class == nil {
		return nil
	}
	for _, backend := range r.referring {
		for _, reference := range backend.References(o.forBackend(backend)) {
			object, err := r.referenced(ctx, reference)
			switch {
			case object != nil:
				o.referenced[backend.Name()] = append(o.referenced[backend.Name()], object)
			case err != nil && backend.Name() == o.backend.Name():
				return err
			}
		}
	}
	if len(o.referenced[o.backend.Name()]) == 0 {
		return nil
	}
	namespace := tenancy.Namespace()
	if err := r.Client.Get(ctx, client.ObjectKey{Name: o.listener.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading namespace %s: %w", o.listener.Namespace, err)
	}
	o.namespaceLabels = namespace.Labels
	return nil
}

// referenced returns an object that a backend reads, or nil if it does not exist, or if its kind is not served.
func (r *Reconciler) referenced(ctx context.Context, reference exposure.Reference) (exposure.Object, error) {
	object, err := r.newObject(reference.Kind)
	if err != nil {
		return nil, err
	}
	switch err := r.kinds[reference.Kind].Get(ctx, reference.NamespacedName, object); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil //nolint:nilnil // absence is no error
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", reference.Kind.Kind, reference.NamespacedName, err)
	default:
		return object, nil
	}
}

// referenceToListeners maps an object that backends only read to the Listeners whose class or whose objects refer to
// it.
func (r *Reconciler) referenceToListeners(kind schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		reference := exposure.Reference{Kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
		var requests []reconcile.Request
		var classes listenersv1alpha1.ListenerClassList
		index.List(ctx, r.Client, &classes)
		for i := range classes.Items {
			if l := (&exposure.Listener{Class: &classes.Items[i]}); r.anyRefersTo(l, reference) {
				requests = append(requests, r.classToListeners(ctx, l.Class)...)
			}
		}
		return append(requests, r.ownersOfReferring(ctx, reference)...)
	}
}

// ownersOfReferring returns the Listeners with objects that refer to an object, which their class need not do any more.
func (r *Reconciler) ownersOfReferring(ctx context.Context, reference exposure.Reference) []reconcile.Request {
	var requests []reconcile.Request
	for _, backend := range r.referring {
		for _, kind := range backend.Kinds() {
			if kind.ReadOnly {
				continue
			}
			for _, object := range r.all(ctx, kind.GroupVersionKind) {
				owner := controllingListener(object)
				l := &exposure.Listener{Class: &listenersv1alpha1.ListenerClass{}, Objects: []exposure.Object{object}}
				if owner.Name != "" && slices.Contains(backend.References(l), reference) {
					requests = append(requests, reconcile.Request{NamespacedName: owner})
				}
			}
		}
	}
	return requests
}

// all returns all objects of a kind in the cache, which must not be changed. If they cannot be read, there are none:
// once they can be, all Listeners are reconciled.
func (r *Reconciler) all(ctx context.Context, kind schema.GroupVersionKind) []exposure.Object {
	list, err := r.newList(kind)
	if err == nil {
		err = r.kinds[kind].List(ctx, list, client.UnsafeDisableDeepCopy)
	}
	if err != nil && !meta.IsNoMatchError(err) {
		log.FromContext(ctx).Info("Waiting for objects of an optional kind", "kind", kind.String(), "reason", err.Error())
	}
	items, _ := meta.ExtractList(list)
	objects := make([]exposure.Object, 0, len(items))
	for _, item := range items {
		objects = append(objects, item.(exposure.Object))
	}
	return objects
}

// anyRefersTo reports whether a backend reads an object for the Listener.
func (r *Reconciler) anyRefersTo(l *exposure.Listener, reference exposure.Reference) bool {
	return slices.ContainsFunc(r.referring, func(b exposure.Backend) bool { return slices.Contains(b.References(l), reference) })
}

// controllingListener returns the Listener that controls an object, or an empty name.
func controllingListener(o client.Object) types.NamespacedName {
	owner := controllerOfListeners(o)
	if owner == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
}

// trimmedChanged passes objects that are created or deleted, or differ in more than their version.
func trimmedChanged() predicate.Predicate {
	unversioned := func(o client.Object) client.Object {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		return o
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !equality.Semantic.DeepEqual(unversioned(e.ObjectOld), unversioned(e.ObjectNew))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
