package listener

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
	things sync.Map // each a wait, by the types.NamespacedName of the Listener
	waits  atomic.Uint64
}

// wait is what a Listener waits for, and the number of the wait, in the order in which they began.
type wait struct {
	listener types.NamespacedName
	thing    string
	// own are things that no other Listener can have in place of this one.
	own    []string
	number uint64
}

func newWaitlist() *waitlist { return &waitlist{freed: make(chan event.GenericEvent, 1)} }

// add makes a Listener wait for a thing, in place of any other. Add it before looking whether others have the thing, so
// that no change is missed.
func (w *waitlist) add(listener types.NamespacedName, thing string, own ...string) {
	w.things.Store(listener, wait{listener, thing, own, w.waits.Add(1)})
}

// remove makes a Listener wait for nothing.
func (w *waitlist) remove(listener types.NamespacedName) {
	w.things.Delete(listener)
}

// requests returns requests for the Listeners that wait for one of the things.
func (w *waitlist) requests(things ...string) []reconcile.Request {
	contains := func(thing string) bool { return slices.Contains(things, thing) }
	return w.matching(func(w wait) bool { return contains(w.thing) || slices.ContainsFunc(w.own, contains) })
}

// all returns requests for all Listeners that wait.
func (w *waitlist) all() []reconcile.Request {
	return w.matching(func(wait) bool { return true })
}

func (w *waitlist) matching(matches func(wait) bool) (requests []reconcile.Request) {
	for listener, waits := range w.things.Range {
		if matches(waits.(wait)) {
			requests = append(requests, reconcile.Request{NamespacedName: listener.(types.NamespacedName)})
		}
	}
	return requests
}

// first returns a request for each thing, for the Listener that has waited longest for it.
func (w *waitlist) first() (requests []reconcile.Request) {
	longest := map[string]wait{}
	for _, waits := range w.things.Range {
		this := waits.(wait)
		if other, ok := longest[this.thing]; !ok || this.number < other.number {
			longest[this.thing] = this
		}
	}
	for _, waits := range longest {
		requests = append(requests, reconcile.Request{NamespacedName: waits.listener})
	}
	return requests
}

// attempt makes a Listener wait for nothing while it is reconciled. Unless it waits for the same thing afterwards, done
// has the source request others: perhaps it was the one that was requested when the thing became free.
func (w *waitlist) attempt(listener types.NamespacedName) (done func()) {
	before, waited := w.things.LoadAndDelete(listener)
	return func() {
		if after, ok := w.things.Load(listener); waited && (!ok || after.(wait).thing != before.(wait).thing) {
			w.notify()
		}
	}
}

// notify makes the source request Listeners that wait, for the case that no change of an object does.
func (w *waitlist) notify() {
	select {
	case w.freed <- event.GenericEvent{}:
	default: // it will
	}
}

// source requests some of the Listeners that wait.
func (w *waitlist) source(some func() []reconcile.Request) source.Source {
	return source.Channel(w.freed, handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q, some()) }})
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
