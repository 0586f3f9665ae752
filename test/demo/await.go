package main

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	waiting "github.com/listener-operator/listener-operator/test/await"
)

// await waits until missing says "" of a list of objects, and returns that list. It looks again whenever one of the
// objects changes, and gives up after the limit with what missing said last.
func await[L client.ObjectList](
	ctx context.Context, d *demo, what string, limit time.Duration, empty L, missing func(L) string, options ...client.ListOption,
) (L, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	list, err := waiting.List(ctx, d.client, empty, missing, func(state string) { d.progress.say("%s: %s", what, state) }, options...)
	if err != nil {
		return list, fmt.Errorf("waiting for %s: %w", what, err)
	}
	d.progress.say("%s: ready", what)
	return list, nil
}
