// Package fakeclient creates fake clients for unit tests, with the operator's types and the indexes of its cache.
package fakeclient

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(listenersv1alpha1.AddToScheme(scheme))
	utilruntime.Must(operatorv1alpha1.AddToScheme(scheme))
	utilruntime.Must(backends.All().AddToScheme(scheme))
	return scheme
}

// New returns a client that contains the objects; intercept can make its requests fail.
func New(t testing.TB, intercept interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	return NewWithBackends(t, backends.All(), intercept, objects...)
}

// NewWithBackends is New with the types of these backends, instead of the operator's own.
func NewWithBackends(t testing.TB, list backends.List, intercept interceptor.Funcs,
	objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := Scheme()
	check.Must(t, list.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(intercept).
		WithStatusSubresource(&listenersv1alpha1.Listener{}, &operatorv1alpha1.ListenerOperator{}).
		WithTypeConverters(kubernetesTypes{applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)},
			managedfields.NewDeducedTypeConverter())
	if err := index.Register(t.Context(), fieldIndexer{builder}); err != nil {
		t.Fatalf("registering indexes: %v", err)
	}
	generatedBy := map[schema.GroupVersionKind]*exposure.Backend{} // backends share some
	for _, backend := range list {
		for _, kind := range backend.Generates {
			generatedBy[kind.GroupVersionKind] = backend
		}
	}
	for gvk, backend := range generatedBy {
		o, err := scheme.New(gvk)
		if err != nil {
			t.Fatalf("creating an object of kind %s: %v", gvk.Kind, err)
		}
		for name, extract := range index.OfObjects(backend) {
			builder.WithIndex(o.(client.Object), name, extract)
		}
	}
	return builder.Build()
}

// Cached returns a client that reads what the cache of an operator in the namespace keeps of the objects in c. A
// controller under test that reads with it sees no field that it would not see in production.
func Cached(c client.WithWatch, namespace string) client.WithWatch {
	options := cache.Options(namespace)
	transforms := map[reflect.Type]toolscache.TransformFunc{}
	for o, byObject := range options.ByObject {
		transforms[reflect.TypeOf(o)] = byObject.Transform
	}
	trim := func(o runtime.Object) error {
		transform := transforms[reflect.TypeOf(o)]
		if transform == nil {
			transform = options.DefaultTransform
		}
		trimmed, err := transform(o.DeepCopyObject())
		if err == nil {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(trimmed).Elem())
		}
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if err := c.Get(ctx, key, o, options...); err != nil {
				return err
			}
			return trim(o)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if err := c.List(ctx, list, options...); err != nil {
				return err
			}
			return meta.EachListItem(list, trim)
		},
	})
}

// kubernetesTypes converts Kubernetes' own types by their schemas, as a fake client does by default for server-side
// apply. With the schema of NetworkPolicy the fake client fails, so that type is left to the next converter.
type kubernetesTypes struct{ managedfields.TypeConverter }

func (k kubernetesTypes) ObjectToTyped(o runtime.Object,
	options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if o.GetObjectKind().GroupVersionKind().Kind == "NetworkPolicy" {
		return nil, errors.New("left to the next converter")
	}
	return k.TypeConverter.ObjectToTyped(o, options...)
}

// FailWrite makes the n-th write of a client, counted from 0, fail with err, and every other one succeed. The writes of
// a status do not count.
func FailWrite(n int, err error) interceptor.Funcs {
	writes := 0
	return EachWrite(func(verb string, _ any, send func() error) error {
		if verb == ApplyStatus {
			return send()
		}
		writes++
		if writes == n+1 {
			return err
		}
		return send()
	})
}

// ApplyStatus is the verb of a write by which a controller applies a status. The others are create, patch, apply and
// delete.
const ApplyStatus = "apply status"

// EachWrite calls do in place of each write, which do sends or not. Of an object that is applied, do gets the applied
// fields.
func EachWrite(do func(verb string, o any, send func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return do("create", o, func() error { return c.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			return do("patch", o, func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration,
			options ...client.ApplyOption) error {
			return do("apply", o, func() error { return c.Apply(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return do("delete", o, func() error { return c.Delete(ctx, o, options...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, subresource string, o runtime.ApplyConfiguration,
			options ...client.SubResourceApplyOption) error {
			return do(ApplyStatus, o, func() error { return c.SubResource(subresource).Apply(ctx, o, options...) })
		},
	}
}

// Intercept returns a client of an API server with some requests intercepted.
func Intercept(c client.Client, intercept interceptor.Funcs) client.WithWatch {
	return interceptor.NewClient(withoutWatch{c}, intercept)
}

type withoutWatch struct{ client.Client }

func (withoutWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("not used by tests")
}

// fieldIndexer is a fake client's builder as the indexer that index.Register takes.
type fieldIndexer struct{ builder *fake.ClientBuilder }

func (i fieldIndexer) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.builder.WithIndex(o, field, extract)
	return nil
}
