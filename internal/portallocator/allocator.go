// Package portallocator gives ports numbers of a range that no other object has, as many as a namespace may have.
package portallocator

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Allocator has the numbers that objects have. Event handlers keep it current: an index of the cache would need a
// hundred times its memory. A Listener and its Service have their numbers together, by the key of the Service.
type Allocator struct {
	numbers func(client.Object) sets.Set[int32]
	freed   func()

	mu sync.Mutex
	// holders are the Listeners that have a number, and by how many objects. Pending numbers are those of another one.
	holders map[int32]map[types.NamespacedName]int
	// pending are numbers that were allocated to Listeners, by port name, until an object in the cache has them.
	pending map[types.NamespacedName]map[string]int32
}

// Range is where numbers are allocated.
type Range struct {
	utilnet.PortRange
	// MaxPerNamespace is how many numbers the Listeners of a namespace may have together, or 0 for any number.
	MaxPerNamespace int
}

// LimitError means that a namespace has as many numbers of a range as it may have.
type LimitError struct {
	// Others is how many the other Listeners of the namespace have.
	Others int
}

func (e *LimitError) Error() string { return "the namespace has as many numbers as it may have" }

// New returns an Allocator. numbers returns those that an object has, which is never nil. freed, which must not call
// the Allocator, is called when a Listener no longer has a number.
func New(numbers func(client.Object) sets.Set[int32], freed func()) *Allocator {
	return &Allocator{
		numbers: numbers, freed: freed,
		holders: map[int32]map[types.NamespacedName]int{}, pending: map[types.NamespacedName]map[string]int32{},
	}
}

// Allocate makes the chosen numbers, by port name, those of a Listener. choose, which must not call the Allocator, gets
// a function that reports whether another Listener has a number. If there is an error, for example a *LimitError,
// nothing changes. Numbers that the Listener has already are not limited. SetPending with what was Pending undoes it.
func (a *Allocator) Allocate(listener types.NamespacedName, from Range, choose func(taken func(int32) bool) (map[string]int32, error)) (map[string]int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	chosen, err := choose(func(number int32) bool { return a.taken(listener, number) })
	if err == nil {
		err = a.checkLimit(listener, from, chosen)
	}
	if err != nil {
		return nil, err
	}
	wasPending, pending := Numbers(a.pending[listener]), maps.Clone(chosen)
	maps.DeleteFunc(pending, func(_ string, number int32) bool { // that an object of the Listener has
		objects := a.holders[number][listener]
		if wasPending.Has(number) {
			objects--
		}
		return objects > 0
	})
	a.setPending(listener, pending)
	return chosen, nil
}

// Taken reports whether another Listener has a number.
func (a *Allocator) Taken(listener types.NamespacedName, number int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken(listener, number)
}

func (a *Allocator) taken(listener types.NamespacedName, number int32) bool {
	holders := a.holders[number]
	return len(holders) > 1 || len(holders) == 1 && holders[listener] == 0
}

func (a *Allocator) checkLimit(listener types.NamespacedName, from Range, chosen map[string]int32) error {
	own, more := sets.New[int32](), false
	for _, number := range chosen {
		if from.Contains(int(number)) {
			own.Insert(number)
			more = more || a.holders[number][listener] == 0
		}
	}
	if from.MaxPerNamespace == 0 || !more {
		return nil
	}
	others := sets.New[int32]()
	for number, holders := range a.holders {
		for holder := range holders {
			if holder.Namespace == listener.Namespace && holder != listener && from.Contains(int(number)) {
				others.Insert(number)
			}
		}
	}
	if others = others.Difference(own); others.Len()+own.Len() > from.MaxPerNamespace {
		return &LimitError{Others: others.Len()}
	}
	return nil
}

// Left returns, for each of the ranges, which may overlap, how many of its numbers no object and no Listener has.
func (a *Allocator) Left(ranges []utilnet.PortRange) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := make([]int, len(ranges))
	for i := range ranges {
		left[i] = ranges[i].Size
		for number := range a.holders {
			if ranges[i].Contains(int(number)) {
				left[i]--
			}
		}
	}
	return left
}

// Pending returns the numbers, by port name, that were allocated to a Listener and that the cache may not have yet.
func (a *Allocator) Pending(listener types.NamespacedName) map[string]int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.pending[listener])
}

// SetPending makes numbers, by port name, those that a Listener has although no object in the cache does.
func (a *Allocator) SetPending(listener types.NamespacedName, numbers map[string]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setPending(listener, numbers)
}

func (a *Allocator) setPending(listener types.NamespacedName, numbers map[string]int32) {
	before := a.pending[listener]
	delete(a.pending, listener)
	if len(numbers) > 0 {
		a.pending[listener] = maps.Clone(numbers)
	}
	a.hold(listener, Numbers(numbers))
	a.release(listener, Numbers(before))
}

// replace follows a change of an object, whose earlier or later version is nil if it does not exist.
func (a *Allocator) replace(before, after client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if after != nil {
		listener, numbers := keyOf(after), a.numbers(after)
		a.hold(listener, numbers)
		if numbers.IsSuperset(Numbers(a.pending[listener])) {
			a.setPending(listener, nil)
		}
	}
	if before != nil {
		listener := keyOf(before)
		if after == nil {
			a.setPending(listener, nil)
		}
		a.release(listener, a.numbers(before))
	}
}

func (a *Allocator) hold(listener types.NamespacedName, numbers sets.Set[int32]) {
	for number := range numbers {
		if a.holders[number] == nil {
			a.holders[number] = map[types.NamespacedName]int{}
		}
		a.holders[number][listener]++
	}
}

func (a *Allocator) release(listener types.NamespacedName, numbers sets.Set[int32]) {
	for number := range numbers {
		holders := a.holders[number]
		if holders[listener] == 0 {
			continue
		}
		if holders[listener]--; holders[listener] > 0 {
			continue
		}
		if delete(holders, listener); len(holders) == 0 {
			delete(a.holders, number)
		}
		a.freed()
	}
}

// keyOf returns the key of a Service or, for a Listener, the key of its Service.
func keyOf(o client.Object) types.NamespacedName {
	if listener, ok := o.(*listenersv1alpha1.Listener); ok {
		return names.ServiceKey(listener)
	}
	return client.ObjectKeyFromObject(o)
}

// Numbers returns the numbers of ports by name.
func Numbers(ports map[string]int32) sets.Set[int32] {
	return sets.New(slices.Collect(maps.Values(ports))...)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Handler returns an event handler that keeps the numbers current.
func (a *Allocator) Handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { a.replace(nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { a.replace(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { a.replace(e.Object, nil) },
	}
}

// AllocatedNodePorts returns the node ports of a Service, with its port for health checks, or those in the status of a
// Listener while its Service is created again. The last ones are not reserved: no quota counts them.
func AllocatedNodePorts(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	switch object := o.(type) {
	case *corev1.Service:
		numbers.Insert(object.Spec.HealthCheckNodePort)
		for _, p := range object.Spec.Ports {
			numbers.Insert(p.NodePort)
		}
	case *listenersv1alpha1.Listener:
		if object.Status != nil {
			numbers = Numbers(object.Status.NodePorts)
		}
	}
	return numbers.Delete(0)
}

// RecordedSharedPorts returns the numbers at a shared address in the status of a Listener with a Service: no quota
// counts other ones. An object of any other kind has none.
func RecordedSharedPorts(o client.Object) sets.Set[int32] {
	listener, ok := o.(*listenersv1alpha1.Listener)
	if !ok || listener.Status == nil || listener.Status.ServiceName == nil {
		return sets.New[int32]()
	}
	return Numbers(listener.Status.SharedPorts)
}
