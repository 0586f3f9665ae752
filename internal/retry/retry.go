// Package retry decides when work is repeated: it has the rate limiter for work that failed, finds the earliest of
// several waits, and what is left of one that began with an object.
package retry

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
)

// The first delay is short, because many errors last a moment only. The maximum is so short that Pods do not wait long
// once the API server, an admission webhook or a disk has recovered: with controller-runtime's default, nothing might
// happen for a quarter of an hour after a long outage.
const (
	baseDelay = 10 * time.Millisecond
	maxDelay  = 30 * time.Second
)

// Limiter returns the rate limiter of a work queue.
func Limiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](baseDelay, maxDelay)
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
