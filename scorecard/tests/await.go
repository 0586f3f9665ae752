package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// timeout is the limit of each wait, on a cluster that may be busy.
	timeout = 2 * time.Minute
	// interval is the time between two attempts.
	interval = time.Second
)

// await lists the objects that options select until missing returns "" for them, and returns them. After the timeout,
// it fails with the last result of missing.
func await[L client.ObjectList](
	ctx context.Context, e *environment, what string, empty L, missing func(L) string, options ...client.ListOption,
) (list L, err error) {
	last := ""
	err = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		list = empty.DeepCopyObject().(L)
		if err := e.client.List(ctx, list, options...); err != nil {
			return false, err
		}
		state := missing(list)
		if state != "" && state != last {
			e.logf("%s: %s", what, state)
		}
		last = state
		return state == "", nil
	})
	switch {
	case wait.Interrupted(err):
		return list, failf("%s: %v: %s", what, err, last)
	case err != nil:
		return list, fmt.Errorf("%s: %w", what, err)
	}
	e.logf("%s: done", what)
	return list, nil
}
