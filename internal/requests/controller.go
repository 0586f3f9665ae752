// Package requests decides when controllers handle their requests: in which order, when again after a failure or a
// conflict, and when a wait of an object ends. It keeps what normal operation brings out of the errors of controllers.
// It must never drop a request, nor hide any other error.
package requests

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The first delay after a failure is short, because many errors last a moment only. The maximum is so short that Pods
// do not wait long once the API server, an admission webhook or a disk has recovered: with controller-runtime's
// default, nothing might happen for a quarter of an hour after a long outage.
const (
	baseDelay = 10 * time.Millisecond
	maxDelay  = 30 * time.Second
)

func newLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](baseDelay, maxDelay)
}

// Controller returns the builder of a controller that handles so many requests at a time.
func Controller(mgr manager.Manager, name string, workers int) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: newQueue, RateLimiter: newLimiter()})
}

// OnlyAtStart is the source of the one request of a controller that reconciles the state of the cluster as a whole, at
// the start of the controller.
func OnlyAtStart() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
}

// Only maps each object to the one request of such a controller.
func Only() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
}

// Earliest returns the shortest of several waits, of which those that are not positive stand for no wait. It returns 0
// if there is none.
func Earliest(waits ...time.Duration) (earliest time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (earliest == 0 || wait < earliest) {
			earliest = wait
		}
	}
	return earliest
}

// Left returns how much is left of a wait that began when an object was created, or 0. The API server's clock has
// written the time of the creation: one in the future says nothing but that the clocks differ, and nothing is left,
// rather than the difference and the whole wait.
func Left(created metav1.Time, wait time.Duration, now time.Time) time.Duration {
	age := now.Sub(created.Time)
	if age < 0 || age > wait {
		return 0
	}
	return wait - age
}
