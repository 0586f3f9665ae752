// Package retry says when work that failed is tried again.
package retry

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The first retry comes soon, for most errors are conflicts. The last ones come often enough that Pods do not wait long
// once the API server, an admission webhook or a disk is back: with the quarter of an hour that controllers commonly
// let it come to, nothing would happen after a long outage, although nothing is wrong any more.
const (
	first = 10 * time.Millisecond
	last  = 30 * time.Second
)

// Limiter returns the rate limiter of a work queue.
func Limiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, last)
}
