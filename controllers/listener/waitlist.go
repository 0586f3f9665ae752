package listener

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// waitlist has the Listeners that wait for something that others have, each for one thing at a time. It is lost in a
// restart, which reconciles all Listeners. It is safe for concurrent use.
type waitlist struct {
	freed chan event.GenericEvent

	mu       sync.Mutex
	waiting  map[string]sets.Set[types.NamespacedName]
	waitsFor map[types.NamespacedName]string
}

func newWaitlist() *waitlist {
	return &waitlist{
		freed: make(chan event.GenericEvent, 1), waiting: map[string]sets.Set[types.NamespacedName]{}, waitsFor: map[types.NamespacedName]string{},
	}
}

// add makes a Listener wait for a thing, in place of any other. Add it before looking whether others have the thing, so
// that no change is missed.
func (w *waitlist) add(listener types.NamespacedName, thing string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(listener)
	if w.waiting[thing] == nil {
		w.waiting[thing] = sets.New[types.NamespacedName]()
	}
	w.waiting[thing].Insert(listener)
	w.waitsFor[listener] = thing
}

// remove makes a Listener wait for nothing.
func (w *waitlist) remove(listener types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(listener)
}

func (w *waitlist) drop(listener types.NamespacedName) {
	thing := w.waitsFor[listener]
	delete(w.waitsFor, listener)
	if w.waiting[thing].Delete(listener); len(w.waiting[thing]) == 0 {
		delete(w.waiting, thing)
	}
}

// requests returns requests for the Listeners that wait for one of the things.
func (w *waitlist) requests(things ...string) []reconcile.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var requests []reconcile.Request
	for _, thing := range things {
		for listener := range w.waiting[thing] {
			requests = append(requests, reconcile.Request{NamespacedName: listener})
		}
	}
	return requests
}

// all returns requests for all Listeners that wait.
func (w *waitlist) all() []reconcile.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var requests []reconcile.Request
	for listener := range w.waitsFor {
		requests = append(requests, reconcile.Request{NamespacedName: listener})
	}
	return requests
}

// notify makes the source request all Listeners that wait, for the case that no change of an object does.
func (w *waitlist) notify() {
	select {
	case w.freed <- event.GenericEvent{}:
	default: // it will
	}
}

func (w *waitlist) source() source.Source {
	return source.Channel(w.freed, handler.Funcs{
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			for _, request := range w.all() {
				q.Add(request)
			}
		},
	})
}
