package requests

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

// delay is how long a request waits after a conflict. The event of the newer version usually reconciles it earlier.
const delay = 50 * time.Millisecond

// Requeue returns a reconciler that returns no error if inner failed only because of conflicts, namespaces that are
// being deleted and ResourceQuotas. Conflicts are part of normal operation: the cache follows with a delay, and others
// write the same objects. In a namespace that is being deleted nothing is left to do. A quota is not watched, so the
// request is repeated as after an error. A request that takes long has an event on its namespace.
func Requeue(mgr manager.Manager, controller string, inner reconcile.Reconciler) reconcile.Reconciler {
	counter := conflicts.WithLabelValues(controller) // present at zero
	refused := newLimiter()                          // the controller's own forgets a request without an error
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

func reportSlow(ctx context.Context, reader client.Reader, recorder events.EventRecorder, controller string,
	req reconcile.Request) {
	namespace := tenancy.Namespace()
	if reader.Get(ctx, client.ObjectKey{Name: req.Namespace}, namespace) != nil {
		return // it is a request of the cluster, or the namespace is gone
	}
	const reason = operatorv1alpha1.ReasonSlowRequest
	recorder.Eventf(namespace, nil, reasons.EventType(reason), reason, "Reconcile",
		"the controller %s has worked for more than %s on %s. %s",
		controller, slow, req.Name, reasons.Of(reason).Remedy)
}
