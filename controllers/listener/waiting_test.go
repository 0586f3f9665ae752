package listener

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestOneOfManyThatWaitIsRequested, rather than all of them, when something is free: the one that has waited longest,
// for each thing.
func TestOneOfManyThatWaitIsRequested(t *testing.T) {
	w := newWaitlist()
	for i := range 2000 {
		w.add(waiter(i), fmt.Sprint("things of class ", i%2), fmt.Sprint("published ", i))
	}
	if got := w.first(); len(got) != 2 {
		t.Errorf("%d are requested for two things", len(got))
	}
	w.attempt(waiter(0))
	w.add(waiter(0), "things of class 0") // in vain
	for _, r := range w.first() {
		if r.NamespacedName != waiter(1) && r.NamespacedName != waiter(2) {
			t.Errorf("%s is requested, which has not waited longest", r)
		}
	}
	if got := w.requests("published 7"); len(got) != 1 || got[0].NamespacedName != waiter(7) {
		t.Errorf("%v are requested in place of the one that publishes it", got)
	}
}

func waiter(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("web-", i)}
}

// pool is what Listeners wait for, of two kinds.
type pool struct {
	*waitlist
	free     [2]int
	gone     map[types.NamespacedName]bool
	queue    map[types.NamespacedName]bool // requests, each once, as in a work queue
	attempts int
}

func newPool() *pool {
	return &pool{waitlist: newWaitlist(), gone: map[types.NamespacedName]bool{}, queue: map[types.NamespacedName]bool{}}
}

func (p *pool) request(requests []reconcile.Request) {
	for _, r := range requests {
		p.queue[r.NamespacedName] = true
	}
}

// reconcile handles one of the requests. fails makes it end before it looks for anything.
func (p *pool) reconcile(kind int, listener types.NamespacedName, fails bool) {
	delete(p.queue, listener)
	if p.gone[listener] {
		return
	}
	p.attempts++
	done := p.attempt(listener)
	if !fails {
		p.add(listener, fmt.Sprint(kind))
		if p.free[kind] > 0 {
			p.free[kind]--
			p.gone[listener] = true
			p.remove(listener)
		}
	}
	done()
	select {
	case <-p.freed:
		p.request(p.first())
	default:
	}
}

// TestWhatIsFreeCostsTwoAttempts, however many wait: one that succeeds, and one in vain.
func TestWhatIsFreeCostsTwoAttempts(t *testing.T) {
	p := newPool()
	for i := range 2000 {
		p.reconcile(0, waiter(i), false)
	}
	p.free[0], p.attempts = 1, 0
	p.request(p.first())
	for len(p.queue) > 0 {
		for listener := range p.queue {
			p.reconcile(0, listener, false)
		}
	}
	if p.free[0] > 0 || p.attempts > 2 {
		t.Errorf("%d attempts, and %d are free", p.attempts, p.free[0])
	}
}

// TestNothingStaysFreeWhileAListenerWaits, whatever happens to the Listeners that are requested for it: they take it,
// look for another thing, fail, or are deleted.
func TestNothingStaysFreeWhileAListenerWaits(t *testing.T) {
	const listeners, rounds = 200, 300
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		p := newPool()
		kinds := map[types.NamespacedName]int{}
		for i := range listeners {
			kinds[waiter(i)] = i % 2
			p.reconcile(i%2, waiter(i), false)
		}
		for range rounds {
			switch any := waiter(random.IntN(listeners)); random.IntN(4) {
			case 0: // something is free
				p.free[random.IntN(2)]++
				p.request(p.first())
			case 1: // a Listener is deleted, perhaps the one that is requested
				p.gone[any] = true
				p.remove(any)
				p.request(p.first())
			case 2: // a Listener has another class
				kinds[any] = 1 - kinds[any]
				p.queue[any] = true
			default:
				for listener := range p.queue {
					p.reconcile(kinds[listener], listener, random.IntN(4) == 0)
					if random.IntN(2) == 0 {
						break
					}
				}
			}
		}
		for len(p.queue) > 0 {
			for listener := range p.queue {
				p.reconcile(kinds[listener], listener, false)
			}
		}
		for listener, waits := range p.things.Range {
			if kind := kinds[listener.(types.NamespacedName)]; p.free[kind] > 0 {
				t.Fatalf("with seed %d, %s waits for %s although %d are free", seed, listener, waits.(wait).thing, p.free[kind])
			}
		}
	}
}
