// Package retry decides when work is repeated: it has the rate limiter for work that failed, and finds the earliest of
// several waits.
package retry

import (
	"time"

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
