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

// await waits until missing says "" of a list of objects, and returns that list. It looks again whenever one of the objects changes, and
// gives up after the limit with what missing said last.
func await[L client.ObjectList](
	ctx context.Context, d *demo, what string, limit time.Duration, empty L, missing func(L) string, options ...client.ListOption,
) (L, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	said := ""
	for {
		// Each time a new one: decoding would keep what a used one has and the answer lacks.
		list := empty.DeepCopyObject().(L)
		err := d.client.List(ctx, list, options...)
		if err == nil {
			state := missing(list)
			if state == "" {
				d.progress.say("%s: ready", what)
				return list, nil
			}
			if state != said {
				d.progress.say("%s: %s", what, state)
				said = state
			}
			err = d.awaitChange(ctx, list, options)
		}
		if ctx.Err() != nil {
			return list, fmt.Errorf("waiting for %s: %w (%s)", what, context.Cause(ctx), said)
		}
		if err != nil {
			return list, fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

// awaitChange returns when something happens to one of the objects that list was made of, or when the API server ends the watch.
func (d *demo) awaitChange(ctx context.Context, list client.ObjectList, options []client.ListOption) error {
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	watcher, err := d.client.Watch(ctx, list, append(slices.Clip(options), since)...)
	if err != nil {
		return err
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
