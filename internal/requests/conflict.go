package requests

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// delay is how long a request waits after a conflict. The event of the newer version usually reconciles it earlier.
const delay = 50 * time.Millisecond

// Requeue returns a reconciler of the named controller that returns no error if inner failed because of nothing but
// conflicts and namespaces that are being deleted. Both are part of normal operation: the cache follows the API server
// with a delay, and other clients write the same objects. It requeues the request after a conflict. In a namespace that
// is being deleted there is nothing left to do until an object changes or is deleted, of which there is an event.
func Requeue(controller string, inner reconcile.Reconciler) reconcile.Reconciler {
	counter := conflicts.WithLabelValues(controller) // present at zero
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, req)
		if err == nil || !Expected(err) {
			return result, err
		}
		log.FromContext(ctx).V(1).Info("Ended early", "reason", err.Error())
		if all(err, IsTerminating) {
			return reconcile.Result{}, nil
		}
		counter.Inc()
		return reconcile.Result{RequeueAfter: delay}, nil
	})
}

// Expected reports whether err consists of nothing but conflicts and rejections by namespaces that are being deleted.
func Expected(err error) bool {
	return all(err, func(err error) bool { return apierrors.IsConflict(err) || IsTerminating(err) })
}

// IsTerminating reports whether the API server has rejected a new object because its namespace is being deleted.
func IsTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// all reports whether is holds for each of the errors that err joins.
func all(err error, is func(error) bool) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return is(err)
	}
	for _, e := range joined.Unwrap() {
		if !all(e, is) {
			return false
		}
	}
	return true
}
