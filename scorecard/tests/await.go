package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a test waits for one thing, on a cluster that may be busy.
const patience = 2 * time.Minute

// await waits until missing says "" of the objects that options select, and returns them. It looks again whenever one of them changes. When
// patience ends before that, it fails with what missing said last.
func await[L client.ObjectList](
	ctx context.Context, e *environment, what string, empty L, missing func(L) string, options ...client.ListOption,
) (L, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := ""
	for {
		// Each time a new one: decoding would keep what a used one has and the answer lacks.
		list := empty.DeepCopyObject().(L)
		err := e.client.List(ctx, list, options...)
		if err == nil {
			state := missing(list)
			if state == "" {
				e.logf("%s: done", what)
				return list, nil
			}
			if state != said {
				e.logf("%s: %s", what, state)
				said = state
			}
			err = awaitChange(ctx, e.client, list, options)
		}
		if ctx.Err() != nil {
			return list, failf("%s: not in time: %s", what, said)
		}
		if err != nil {
			return list, fmt.Errorf("%s: %w", what, err)
		}
	}
}

// awaitChange returns when something happens to one of the objects that list was made of, or when the API server ends the watch.
func awaitChange(ctx context.Context, c client.WithWatch, list client.ObjectList, options []client.ListOption) error {
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
