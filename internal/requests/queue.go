package requests

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newQueue returns the work queue of a controller. Namespaces take turns: a namespace with thousands of requests delays
// a request of another one by no more than a single request of its own. Within a namespace, requests are in the order
// in which they were added. client-go's work queue, which it orders, hands out no request to two workers.
func newQueue(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Name: controller, Queue: &turns{requests: map[string][]reconcile.Request{}},
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: controller, Queue: ordered}),
	})
}

// turns implements workqueue.Queue. Each method takes constant time.
type turns struct {
	// namespaces are those with requests, in the order of their turns.
	namespaces []string
	// requests are those of each namespace, in the order of their arrival.
	requests map[string][]reconcile.Request
	length   int
}

// Touch implements workqueue.Queue. A request that is added again keeps its place.
func (t *turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(r reconcile.Request) {
	if len(t.requests[r.Namespace]) == 0 {
		t.namespaces = append(t.namespaces, r.Namespace)
	}
	t.requests[r.Namespace] = append(t.requests[r.Namespace], r)
	t.length++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.length }

// Pop implements workqueue.Queue. Callers make sure that there is a request.
func (t *turns) Pop() reconcile.Request {
	namespace := t.namespaces[0]
	t.namespaces = t.namespaces[1:]
	next, rest := t.requests[namespace][0], t.requests[namespace][1:]
	if len(rest) == 0 {
		delete(t.requests, namespace)
	} else {
		t.requests[namespace] = rest
		t.namespaces = append(t.namespaces, namespace)
	}
	t.length--
	return next
}
