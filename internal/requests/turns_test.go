package requests

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestANamespaceWithManyRequestsDelaysOthersByOne(t *testing.T) {
	queue := newQueue(2)("", newLimiter())
	defer queue.ShutDown()
	for n := range 10_000 {
		queue.Add(request("busy", n))
	}
	queue.Add(request("quiet", 0))
	queue.Add(request("quiet", 1))
	queue.Add(request("other", 0))
	var got []reconcile.Request
	for range 6 {
		next, _ := queue.Get()
		queue.Done(next)
		got = append(got, next)
	}
	want := []reconcile.Request{
		request("busy", 0), request("quiet", 0), request("other", 0), request("busy", 1), request("quiet", 1), request("busy", 2),
	}
	check.Equal(t, "order", want, got)
}

// A namespace whose requests are added again while they are processed does not keep the workers.
func TestARequestThatComesBackWaitsForItsTurn(t *testing.T) {
	queue := newQueue(2)("", newLimiter())
	defer queue.ShutDown()
	queue.Add(request("busy", 0))
	next, _ := queue.Get()
	queue.Add(request("quiet", 0))
	queue.Add(next)
	queue.Add(next)
	queue.Done(next)
	if got, _ := queue.Get(); got != request("quiet", 0) {
		t.Errorf("got %v before the request of the other namespace", got)
	}
	if got, _ := queue.Get(); got != next {
		t.Errorf("got %v instead of the request that was added again", got)
	}
	queue.Done(next)
	if queue.Len() != 0 {
		t.Errorf("%d requests are left", queue.Len())
	}
}

func TestEveryRequestIsHandedOutOnce(t *testing.T) {
	queue := newQueue(2)("", newLimiter())
	defer queue.ShutDown()
	want := map[reconcile.Request]int{}
	for n := range 1000 {
		r := request(fmt.Sprint(n%7), n%100)
		queue.Add(r)
		want[r] = 1
	}
	got := map[reconcile.Request]int{}
	for queue.Len() > 0 {
		next, _ := queue.Get()
		queue.Done(next)
		got[next]++
	}
	check.Equal(t, "requests", want, got)
}

// workers handle the requests of a queue, each until it is released.
type workers struct {
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	all   sync.WaitGroup

	mu      sync.Mutex
	running map[reconcile.Request]chan struct{}
	handled map[reconcile.Request]int
	// most is the largest number of requests of each namespace that were handled at a time.
	most map[string]int
}

func startWorkers(n int) *workers {
	w := &workers{queue: newQueue(n)("", newLimiter()), running: map[reconcile.Request]chan struct{}{}, handled: map[reconcile.Request]int{}, most: map[string]int{}}
	for range n {
		w.all.Go(func() {
			for {
				r, shutdown := w.queue.Get()
				if shutdown {
					return
				}
				<-w.start(r)
				w.queue.Done(r)
			}
		})
	}
	return w
}

func (w *workers) start(r reconcile.Request) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[r] = make(chan struct{})
	w.handled[r]++
	now := 0
	for other := range w.running {
		if other.Namespace == r.Namespace {
			now++
		}
	}
	w.most[r.Namespace] = max(w.most[r.Namespace], now)
	return w.running[r]
}

// release ends the handling of requests of a namespace, at most n of them, and returns how many.
func (w *workers) release(namespace string, n int) (released int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, done := range w.running {
		if r.Namespace == namespace && released < n {
			close(done)
			delete(w.running, r)
			released++
		}
	}
	return released
}

// now returns how many requests of a namespace are being handled, when no worker has anything else to do.
func (w *workers) now(namespace string) (now int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.running {
		if r.Namespace == namespace {
			now++
		}
	}
	return now
}

func TestANamespaceHasAtMostHalfOfTheWorkers(t *testing.T) {
	for total, limit := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		synctest.Test(t, func(t *testing.T) {
			w := startWorkers(total)
			for n := range 100 {
				w.queue.Add(request("busy", n))
			}
			if got := w.now("busy"); got != limit {
				t.Errorf("%d workers handle %d requests of a namespace, want %d", total, got, limit)
			}
			for n := range total { // as many at a time as there are workers left
				w.queue.Add(request(fmt.Sprint("quiet", n), 0))
				if got := w.now(fmt.Sprint("quiet", n)); (got == 1) != (n < total-limit) {
					t.Errorf("%d workers handle %d requests of namespace %d", total, got, n)
				}
			}
			for released := 1; released > 0; synctest.Wait() {
				released = w.release("busy", 1)
				for n := range total {
					released += w.release(fmt.Sprint("quiet", n), 1)
				}
			}
			for n := range 100 {
				if got := w.handled[request("busy", n)]; got != 1 {
					t.Errorf("request %d was handled %d times", n, got)
				}
			}
			if w.most["busy"] != limit {
				t.Errorf("%d of %d workers handled requests of one namespace", w.most["busy"], total)
			}
			w.queue.ShutDown()
			w.all.Wait()
		})
	}
}

// No tenant makes them.
func TestRequestsOfTheClusterMayHaveAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorkers(4)
		for n := range 10 {
			w.queue.Add(request("", n))
		}
		if got := w.now(""); got != 4 {
			t.Errorf("%d of 4 workers handle requests", got)
		}
		w.queue.ShutDown()
		for w.release("", 10) > 0 {
			synctest.Wait()
		}
		w.all.Wait()
	})
}

// At the end of the process, workers without a request end, and the others handle what is left, also if it comes back.
func TestNoRequestIsForgottenWhileWorkersEnd(t *testing.T) {
	for name, shutDown := range map[string]func(w *workers){
		"at once":    func(w *workers) { w.queue.ShutDown() },
		"when empty": func(w *workers) { w.queue.ShutDownWithDrain(); w.queue.ShutDown() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := startWorkers(4)
				for n := range 10 {
					w.queue.Add(request("busy", n))
				}
				synctest.Wait()
				for r := range w.running {
					w.queue.Add(r) // again
				}
				go shutDown(w)
				synctest.Wait()
				for w.release("busy", 10) > 0 {
					synctest.Wait()
				}
				w.all.Wait()
				total := 0
				for _, times := range w.handled {
					total += times
				}
				if len(w.handled) != 10 || total != 12 || w.most["busy"] != 2 {
					t.Errorf("%d requests were handled, %d times, %d at a time", len(w.handled), total, w.most["busy"])
				}
			})
		})
	}
}

// TestNoRequestIsForgottenWhileManyWork runs without a fixed order of what happens, for the race detector.
func TestNoRequestIsForgottenWhileManyWork(t *testing.T) {
	queue := newQueue(8)("", newLimiter())
	var all, left sync.WaitGroup
	var mu sync.Mutex
	running := map[string]int{}
	count := func(namespace string, n int) int {
		mu.Lock()
		defer mu.Unlock()
		running[namespace] += n
		return running[namespace]
	}
	for range 8 {
		all.Go(func() {
			for {
				r, shutdown := queue.Get()
				if shutdown {
					return
				}
				if now := count(r.Namespace, 1); now > 4 {
					t.Errorf("%d requests of namespace %s at a time", now, r.Namespace)
				}
				count(r.Namespace, -1)
				queue.Done(r)
				left.Done()
			}
		})
	}
	const each = 3000
	left.Add(4 * each)
	for namespace := range 4 {
		all.Go(func() {
			for n := range each {
				queue.Add(request(fmt.Sprint(namespace/2), namespace*each+n)) // two namespaces, which are saturated most of the time
			}
		})
	}
	left.Wait()
	queue.ShutDown()
	all.Wait()
}
