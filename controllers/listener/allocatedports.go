package listener

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// allocatedPorts has the port numbers that objects have, and the Listeners for which no number is left. Event handlers
// keep it current. An index of the cache would need a hundred times its memory. It is safe for concurrent use.
type allocatedPorts struct {
	// of returns the numbers that an object, which may be nil, has.
	of func(client.Object) sets.Set[int32]

	mu sync.Mutex
	// users is the number of objects by port number. Pending numbers have their Listener as an additional one.
	users map[int32]int
	// waiting are the Listeners for which the range of their class has no number left. After a restart, they are
	// reconciled anyway.
	waiting sets.Set[types.NamespacedName]
	// pending are numbers that were allocated to Listeners, until the cache has them.
	pending map[types.NamespacedName]pendingPorts
}

// pendingPorts are port numbers of a Listener that the cache does not have yet.
type pendingPorts struct {
	// numbers are the numbers by port name.
	numbers map[string]int32
	// stored states that they were written to the status.
	stored bool
}

func newAllocatedPorts(of func(client.Object) sets.Set[int32]) *allocatedPorts {
	return &allocatedPorts{
		of: of, users: map[int32]int{}, waiting: sets.New[types.NamespacedName](), pending: map[types.NamespacedName]pendingPorts{},
	}
}

// has reports whether an object has the number.
func (a *allocatedPorts) has(number int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users[number] > 0
}

// setWaiting records whether a Listener waits for a number.
func (a *allocatedPorts) setWaiting(listener client.ObjectKey, waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waits {
		a.waiting.Insert(listener)
	} else {
		a.waiting.Delete(listener)
	}
}

// allocate makes the chosen numbers, by port name, those of a Listener, so that no other one gets them. choose gets a
// function that reports whether an object has a number. If it returns false, the Listener waits.
func (a *allocatedPorts) allocate(listener client.ObjectKey, choose func(taken func(int32) bool) (map[string]int32, bool)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	chosen, ok := choose(func(number int32) bool { return a.users[number] > 0 })
	if !ok {
		a.waiting.Insert(listener)
		return false
	}
	a.waiting.Delete(listener)
	if len(chosen) == 0 {
		return true
	}
	numbers := maps.Clone(chosen)
	maps.Copy(numbers, a.pending[listener].numbers)
	for number := range numbersOf(numbers).Difference(numbersOf(a.pending[listener].numbers)) {
		a.users[number]++
	}
	a.pending[listener] = pendingPorts{numbers: numbers}
	return true
}

// pendingOf returns the numbers, by port name, that were allocated to a Listener and that the cache may not have yet,
// and whether they were written to its status.
func (a *allocatedPorts) pendingOf(listener client.ObjectKey) (numbers map[string]int32, stored bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[listener]
	return maps.Clone(p.numbers), p.stored
}

// setStored records that the pending numbers of a Listener were written to its status.
func (a *allocatedPorts) setStored(listener client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, ok := a.pending[listener]; ok {
		a.pending[listener] = pendingPorts{numbers: p.numbers, stored: true}
	}
}

// forget makes the pending numbers of a Listener available, unless the cache has them, and ends its wait.
func (a *allocatedPorts) forget(listener client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting.Delete(listener)
	a.release(a.settle(listener))
}

// replace replaces an object by a later version. Either is nil if it does not exist. It returns the waiting Listeners
// if a number is free now.
func (a *allocatedPorts) replace(before, after client.Object) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := a.of(after)
	for number := range has {
		a.users[number]++
	}
	freed := a.release(a.of(before))
	switch {
	case after == nil:
		freed = a.release(a.settle(client.ObjectKeyFromObject(before))) || freed
	case has.IsSuperset(numbersOf(a.pending[client.ObjectKeyFromObject(after)].numbers)):
		freed = a.release(a.settle(client.ObjectKeyFromObject(after))) || freed
	}
	if !freed {
		return nil
	}
	return a.waiting.UnsortedList()
}

// settle removes the pending numbers of a Listener, and returns them.
func (a *allocatedPorts) settle(listener types.NamespacedName) sets.Set[int32] {
	numbers := numbersOf(a.pending[listener].numbers)
	delete(a.pending, listener)
	return numbers
}

// release removes a user of each number, and reports whether one of them is free now.
func (a *allocatedPorts) release(numbers sets.Set[int32]) (freed bool) {
	for number := range numbers {
		if a.users[number]--; a.users[number] == 0 {
			delete(a.users, number)
			freed = true
		}
	}
	return freed
}

// numbersOf returns the numbers of ports by name.
func numbersOf(ports map[string]int32) sets.Set[int32] {
	numbers := sets.New[int32]()
	for number := range maps.Values(ports) {
		numbers.Insert(number)
	}
	return numbers
}

// nodePortsOf returns the node ports of a Service, or those that the status of a Listener has while its Service is
// created again. Those that it had last are not reserved: no quota counts them. The object may be nil.
func nodePortsOf(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	switch object := o.(type) {
	case *corev1.Service:
		for _, p := range object.Spec.Ports {
			numbers.Insert(p.NodePort)
		}
	case *listenersv1alpha1.Listener:
		if object.Status != nil {
			numbers = numbersOf(object.Status.NodePorts)
		}
	}
	return numbers.Delete(0)
}

// sharedPortsOf returns the numbers that a Listener, which may be nil, has at a shared address.
func sharedPortsOf(o client.Object) sets.Set[int32] {
	if listener, ok := o.(*listenersv1alpha1.Listener); ok && listener.Status != nil {
		return numbersOf(listener.Status.SharedPorts)
	}
	return nil
}

// handler returns an event handler that keeps the numbers current, and requests the waiting Listeners when one is free.
func (a *allocatedPorts) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	replace := func(q queue, before, after client.Object) {
		for _, listener := range a.replace(before, after) {
			q.Add(reconcile.Request{NamespacedName: listener})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { replace(q, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { replace(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { replace(q, e.Object, nil) },
	}
}
