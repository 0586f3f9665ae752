package requests

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newQueue returns what makes the work queue of a controller with so many workers. Namespaces take turns, so a
// namespace with thousands of requests delays another one by a single request of its own, and it never has more than
// half of the workers, but always one. Within a namespace, requests keep their order. The work queue of client-go,
// which this one orders, hands out no request to two workers.
func newQueue(workers int) func(
	string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(controller string,
		limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		t := &turns{limit: max(workers/2, 1), requests: map[string][]reconcile.Request{}, running: map[string]int{}}
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: controller,
			Queue: t})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[reconcile.Request]{
						Name: controller, Queue: limited{ordered, t},
					}),
			})
	}
}

type limited struct {
	workqueue.TypedInterface[reconcile.Request]
	turns *turns
}

// Done implements workqueue.TypedInterface. It wakes no other worker for the request of the namespace that may be
// handed out now: the worker that calls it gets the next request.
func (q limited) Done(r reconcile.Request) {
	q.turns.done(r)
	q.TypedInterface.Done(r)
}

// turns implements workqueue.Queue. Each method takes constant time.
type turns struct {
	// limit is how many requests of a namespace are handled at a time. Those of the cluster are not limited.
	limit int

	// mu is held because done is called without the lock of the work queue.
	mu sync.Mutex
	// namespaces have requests that may be handed out, in the order of their turns.
	namespaces []string
	// requests are those that are not handed out, by namespace, in the order of their arrival.
	requests map[string][]reconcile.Request
	running  map[string]int
}

// Touch implements workqueue.Queue. A request that is added again keeps its place.
func (t *turns) Touch(reconcile.Request) {}

func (t *turns) Push(r reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[r.Namespace] = append(t.requests[r.Namespace], r)
	if len(t.requests[r.Namespace]) == 1 {
		t.enqueue(r.Namespace)
	}
}

// Len implements workqueue.Queue. It is zero if and only if no request may be handed out now.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.namespaces)
}

// Pop implements workqueue.Queue. Callers make sure that there is a request.
func (t *turns) Pop() reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	namespace := t.namespaces[0]
	t.namespaces = t.namespaces[1:]
	next := t.requests[namespace][0]
	if t.requests[namespace] = t.requests[namespace][1:]; len(t.requests[namespace]) == 0 {
		delete(t.requests, namespace)
	}
	if namespace != "" {
		t.running[namespace]++
	}
	t.enqueue(namespace)
	return next
}

// enqueue gives a namespace the last turn, if it has a request that may be handed out. It must have no turn.
func (t *turns) enqueue(namespace string) {
	if len(t.requests[namespace]) > 0 && t.running[namespace] < t.limit {
		t.namespaces = append(t.namespaces, namespace)
	}
}

func (t *turns) done(r reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[r.Namespace] == 0 {
		return // it is one of the cluster
	}
	t.running[r.Namespace]--
	if t.running[r.Namespace] == t.limit-1 {
		t.enqueue(r.Namespace)
	}
	if t.running[r.Namespace] == 0 {
		delete(t.running, r.Namespace)
	}
}
