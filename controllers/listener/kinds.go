package listener

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// kindReader reads objects of a kind that the cluster may not serve.
type kindReader interface {
	client.Reader
	// Version returns the version of the kind that the cluster serves, or "" if none. Reading may fail nevertheless.
	Version() string
}

// kinds reads the objects of the backends' kinds.
type kinds struct {
	scheme  *runtime.Scheme
	readers map[schema.GroupVersionKind]kindReader
}

// newObject returns an empty object of a kind.
func (k *kinds) newObject(kind *exposure.Kind) (client.Object, error) {
	o, err := k.scheme.New(kind.GroupVersionKind)
	if err != nil {
		return nil, fmt.Errorf("making an object of kind %s: %w", kind.Kind, err)
	}
	return o.(client.Object), nil
}

// version returns the version of a kind that the cluster serves, or "".
func (k *kinds) version(kind *exposure.Kind) string {
	return k.readers[kind.GroupVersionKind].Version()
}

// get returns an object, or nil if it does not exist, or if its kind is not served.
func (k *kinds) get(ctx context.Context, kind *exposure.Kind, key types.NamespacedName) (client.Object, error) {
	o, err := k.newObject(kind)
	if err != nil {
		return nil, err
	}
	o, err = lookup.Get(ctx, k.readers[kind.GroupVersionKind], key, o)
	if meta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // as in lookup.Get
	}
	return o, err
}

// list returns objects of a kind, which must not be changed. Of a kind that is not served there are none.
func (k *kinds) list(ctx context.Context, kind *exposure.Kind, options ...client.ListOption) ([]exposure.Object, error) {
	list, err := k.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("making a list of kind %s: %w", kind.Kind, err)
	}
	err = k.readers[kind.GroupVersionKind].List(ctx, list.(client.ObjectList), append(options, client.UnsafeDisableDeepCopy)...)
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	var objects []exposure.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(exposure.Object))
		return nil
	})
	return objects, err
}

// readable returns what list returns, or nothing while that fails. All Listeners are reconciled when it works again.
func (k *kinds) readable(ctx context.Context, kind *exposure.Kind, options ...client.ListOption) []exposure.Object {
	objects, err := k.list(ctx, kind, options...)
	if err != nil {
		log.FromContext(ctx).Info("Waiting for objects of an optional kind", "kind", kind.String(), "reason", err.Error())
	}
	return objects
}

// typed returns a desired object as one of its Go type.
func (k *kinds) typed(kind *exposure.Kind, desired exposure.Desired) (client.Object, error) {
	o, err := k.newObject(kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o); err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w", kind.Kind, client.ObjectKeyFromObject(desired), err)
	}
	return o, nil
}
