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

// exclusive has what the cache does not show of the objects of a kind that exclude each other: those that are being
// written, those that were just written, and those that another client has deleted, which their Listeners create again.
// It is lost in a restart, which begins with a complete cache, and reconciles all Listeners.
type exclusive struct {
	client client.Reader
	kinds  *kinds
	kind   *exposure.Kind
	// waiting are the Listeners that were refused.
	waiting *waitlist
	// planning is held from reading the objects of others until those of the Listener are known.
	planning sync.Mutex

	mu sync.Mutex
	// known are the objects of Listeners as they are being written, were last written, or read. Deleted ones are nil.
	known map[types.NamespacedName]exposure.Object
	// before is what was known of those that are being written.
	before map[types.NamespacedName]exposure.Object
}

func newExclusive(reader client.Reader, k *kinds, kind *exposure.Kind) *exclusive {
	return &exclusive{
		client: reader, kinds: k, kind: kind, waiting: newWaitlist(),
		known: map[types.NamespacedName]exposure.Object{}, before: map[types.NamespacedName]exposure.Object{},
	}
}

// plan adds the objects to a plan, and reserves what they exclude others from, until each is written or restored.
func (x *exclusive) plan(ctx context.Context, s *snapshot, p *plan) error {
	x.planning.Lock()
	defer x.planning.Unlock()
	x.waiting.add(s.key(), "")
	others, err := x.others(ctx, s.listener)
	if err != nil {
		return err
	}
	if p.addObjects(s, others); p.objectsRefusal != nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, desired := range p.objects {
		planned, err := x.kinds.typed(x.kind, desired)
		if err != nil {
			return err
		}
		planned.SetCreationTimestamp(metav1.Now())
		if before := s.objects[s.backend.Name][desired.GetName()]; before != nil {
			planned.SetUID(before.GetUID())
			planned.SetCreationTimestamp(before.GetCreationTimestamp())
			planned.SetGeneration(before.GetGeneration() + 1)
		}
		key := client.ObjectKeyFromObject(planned)
		x.before[key], x.known[key] = x.known[key], planned
	}
	x.waiting.remove(s.key())
	return nil
}

// written records an object that was written, or nil if it was deleted.
func (x *exclusive) written(key types.NamespacedName, o exposure.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.before, key)
	x.known[key] = o
}

// restore ends the reservation of an object that was not written. It reports whether there was one.
func (x *exclusive) restore(key types.NamespacedName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, reserved := x.before[key]
	if reserved {
		delete(x.before, key)
		x.known[key] = before
	}
	return reserved
}

// others returns the objects that the Listener does not control, including those that the cache does not show.
func (x *exclusive) others(ctx context.Context, listener *listenersv1alpha1.Listener) (others exposure.Others, _ error) {
	for _, object := range x.all(ctx) {
		if !controls(listener, object) {
			others.Objects = append(others.Objects, object)
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
	return others, nil
}

func (x *exclusive) all(ctx context.Context) map[types.NamespacedName]exposure.Object {
	x.mu.Lock()
	defer x.mu.Unlock()
	objects := map[types.NamespacedName]exposure.Object{}
	for _, object := range x.kinds.readable(ctx, x.kind) {
		key := client.ObjectKeyFromObject(object)
		if known := x.known[key]; known != nil && known.GetUID() == object.GetUID() && known.GetGeneration() > object.GetGeneration() {
			continue
		}
		delete(x.known, key)
		objects[key] = object
		if controllingListener(object) != nil {
			x.known[key] = object
		}
	}
	for key, known := range x.known {
		switch {
		case objects[key] != nil:
		case known == nil, x.orphaned(ctx, known):
			delete(x.known, key)
		default:
			objects[key] = known
		}
	}
	return objects
}

// orphaned reports whether the Listener of an object no longer exists. The object is deleted with it.
func (x *exclusive) orphaned(ctx context.Context, o exposure.Object) bool {
	owner := controllingListener(o)
	if owner == nil {
		return true
	}
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}
	listener, err := lookup.WithUID(ctx, x.client, key, owner.UID, &listenersv1alpha1.Listener{})
	return err == nil && listener == nil
}
