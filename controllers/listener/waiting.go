package listener

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// waitlist has the Listeners that wait for something that others have, each for one thing at a time. It is lost in a
// restart, which reconciles all Listeners. It is safe for concurrent use.
type waitlist struct {
	freed  chan event.GenericEvent
	things sync.Map // by the types.NamespacedName of the Listener
}

func newWaitlist() *waitlist { return &waitlist{freed: make(chan event.GenericEvent, 1)} }

// add makes a Listener wait for a thing, in place of any other. Add it before looking whether others have the thing, so
// that no change is missed.
func (w *waitlist) add(listener types.NamespacedName, thing string) {
	w.things.Store(listener, thing)
}

// remove makes a Listener wait for nothing.
func (w *waitlist) remove(listener types.NamespacedName) {
	w.things.Delete(listener)
}

// requests returns requests for the Listeners that wait for one of the things.
func (w *waitlist) requests(things ...string) []reconcile.Request {
	return w.matching(func(thing string) bool { return slices.Contains(things, thing) })
}

// all returns requests for all Listeners that wait.
func (w *waitlist) all() []reconcile.Request {
	return w.matching(func(string) bool { return true })
}

func (w *waitlist) matching(matches func(thing string) bool) (requests []reconcile.Request) {
	for listener, thing := range w.things.Range {
		if matches(thing.(string)) {
			requests = append(requests, reconcile.Request{NamespacedName: listener.(types.NamespacedName)})
		}
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
	return source.Channel(w.freed, handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q, w.all()) }})
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func add(q queue, requests []reconcile.Request) {
	for _, request := range requests {
		q.Add(request)
	}
}

// periods is since when a state of Listeners lasts, by their UID. They start again after a restart, and expire.
type periods struct {
	*cache.Expiring
	clock clock.PassiveClock
}

func newPeriods(c clock.PassiveClock) periods { return periods{cache.NewExpiring(), c} }

type period struct {
	state string
	since time.Time
}

// age returns for how long a Listener has been in a state: 0, unless the last call named the same state.
func (p periods) age(listener types.UID, state string) time.Duration {
	if last, ok := p.Get(listener); ok && last.(period).state == state {
		return p.clock.Since(last.(period).since)
	}
	p.Set(listener, period{state, p.clock.Now()}, time.Hour)
	return 0
}
