package listener

import (
	"cmp"
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// exclusive has what the cache does not show of objects that exclude each other: those that are being or were just
// written, and those that another client has deleted, which their Listeners create again.
type exclusive struct {
	*reader
	waiting *waiting
	// planning is held from reading the objects of others until those of the Listener are known.
	planning sync.Mutex

	mu sync.Mutex
	// known are the objects of Listeners as they are planned, or were read; deleted ones are nil. Planned ones, without
	// a time of creation, take precedence over what other clients write into them.
	known map[objectKey]exposure.Object
	// before is what was known of those that are being written.
	before map[objectKey]exposure.Object
}

// plan returns the objects of a plan, or why there can be none. It reserves exclusive ones until release.
func (x *exclusive) plan(ctx context.Context, s *snapshot, p servicePlan) ([]exposure.Desired, *exposure.Refusal, error) {
	if !s.backend.IsExclusive() {
		objects, refusal := planObjects(s, p, exposure.Others{})
		return objects, refusal, nil
	}
	x.planning.Lock()
	defer x.planning.Unlock()
	others, err := x.others(ctx, s.backend, s.listener)
	if err != nil {
		return nil, nil, err
	}
	objects, refusal := planObjects(s, p, others)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, desired := range objects {
		planned, err := x.kinds.typed(s.backend.Generated(desired.GetKind()), desired)
		if err != nil {
			return nil, nil, err
		}
		if before := s.objects[s.backend.Name][keyOf(desired)]; before != nil {
			planned.SetUID(before.GetUID())
		}
		key := keyOf(desired)
		x.before[key], x.known[key] = x.known[key], planned
	}
	return objects, refusal, nil
}

// written records an object that was written, or nil if it was deleted.
func (x *exclusive) written(kind *exposure.Kind, key types.NamespacedName, o exposure.Object) {
	if !kind.Exclusive {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	object := objectKey{kind.GroupKind(), key}
	delete(x.before, object)
	if o != nil {
		o = o.DeepCopyObject().(exposure.Object)
		o.SetCreationTimestamp(metav1.Time{})
	}
	x.known[object] = o
}

// release ends the reservations of planned objects that were not written: if that failed, others may have them.
func (x *exclusive) release(s *snapshot, planned []exposure.Desired, failed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, desired := range planned {
		key := keyOf(desired)
		before, reserved := x.before[key]
		if delete(x.before, key); reserved && failed {
			x.known[key] = before
			x.waiting.free(s.backend.TakenReasons...)
		}
	}
}

// others returns the objects that are not those of this backend and Listener, including what the cache does not show.
func (x *exclusive) others(ctx context.Context, backend *exposure.Backend, listener *listenersv1alpha1.Listener) (others exposure.Others, _ error) {
	for _, kind := range backend.Generates {
		for _, object := range x.all(ctx, kind) {
			if !controls(listener, object) || kind.Owns != nil && !kind.Owns(object) {
				others.Objects = append(others.Objects, object)
			}
		}
	}
	slices.SortFunc(others.Objects, func(a, b exposure.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	others.Namespaces = map[string]map[string]string{}
	for _, o := range others.Objects {
		name := o.GetNamespace()
		if _, ok := others.Namespaces[name]; ok {
			continue
		}
		namespace, err := lookup.Get(ctx, x.client, client.ObjectKey{Name: name}, tenancy.Namespace())
		if err != nil {
			return others, err
		}
		others.Namespaces[name] = ptr.Deref(namespace, metav1.PartialObjectMetadata{}).Labels
	}
	others.Listeners = func() []listenersv1alpha1.Listener {
		return otherListeners(ctx, x.client, listener, func(class *listenersv1alpha1.ListenerClass) bool {
			return slices.ContainsFunc(x.backends.Of(class).Generates, func(kind *exposure.Kind) bool {
				return kind.Exclusive && slices.ContainsFunc(backend.Generates, func(own *exposure.Kind) bool { return own.GroupVersionKind == kind.GroupVersionKind })
			})
		})
	}
	return others, nil
}

func (x *exclusive) all(ctx context.Context, kind *exposure.Kind) map[objectKey]exposure.Object {
	x.mu.Lock()
	defer x.mu.Unlock()
	objects := map[objectKey]exposure.Object{}
	for _, object := range x.kinds.readable(ctx, kind) {
		key := objectKey{kind.GroupKind(), client.ObjectKeyFromObject(object)}
		if known := x.known[key]; known != nil && known.GetUID() == object.GetUID() && known.GetCreationTimestamp().Time.IsZero() {
			continue
		}
		delete(x.known, key)
		objects[key] = object
		if exposure.ControllingListener(object) != nil {
			x.known[key] = object
		}
	}
	for key, known := range x.known {
		switch {
		case key.kind != kind.GroupKind(), objects[key] != nil:
		case known == nil, x.orphaned(ctx, known):
			delete(x.known, key)
		default:
			objects[key] = known
		}
	}
	return objects
}

// orphaned reports whether the Listener of an object no longer exists.
func (x *exclusive) orphaned(ctx context.Context, o exposure.Object) bool {
	owner := exposure.ControllingListener(o)
	if owner == nil {
		return true
	}
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}
	listener, err := lookup.WithUID(ctx, x.client, key, owner.UID, &listenersv1alpha1.Listener{})
	return err == nil && listener == nil
}
