package get

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// watcher writes addresses, and then what changes.
type watcher struct {
	*getOptions
	selection
	client  client.WithWatch
	options []client.ListOption

	// written is what the user has seen.
	written []listenerAddresses
	// began states that the header was written.
	began bool
}

// run writes addresses until the context ends, which is no error. The API server ends watches now and then.
func (w *watcher) run(ctx context.Context) error {
	for {
		found, since, err := observeAddresses(ctx, w.client, w.options)
		if err == nil {
			err = w.write(found)
		}
		if err == nil {
			err = w.follow(ctx, found, since)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// follow writes what changes until a watch ends.
func (w *watcher) follow(ctx context.Context, found *observedAddresses, since versions) error {
	listeners, err := w.start(ctx, &listenersv1alpha1.ListenerList{}, since.listeners)
	if err != nil {
		return err
	}
	defer listeners.Stop()
	pods, err := w.start(ctx, &listenersv1alpha1.PodListenersList{}, since.pods)
	if err != nil {
		return err
	}
	defer pods.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case event, open = <-listeners.ResultChan():
		case event, open = <-pods.ResultChan():
		}
		if !open || event.Type == watch.Error { // the objects are listed again
			return nil
		}
		found.apply(event)
		if err := w.write(found); err != nil {
			return err
		}
	}
}

func (w *watcher) start(ctx context.Context, list client.ObjectList, version string) (watch.Interface, error) {
	options := append(slices.Clone(w.options), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	i, err := w.client.Watch(ctx, list, options...)
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", list, err)
	}
	return i, nil
}

// apply applies an event to the observed objects.
func (o *observedAddresses) apply(event watch.Event) {
	switch object := event.Object.(type) {
	case *listenersv1alpha1.Listener:
		o.listeners[client.ObjectKeyFromObject(object)] = object
		if event.Type == watch.Deleted {
			delete(o.listeners, client.ObjectKeyFromObject(object))
		}
	case *listenersv1alpha1.PodListeners:
		o.pods[client.ObjectKeyFromObject(object)] = object
		if event.Type == watch.Deleted {
			delete(o.pods, client.ObjectKeyFromObject(object))
		}
	}
}

// write writes what differs from what the user has seen: lines that are new, and those that ended, or each Listener
// that changed as a JSON or YAML document.
func (w *watcher) write(found *observedAddresses) error {
	now := found.selected(w.selection)
	before := w.written
	w.written = now
	if w.Output == "" {
		w.writeChanges(rowsOf(before), rowsOf(now))
		return nil
	}
	for i := range now {
		if slices.ContainsFunc(before, func(l listenerAddresses) bool { return reflect.DeepEqual(l, now[i]) }) {
			continue
		}
		if err := w.Encode(now[i], nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) writeChanges(before, now []row) {
	var changes []row
	for _, r := range now {
		if !slices.Contains(before, r) {
			changes = append(changes, r)
		}
	}
	for _, r := range before {
		same := func(other row) bool {
			return other.namespace == r.namespace && other.listener == r.listener && other.pod == r.pod && other.port == r.port
		}
		if !slices.ContainsFunc(now, same) {
			r.address = "<removed>"
			changes = append(changes, r)
		}
	}
	if len(changes) > 0 {
		w.writeRows(w.Out, changes, !w.began)
		w.began = true
	}
}
