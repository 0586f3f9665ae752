package listener

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// contended has what the cache does not show of the objects of a kind that exclude each other: those that were just
// written, and those that another client has deleted, which their Listeners create again. It is lost in a restart,
// which begins with a complete cache, and reconciles all Listeners.
type contended struct {
	// deciding is held from the decision which objects are desired until they are written.
	deciding sync.Mutex

	mu sync.Mutex
	// known are the objects of Listeners as they were last written or read, while the Listener exists.
	known map[types.NamespacedName]exposure.Object
	// waiting are the Listeners that were refused.
	waiting sets.Set[types.NamespacedName]
}

func newContended() *contended {
	return &contended{known: map[types.NamespacedName]exposure.Object{}, waiting: sets.New[types.NamespacedName]()}
}

// record records an object that was written.
func (c *contended) record(o exposure.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[namespacedName(o)] = o
}

// forget records that the Listener does not have an object any more.
func (c *contended) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// setWaiting records whether a Listener waits for a change of other objects.
func (c *contended) setWaiting(listener types.NamespacedName, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.waiting.Insert(listener)
	} else {
		c.waiting.Delete(listener)
	}
}

// wake returns the requests of the waiting Listeners.
func (c *contended) wake() []reconcile.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := make([]reconcile.Request, 0, len(c.waiting))
	for listener := range c.waiting {
		requests = append(requests, reconcile.Request{NamespacedName: listener})
	}
	return requests
}

// others returns the objects of a kind that the Listener does not control, sorted by namespace and name: those in the
// cache, and those of other Listeners that are not in the cache yet, or not any more.
func (r *Reconciler) others(ctx context.Context, listener *listenersv1alpha1.Listener, kind exposure.Kind) []exposure.Object {
	c := r.contended[kind.GroupVersionKind]
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := map[types.NamespacedName]exposure.Object{}
	for _, object := range r.all(ctx, kind.GroupVersionKind) {
		key := namespacedName(object)
		if known := c.known[key]; known != nil && known.GetUID() == object.GetUID() && known.GetGeneration() > object.GetGeneration() {
			continue
		}
		delete(c.known, key)
		byName[key] = object
		if controllerOfListeners(object) != nil {
			c.known[key] = object
		}
	}
	for key, known := range c.known {
		switch {
		case byName[key] != nil:
		case r.orphaned(ctx, known):
			delete(c.known, key)
		default:
			byName[key] = known
		}
	}
	var others []exposure.Object
	for _, object := range byName {
		if !controls(listener, object) {
			others = append(others, object)
		}
	}
	slices.SortFunc(others, func(a, b exposure.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return others
}

// namespacesOf returns the labels of the namespaces of objects, by name. One that does not exist has none.
func (r *Reconciler) namespacesOf(ctx context.Context, objects []exposure.Object) (map[string]map[string]string, error) {
	found := map[string]map[string]string{}
	for _, o := range objects {
		name := o.GetNamespace()
		if _, ok := found[name]; ok {
			continue
		}
		namespace := tenancy.Namespace()
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, namespace); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading namespace %s: %w", name, err)
		}
		found[name] = namespace.Labels
	}
	return found, nil
}

// orphaned reports whether the Listener of an object no longer exists. The object is deleted with it.
func (r *Reconciler) orphaned(ctx context.Context, o exposure.Object) bool {
	owner := controllerOfListeners(o)
	if owner == nil {
		return true
	}
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}
	listener, err := lookup.WithUID(ctx, r.Client, key, owner.UID, &listenersv1alpha1.Listener{})
	return err == nil && listener == nil
}

// controllerOfListeners returns the owner reference to the Listener that controls an object, or nil.
func controllerOfListeners(o metav1.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); isListener(owner) {
		return owner
	}
	return nil
}

func namespacedName(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
