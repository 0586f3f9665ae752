package get

import (
	"context"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
)

// follow writes what there is, and then what changes, until the context ends, which is no error.
func (o *getOptions) follow(ctx context.Context, which *client.ListOptions) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	objects := source.Watch(logr.NewContext(ctx, logr.Discard()), c, which.Namespace)
	var written []listenerAddresses
	listed, err := o.observe(ctx, objects, which)
	for err == nil {
		if err := o.write(written, listed); err != nil {
			return err
		}
		written = listed
		select {
		case <-ctx.Done():
			return nil
		case <-objects.Changed:
		}
		listed, err = o.observe(ctx, objects, which)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
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
