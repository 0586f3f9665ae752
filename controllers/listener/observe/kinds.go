package observe

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// KindReader reads the objects of a kind that the cluster may not serve.
type KindReader interface {
	client.Reader
	// Version returns the version of the kind that the cluster serves, or "" if none. Reading may fail nevertheless.
	Version() string
}

// Kinds reads objects of all kinds of the backends.
type Kinds struct {
	Scheme  *runtime.Scheme
	Readers map[schema.GroupVersionKind]KindReader
}

// NewObject returns an empty object of a kind.
func (k *Kinds) NewObject(kind *exposure.Kind) exposure.Object {
	o, err := k.Scheme.New(kind.GroupVersionKind)
	utilruntime.Must(err)
	return o.(exposure.Object)
}

// Version returns the version of a kind that the cluster serves, or "" if none.
func (k *Kinds) Version(kind *exposure.Kind) string {
	return k.Readers[kind.GroupVersionKind].Version()
}

// Get returns an object, or nil if it does not exist or the cluster does not serve its kind.
func (k *Kinds) Get(ctx context.Context, kind *exposure.Kind, key types.NamespacedName) (client.Object, error) {
	o, err := lookup.Get(ctx, k.Readers[kind.GroupVersionKind], key, k.NewObject(kind).(client.Object))
	if meta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // as in lookup.Get
	}
	return o, err
}

// list returns objects of a kind, which must not be changed. Of a kind that is not served there are none.
func (k *Kinds) list(ctx context.Context, kind *exposure.Kind,
	options ...client.ListOption) ([]exposure.Object, error) {
	list, err := k.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	utilruntime.Must(err)
	err = k.Readers[kind.GroupVersionKind].List(ctx, list.(client.ObjectList),
		append(options, client.UnsafeDisableDeepCopy)...)
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

// Readable returns what list returns, or nothing while that fails. All Listeners are reconciled when it works again.
func (k *Kinds) Readable(ctx context.Context, kind *exposure.Kind, options ...client.ListOption) []exposure.Object {
	objects, err := k.list(ctx, kind, options...)
	if err != nil {
		log.FromContext(ctx).Info("Waiting for objects of an optional kind", "kind", kind.String(), "reason",
			err.Error())
	}
	return objects
}

// Typed returns a desired object as one of its Go type.
func (k *Kinds) Typed(kind *exposure.Kind, desired exposure.Desired) (exposure.Object, error) {
	o := k.NewObject(kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o); err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w", kind.Kind, client.ObjectKeyFromObject(desired), err)
	}
	return o, nil
}

// HeldBy returns what desired objects of a backend have that only one Listener can have.
func (k *Kinds) HeldBy(backend *exposure.Backend, objects ...exposure.Desired) (keys []registry.Key, _ error) {
	for _, desired := range objects {
		kind := backend.Generated(desired.GetKind())
		if kind.Holds == nil {
			continue
		}
		o, err := k.Typed(kind, desired)
		if err != nil {
			return nil, err
		}
		keys = append(keys, kind.Holds(o)...)
	}
	return keys, nil
}
