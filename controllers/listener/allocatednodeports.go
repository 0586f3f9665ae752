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

// allocatedNodePorts has the node ports of all Services, and those in the status of all Listeners, which get them again
// when their Service has node ports, and the Listeners for which no node port is left. Event handlers keep it current.
// An index of the cache would need a hundred times its memory. It is safe for concurrent use.
type allocatedNodePorts struct {
	mu sync.Mutex
	// users is the number of objects by node port.
	users map[int32]int
	// waiting are the Listeners for which the range of their class has no node port left. After a restart, they are
	// reconciled anyway.
	waiting sets.Set[types.NamespacedName]
}

func newAllocatedNodePorts() *allocatedNodePorts {
	return &allocatedNodePorts{users: map[int32]int{}, waiting: sets.New[types.NamespacedName]()}
}

// has reports whether an object has the node port.
func (a *allocatedNodePorts) has(number int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users[number] > 0
}

// setWaiting records whether a Listener waits for a node port.
func (a *allocatedNodePorts) setWaiting(listener client.ObjectKey, waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waits {
		a.waiting.Insert(listener)
	} else {
		a.waiting.Delete(listener)
	}
}

// replace replaces an object by a later version. Either is nil if it does not exist. It returns the waiting Listeners
// if a node port is free now.
func (a *allocatedNodePorts) replace(before, after client.Object) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number := range nodePortsOf(after) {
		a.users[number]++
	}
	freed := false
	for number := range nodePortsOf(before) {
		if a.users[number]--; a.users[number] == 0 {
			delete(a.users, number)
			freed = true
		}
	}
	if !freed {
		return nil
	}
	return a.waiting.UnsortedList()
}

// nodePortsOf returns the node ports of a Service, or those in the status of a Listener. The object may be nil.
func nodePortsOf(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	switch object := o.(type) {
	case *corev1.Service:
		for _, p := range object.Spec.Ports {
			numbers.Insert(p.NodePort)
		}
	case *listenersv1alpha1.Listener:
		if object.Status != nil {
			for number := range maps.Values(object.Status.NodePorts) {
				numbers.Insert(number)
			}
			for number := range maps.Values(object.Status.LastNodePorts) {
				numbers.Insert(number)
			}
		}
	}
	return numbers.Delete(0)
}

// handler returns an event handler that keeps the node ports current, and requests the waiting Listeners when one is
// free.
func (a *allocatedNodePorts) handler() handler.EventHandler {
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
