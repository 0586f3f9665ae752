package main

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	waiting "github.com/listener-operator/listener-operator/test/await"
)

// patience is how long a test waits for one thing, on a cluster that may be busy.
const patience = 2 * time.Minute

// await waits until missing says "" of the objects that options select, and returns them. It looks again whenever one
// of them changes. When patience ends before that, it fails with what missing said last.
func await[L client.ObjectList](
	ctx context.Context, e *environment, what string, empty L, missing func(L) string, options ...client.ListOption,
) (L, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	list, err := waiting.List(ctx, e.client, empty, missing, func(state string) { e.logf("%s: %s", what, state) }, options...)
	if ctx.Err() != nil {
		return list, failf("%s: %v", what, err)
	}
	if err != nil {
		return list, fmt.Errorf("%s: %w", what, err)
	}
	e.logf("%s: done", what)
	return list, nil
}
