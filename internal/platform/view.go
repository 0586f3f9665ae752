package platform

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// viewSyncTimeout is how long the start of a controller waits for the objects of an optional kind. An API that exists
// but is unavailable must not keep the operator from its other work.
const viewSyncTimeout = 10 * time.Second

type ViewOptions struct {
	// Scheme knows the type of Object, and that of its list, in the preferred version of the kind. If the cluster
	// serves another version only, its objects are read into the same types.
	Scheme *runtime.Scheme
	// Object is an empty object of the kind: typed, unstructured or metadata only.
	Object  client.Object
	Cache   cache.ByObject
	Indexes map[string]client.IndexerFunc
	// Handler and Predicates map changes of the objects to requests, as in any watch.
	Handler    handler.EventHandler
	Predicates []predicate.Predicate
	// Changed returns the requests for the case that the cluster starts or stops serving the kind while the controller
	// runs. At its start, a controller reconciles everything anyway.
	Changed func(context.Context) []reconcile.Request
}

// View is the view that one controller has of an optional kind: a source of events, and a reader of objects. Its cache
// exists while the cluster serves the kind. Reading fails without it, and while the API is unavailable.
type View struct {
	apis    *APIs
	kind    schema.GroupVersionKind
	options ViewOptions
	// started is closed when the controller need not wait any more: the cache has synced for the first time, the
	// cluster does not serve the kind, or the API does not answer.
	started chan struct{}
	endWait func() // closes started
	// objects is the cache, or nil while it does not exist or has not synced.
	objects atomic.Pointer[cache.Cache]
}

var _ source.SyncingSource = &View{}

// View returns a view for one controller, which must watch it with WatchesRawSource.
func (a *APIs) View(options ViewOptions) (*View, error) {
	kind, err := apiutil.GVKForObject(options.Object, options.Scheme)
	if err != nil {
		return nil, fmt.Errorf("looking up the kind of %T: %w", options.Object, err)
	}
	a.state(kind) // panics if the kind is not watched
	started := make(chan struct{})
	return &View{apis: a, kind: kind, options: options, started: started,
		endWait: sync.OnceFunc(func() { close(started) })}, nil
}

func (v *View) Version() string {
	version, _ := v.apis.state(v.kind)
	return version
}

// Get reads an object from the cache. The error is a meta.NoKindMatchError if the cluster does not serve the kind.
func (v *View) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	reader, err := v.reader()
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, o, options...)
}

// List reads objects from the cache. The error is a meta.NoKindMatchError if the cluster does not serve the kind.
func (v *View) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	reader, err := v.reader()
	if err != nil {
		return err
	}
	return reader.List(ctx, list, options...)
}

func (v *View) reader() (client.Reader, error) {
	if v.Version() == "" {
		return nil, &meta.NoKindMatchError{GroupKind: v.kind.GroupKind(), SearchedVersions: []string{v.kind.Version}}
	}
	objects := v.objects.Load()
	if objects == nil {
		return nil, fmt.Errorf("objects of %s in %s are not known yet: the API has not answered so far", v.kind.Kind,
			v.kind.GroupVersion())
	}
	return *objects, nil
}

// Start implements source.Source. It watches the kind until ctx is done.
func (v *View) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for ctx.Err() == nil {
			version := v.Version()
			if version == "" {
				v.endWait()
				v.apis.awaitOther(ctx, v.kind, "")
				continue
			}
			v.whileServed(ctx, version, queue)
			v.enqueueChanged(ctx, queue)
		}
	}()
	return nil
}

// WaitForSync returns when the cache has synced, when the cluster does not serve the kind, or after viewSyncTimeout.
func (v *View) WaitForSync(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, viewSyncTimeout)
	defer cancel()
	select {
	case <-v.started:
	case <-waiting.Done():
		v.endWait()
		log.FromContext(ctx).Info("Starting without the objects of an optional API, which does not answer", "kind",
			v.kind.String())
	}
	return ctx.Err()
}

func (v *View) String() string { return "optional kind source: " + v.kind.String() }

// whileServed runs a cache and passes its events on, until the version to use is another one, or ctx is done.
func (v *View) whileServed(ctx context.Context, version string,
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		v.apis.awaitOther(ctx, v.kind, version)
		cancel()
	}()
	objects, err := v.newCache(ctx, version)
	if err != nil {
		if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Making the cache of an optional kind", "kind", v.kind.String())
		}
		<-ctx.Done()
		return
	}
	go func() {
		if err := objects.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Running the cache of an optional kind", "kind", v.kind.String())
		}
	}()
	events := source.Kind(objects, v.options.Object, v.options.Handler, v.options.Predicates...)
	if err := events.Start(ctx, queue); err != nil {
		log.FromContext(ctx).Error(err, "Watching an optional kind", "kind", v.kind.String())
	}
	if err := events.WaitForSync(ctx); err == nil {
		v.objects.Store(&objects)
		select {
		case <-v.started: // without the objects
			v.enqueueChanged(ctx, queue)
		default:
			v.endWait()
		}
	}
	<-ctx.Done()
	v.objects.Store(nil)
}

// newCache retries until ctx is done: discovery may lag behind a CustomResourceDefinition, or the API be unavailable.
func (v *View) newCache(ctx context.Context, version string) (cache.Cache, error) {
	scheme, err := v.schemeOf(version)
	if err != nil {
		return nil, err
	}
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 20, Cap: 30 * time.Second}
	var objects cache.Cache
	err = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		objects, err = cache.New(v.apis.config, cache.Options{
			HTTPClient: v.apis.httpClient, Mapper: v.apis.mapper, Scheme: scheme,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{v.options.Object: v.options.Cache},
		})
		for name, extract := range v.options.Indexes {
			if err == nil {
				err = objects.IndexField(ctx, v.options.Object, name, extract)
			}
		}
		if err != nil {
			log.FromContext(ctx).Info("Waiting for an optional API", "kind", v.kind.String(), "reason", err.Error())
		}
		return err == nil, nil
	})
	return objects, err
}

func (v *View) schemeOf(version string) (*runtime.Scheme, error) {
	if version == v.kind.Version {
		return v.options.Scheme, nil
	}
	listKind := v.kind.Kind + "List"
	list, err := v.options.Scheme.New(v.kind.GroupVersion().WithKind(listKind))
	if err != nil {
		return nil, fmt.Errorf("making a list of kind %s: %w", v.kind.Kind, err)
	}
	group, scheme := schema.GroupVersion{Group: v.kind.Group, Version: version}, runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind(v.kind.Kind), v.options.Object)
	scheme.AddKnownTypeWithName(group.WithKind(listKind), list)
	metav1.AddToGroupVersion(scheme, group)
	return scheme, nil
}

// enqueueChanged enqueues the requests that depend on whether the cluster serves the kind.
func (v *View) enqueueChanged(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if ctx.Err() != nil {
		return
	}
	for _, request := range v.options.Changed(ctx) {
		queue.Add(request)
	}
}
