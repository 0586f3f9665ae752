// Package await waits until objects are in the state that a test expects. It watches the objects and does not poll.
package await

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// List waits until missing returns "" for the objects that options select, and returns them. It lists them again
// whenever one of them changes, and calls report with the result of missing whenever that differs from the previous
// one. When ctx is done first, the error wraps its cause and contains the last result of missing.
func List[L client.ObjectList](
	ctx context.Context, c client.WithWatch, empty L, missing func(L) string, report func(string), options ...client.ListOption,
) (L, error) {
	last := ""
	for {
		// Decoding into a list that was used before would keep fields that the response lacks.
		list := empty.DeepCopyObject().(L)
		err := c.List(ctx, list, options...)
		if err == nil {
			state := missing(list)
			if state == "" {
				return list, nil
			}
			if state != last {
				report(state)
				last = state
			}
			err = change(ctx, c, list, options)
		}
		if ctx.Err() != nil {
			return list, fmt.Errorf("%w: %s", context.Cause(ctx), last)
		}
		if err != nil {
			return list, err
		}
	}
}

// change returns when one of the objects that options select changes after list was read, or when the API server closes
// the watch.
func change(ctx context.Context, c client.WithWatch, list client.ObjectList, options []client.ListOption) error {
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	watcher, err := c.Watch(ctx, list, append(slices.Clip(options), since)...)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-watcher.ResultChan():
			if !open || event.Type != watch.Bookmark {
				return nil
			}
		}
	}
}
