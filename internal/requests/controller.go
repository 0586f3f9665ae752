// Package requests decides when controllers handle their requests: in which order, when again after a failure or a
// conflict, and when a wait of an object ends. It keeps what normal operation brings out of the errors of controllers.
// It must never drop a request, nor hide any other error.
package requests

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// The first delay is short, because many errors last a moment only. The last one is so short that Pods do not wait long
// once the API server or a webhook has recovered: with controller-runtime's default, it would be a quarter of an hour.
const (
	baseDelay = 10 * time.Millisecond
	maxDelay  = 30 * time.Second
)

func newLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](baseDelay, maxDelay)
}

// Controller returns the builder of a controller that handles so many requests at a time, at most half for a namespace.
func Controller(mgr manager.Manager, name string, workers int) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: newQueue(workers), RateLimiter: newLimiter()})
}

// OnlyAtStart requests the cluster as a whole at the start.
func OnlyAtStart() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{})
		return nil
	})
}

// Only maps each object to the request of the cluster.
func Only() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
}

// Earliest returns the shortest of the waits that are positive, or 0 if none is.
func Earliest(waits ...time.Duration) (earliest time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (earliest == 0 || wait < earliest) {
			earliest = wait
		}
	}
	return earliest
}

// Left returns how much is left of a wait that began when an object was created, or 0. A creation in the future means
// that the API server's clock differs: nothing is left, rather than the difference and the whole wait.
func Left(created metav1.Time, wait time.Duration, now time.Time) time.Duration {
	age := now.Sub(created.Time)
	if age < 0 || age > wait {
		return 0
	}
	return wait - age
}

// delay is how long a request waits after a conflict. The event of the newer version usually reconciles it earlier.
const delay = 50 * time.Millisecond

// Requeue returns a reconciler that returns no error if inner failed only because of conflicts, namespaces that are
// being deleted and ResourceQuotas. Conflicts are part of normal operation: the cache follows with a delay, and others
// write the same objects. In a namespace that is being deleted nothing is left to do. A quota is not watched, so the
// request is repeated as after an error. A request that takes long has an event on its namespace.
func Requeue(mgr manager.Manager, controller string, inner reconcile.Reconciler) reconcile.Reconciler {
	counter := conflicts.WithLabelValues(controller) // present at zero
	refused := newLimiter()                          // that of the controller forgets a request without an error
	recorder := mgr.GetEventRecorder(names.EventReporter)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		defer time.AfterFunc(slow, func() { reportSlow(ctx, mgr.GetClient(), recorder, controller, req) }).Stop()
		result, err := inner.Reconcile(ctx, req)
		exceeded := false
		known := all(err, func(err error) bool {
			quota := ExceededQuota(err) != ""
			exceeded = exceeded || quota
			return quota || apierrors.IsConflict(err) || IsTerminating(err)
		})
		if !exceeded || !known {
			refused.Forget(req)
		}
		if err == nil || !known {
			return result, err
		}
		log.FromContext(ctx).V(1).Info("Ended early", "reason", err.Error())
		switch {
		case exceeded:
			return reconcile.Result{RequeueAfter: refused.When(req)}, nil
		case all(err, IsTerminating):
			return reconcile.Result{}, nil
		default:
			counter.Inc()
			return reconcile.Result{RequeueAfter: delay}, nil
		}
	})
}

// slow is how long a request may take until an event says so. Most take milliseconds, a webhook may take ten seconds.
const slow = 15 * time.Second

// reportSlow emits an event on the namespace of a request.
func reportSlow(ctx context.Context, reader client.Reader, recorder events.EventRecorder, controller string, req reconcile.Request) {
	namespace := tenancy.Namespace()
	if reader.Get(ctx, client.ObjectKey{Name: req.Namespace}, namespace) != nil {
		return // it is a request of the cluster, or the namespace is gone
	}
	const reason = operatorv1alpha1.ReasonSlowRequest
	recorder.Eventf(namespace, nil, reasons.EventType(reason), reason, "Reconcile", "the controller %s has worked for more than %s on %s. %s",
		controller, slow, req.Name, reasons.Of(reason).Remedy)
}

// Expected reports whether err is only about conflicts and namespaces that are being deleted.
func Expected(err error) bool {
	return all(err, func(err error) bool { return apierrors.IsConflict(err) || IsTerminating(err) })
}

// IsTerminating reports whether the API server has rejected a new object because its namespace is being deleted.
func IsTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// ExceededQuota returns what the API server says about an object that a ResourceQuota does not permit, which names the
// quota, or "" if err is any other error or nil.
func ExceededQuota(err error) string {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(rejected) || !strings.Contains(rejected.ErrStatus.Message, "exceeded quota") {
		return ""
	}
	return rejected.ErrStatus.Message
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
