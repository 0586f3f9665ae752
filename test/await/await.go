// Package await waits until objects are as a story, or a check of an installation, needs them. It looks when they
// change, and never by the clock.
//
// No controller may use it: what they wait for, they watch.
package await

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// List waits until missing says "" of the objects that options select, and returns them. It looks again whenever one of
// them changes, and tells say whenever missing says something else than before. When ctx is done first, the error wraps
// its cause and has what missing said last.
func List[L client.ObjectList](
	ctx context.Context, c client.WithWatch, empty L, missing func(L) string, say func(string), options ...client.ListOption,
) (L, error) {
	said := ""
	for {
		// Each time a new one: decoding would keep what a used one has and the answer lacks.
		list := empty.DeepCopyObject().(L)
		err := c.List(ctx, list, options...)
		if err == nil {
			state := missing(list)
			if state == "" {
				return list, nil
			}
			if state != said {
				say(state)
				said = state
			}
			err = change(ctx, c, list, options)
		}
		if ctx.Err() != nil {
			return list, fmt.Errorf("%w: %s", context.Cause(ctx), said)
		}
		if err != nil {
			return list, err
		}
	}
}

// change returns when something happens to one of the objects that list was made of, or when the API server ends the
// watch.
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
