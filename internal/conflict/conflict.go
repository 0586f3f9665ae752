// Package conflict keeps conflicts out of the errors of reconcilers. A write that the API server rejects because the
// observed object was outdated is part of normal operation: the cache follows the API server with a delay, and other
// clients write the same objects. In the error log and in the metric of errors, conflicts would hide real failures.
package conflict

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// delay is how long a request waits after a conflict. The event of the newer version usually reconciles it earlier.
const delay = 50 * time.Millisecond

// Requeue returns a reconciler that requeues a request, instead of returning an error, if inner failed because of
// nothing but conflicts.
func Requeue(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, req)
		if err == nil || !only(err) {
			return result, err
		}
		log.FromContext(ctx).V(1).Info("Requeued after a conflict", "conflict", err.Error())
		return reconcile.Result{RequeueAfter: delay}, nil
	})
}

// only reports whether err consists of conflicts.
func only(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return apierrors.IsConflict(err)
	}
	for _, e := range joined.Unwrap() {
		if !only(e) {
			return false
		}
	}
	return true
}
