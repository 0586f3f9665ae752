package requests

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/names"
)

// Deadlines collects after what times a pass looks at an object again, and why. It has none at first.
type Deadlines struct {
	in     time.Duration
	reason string
}

// Add adds a deadline, unless it is 0, and what has been so until then.
func (d *Deadlines) Add(in time.Duration, reason string) {
	if Earliest(d.in, in) == in {
		d.in, d.reason = in, reason
	}
}

// Result returns the earliest deadline, and logs its reason.
func (d *Deadlines) Result(ctx context.Context) reconcile.Result {
	if d.in > 0 {
		log.FromContext(ctx).V(1).Info("Looking at the object again later", "in", d.in.String(), "reason", d.reason)
	}
	return reconcile.Result{RequeueAfter: d.in}
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

// Restoring returns how much is left of the wait of a claim, or of a Pod with an inline volume, for the Listener of the
// same backup: Velero restores custom resources last.
func Restoring(o metav1.Object, now time.Time) time.Duration {
	if o.GetLabels()[names.LabelRestore] == "" {
		return 0
	}
	return Left(o.GetCreationTimestamp(), time.Minute, now)
}
