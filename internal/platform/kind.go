package platform

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// patience is how long a controller's start waits for the objects of an optional kind. An API that exists and does not
// answer must not keep the operator from its other work.
const patience = 10 * time.Second

// KindOptions say what a controller wants to know of an optional kind.
type KindOptions struct {
	// Scheme knows the type of Object.
	Scheme *runtime.Scheme
	// Object is an empty object of the kind: typed, unstructured or metadata only.
	Object client.Object
	// Cache says which objects to keep in memory, and what of them.
	Cache cache.ByObject
	// Indexes are those of the cache, by their names.
	Indexes map[string]client.IndexerFunc
	// Handler and Predicates turn the objects' changes into requests, as in any watch.
	Handler    handler.EventHandler
	Predicates []predicate.Predicate
	// Changed returns what to reconcile when the cluster starts or stops serving the kind.
	Changed func(context.Context) []reconcile.Request
}

// Kind is one controller's view of an optional kind: a source of its watches, and a reader of its objects. Its cache
// exists while the cluster serves the kind. Until the source is started, and while the API does not answer, reading
// fails.
type Kind struct {
	apis    *APIs
	kind    schema.GroupVersionKind
	options KindOptions
	// ready is closed when the start of the controller need not wait any more.
	ready chan struct{}
	once  sync.Once

	mu     sync.Mutex
	filled client.Reader
}

var (
	_ source.SyncingSource = &Kind{}
	_ client.Reader        = &Kind{}
)

// Kind returns a view for one controller, which has to watch it as a raw source.
func (a *APIs) Kind(options KindOptions) (*Kind, error) {
	kind, err := apiutil.GVKForObject(options.Object, options.Scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", options.Object, err)
	}
	a.look(kind) // panics unless the kind is known
	return &Kind{apis: a, kind: kind, options: options, ready: make(chan struct{})}, nil
}

// Served tells whether the cluster serves the kind. Reading may still fail: then the API does not answer, and the
// objects are unknown.
func (k *Kind) Served() bool { return k.apis.Serves(k.kind) }

// Get reads an object from memory. The error is a meta.NoKindMatchError if the cluster does not serve the kind.
func (k *Kind) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	reader, err := k.reader()
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, o, options...)
}

// List reads objects from memory. The error is a meta.NoKindMatchError if the cluster does not serve the kind.
func (k *Kind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	reader, err := k.reader()
	if err != nil {
		return err
	}
	return reader.List(ctx, list, options...)
}

func (k *Kind) reader() (client.Reader, error) {
	if !k.Served() {
		return nil, &meta.NoKindMatchError{GroupKind: k.kind.GroupKind(), SearchedVersions: []string{k.kind.Version}}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.filled == nil {
		return nil, fmt.Errorf("objects of %s in %s are not known yet: the API did not answer so far", k.kind.Kind, k.kind.GroupVersion())
	}
	return k.filled, nil
}

// Start follows the kind until ctx is done. A controller calls it.
func (k *Kind) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for ctx.Err() == nil {
			if !k.Served() {
				k.settle()
				k.apis.await(ctx, k.kind, true)
				continue
			}
			k.whileServed(ctx, queue)
			k.wake(ctx, queue)
		}
	}()
	return nil
}

// WaitForSync returns when the objects are known, if the kind is served, or when that takes too long. A controller
// calls it.
func (k *Kind) WaitForSync(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-k.ready:
	case <-patient.Done():
		log.FromContext(ctx).Info("Starting without an optional API, which does not answer", "kind", k.kind.String())
	}
	return ctx.Err()
}

// String describes the source in logs.
func (k *Kind) String() string { return "optional kind source: " + k.kind.String() }

// whileServed fills a cache and passes its events on, until the kind is no longer served or ctx is done.
func (k *Kind) whileServed(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		k.apis.await(ctx, k.kind, false)
		cancel()
	}()
	objects, err := k.newCache(ctx)
	if err != nil {
		return // ctx is done
	}
	go func() {
		if err := objects.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Running the cache of an optional kind", "kind", k.kind.String())
		}
	}()
	events := source.Kind(objects, k.options.Object, k.options.Handler, k.options.Predicates...)
	if err := events.Start(ctx, queue); err != nil {
		log.FromContext(ctx).Error(err, "Watching an optional kind", "kind", k.kind.String())
	}
	if err := events.WaitForSync(ctx); err == nil {
		k.fill(objects)
		k.settle()
		k.wake(ctx, queue)
	}
	<-ctx.Done()
	k.fill(nil)
}

// newCache makes the cache. It fails only when ctx is done: discovery may lag behind the definition of an API, or its
// server may be down.
func (k *Kind) newCache(ctx context.Context) (cache.Cache, error) {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 20, Cap: 30 * time.Second}
	var objects cache.Cache
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		objects, err = cache.New(k.apis.config, cache.Options{
			HTTPClient: k.apis.httpClient, Mapper: k.apis.mapper, Scheme: k.options.Scheme,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{k.options.Object: k.options.Cache},
		})
		for name, extract := range k.options.Indexes {
			if err == nil {
				err = objects.IndexField(ctx, k.options.Object, name, extract)
			}
		}
		if err != nil {
			log.FromContext(ctx).Info("Waiting for an optional API", "kind", k.kind.String(), "reason", err.Error())
		}
		return err == nil, nil
	})
	return objects, err
}

func (k *Kind) fill(reader client.Reader) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.filled = reader
}

// settle lets the controller start.
func (k *Kind) settle() { k.once.Do(func() { close(k.ready) }) }

// wake asks for what depends on whether the kind is served.
func (k *Kind) wake(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if ctx.Err() != nil {
		return
	}
	for _, request := range k.options.Changed(ctx) {
		queue.Add(request)
	}
}
