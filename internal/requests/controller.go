// Package requests decides when controllers handle their requests: in which order, when again after a failure or a
// conflict, and when a wait of an object ends. It keeps what normal operation brings out of the errors of controllers.
// It must never drop a request, nor hide any other error.
package requests

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Controller returns the builder of a controller that handles so many requests at a time, at most half for a namespace.
func Controller(mgr manager.Manager, name string, workers int) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: newQueue(workers),
			RateLimiter: newLimiter()})
}

// Watch makes a controller handle the requests that a function maps an object to, at changes that all predicates pass.
func Watch(b *builder.Builder, o client.Object, to handler.MapFunc, changes ...predicate.Predicate) {
	b.Watches(o, handler.EnqueueRequestsFromMapFunc(to), builder.WithPredicates(changes...))
}

func OnlyAtStart() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
}

func Only() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
}
