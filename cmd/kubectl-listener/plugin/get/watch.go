package get

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// follow writes what was listed, and then what changes, until the context ends, which is no error.
func (o *getOptions) follow(ctx context.Context, c client.Client, which *client.ListOptions, listed []listenerAddresses) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	changed := make(chan struct{}, 1)
	objects, err := o.cache(following, end, c, which.Namespace, changed)
	if err != nil {
		return fmt.Errorf("preparing to watch: %w", err)
	}
	go func() { end(objects.Start(following)) }()
	var written []listenerAddresses
	for {
		if err := o.write(written, listed); err != nil {
			return err
		}
		written = listed
		select {
		case <-following.Done():
		case <-changed:
		}
		listed, err = o.observe(following, objects, which)
		switch {
		case ctx.Err() != nil:
			return nil
		case following.Err() != nil:
			return context.Cause(following)
		case err != nil:
			return err
		}
	}
}

// cache returns a cache of what has addresses in a namespace, which writes to changed when something changes. It calls
// end if the user may not watch, which is a permission of its own.
func (o *getOptions) cache(ctx context.Context, end context.CancelCauseFunc, c client.Client, namespace string, changed chan<- struct{}) (cache.Cache, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	objects, err := cache.New(config, cache.Options{
		Scheme: c.Scheme(), Mapper: c.RESTMapper(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				end(fmt.Errorf("watching: %w", err))
			} else {
				toolscache.DefaultWatchErrorHandler(ctx, r, err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default: // the last change is not observed yet
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, now any) { notify(now) }, DeleteFunc: notify}
	for _, kind := range []client.Object{&listenersv1alpha1.Listener{}, &listenersv1alpha1.PodListeners{}} {
		informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// write writes what differs from what the user has seen: lines that are new, and those that ended, or each Listener
// that changed as a JSON or YAML document.
func (o *getOptions) write(before, now []listenerAddresses) error {
	if o.Output == "" {
		o.writeChanges(rowsOf(before), rowsOf(now))
		return nil
	}
	for i := range now {
		if slices.ContainsFunc(before, func(l listenerAddresses) bool { return reflect.DeepEqual(l, now[i]) }) {
			continue
		}
		if err := o.Encode(now[i], nil); err != nil {
			return err
		}
	}
	return nil
}

func (o *getOptions) writeChanges(before, now []row) {
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
		o.writeRows(changes)
	}
}
