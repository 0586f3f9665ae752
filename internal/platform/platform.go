// Package platform knows which optional APIs the cluster serves: those of OpenShift, of the Prometheus operator and of
// the Operator Lifecycle Manager. It is the one place that looks; everything else asks it, and is woken when the answer
// changes.
//
// It reads what defines an API, not the API: a kind is served while there is a CustomResourceDefinition or an
// aggregated APIService for it. So an aggregated API server that is down for a moment is not mistaken for one that was
// removed, and an absent API costs an idle watch and no more. It must never write, and nothing may fail because an
// optional API is absent.
package platform

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/names"
)

// firstLook is how long Watch waits for the API server.
const firstLook = 30 * time.Second

// APIs tells which optional APIs the cluster serves. It is safe for concurrent use.
type APIs struct {
	config     *rest.Config
	httpClient *http.Client
	mapper     meta.RESTMapper

	mu sync.Mutex
	// defined says of each optional kind what defines it.
	defined map[schema.GroupVersionKind]map[origin]bool
	// changed is closed, and replaced, when a kind starts or stops being served.
	changed chan struct{}
}

// origin is a kind of object that can define an API.
type origin string

const (
	byDefinition origin = "CustomResourceDefinition"
	byAggregator origin = "APIService"
)

// Watch returns which optional kinds the cluster serves now, and follows changes until ctx is done, even if it returns
// an error. The kinds are those that the operator always uses and the given ones, which are those of the backends.
func Watch(ctx context.Context, config *rest.Config, backendKinds ...OptionalKind) (*APIs, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("mapping kinds to resources: %w", err)
	}
	reader, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	a := &APIs{
		config: config, httpClient: httpClient, mapper: mapper,
		defined: map[schema.GroupVersionKind]map[origin]bool{}, changed: make(chan struct{}),
	}
	optional := append(kinds(), backendKinds...)
	for _, o := range optional {
		a.defined[o.GroupVersionKind] = map[origin]bool{}
	}
	if err := a.follow(ctx, reader, optional); err != nil {
		return nil, err
	}
	return a, nil
}

// Serves tells whether the cluster serves the kind, which must be one of the optional ones.
func (a *APIs) Serves(kind schema.GroupVersionKind) bool {
	serves, _ := a.look(kind)
	return serves
}

// OpenShift tells whether the cluster is one of OpenShift.
func (a *APIs) OpenShift() bool { return a.Serves(names.KindClusterVersion) }

// look returns whether the kind is served, and a channel that is closed when that or another answer changes.
func (a *APIs) look(kind schema.GroupVersionKind) (serves bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	origins, known := a.defined[kind]
	if !known {
		panic(fmt.Sprintf("%s is not among the optional kinds of package platform", kind))
	}
	return len(origins) > 0, a.changed
}

// await returns when the kind is served, or no longer served, as wanted, or when ctx is done. It tells which.
func (a *APIs) await(ctx context.Context, kind schema.GroupVersionKind, want bool) bool {
	for {
		serves, changed := a.look(kind)
		if serves == want {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// set notes whether something defines the kind.
func (a *APIs) set(ctx context.Context, kind schema.GroupVersionKind, by origin, defines bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.defined[kind]) > 0
	if defines {
		a.defined[kind][by] = true
	} else {
		delete(a.defined[kind], by)
	}
	if now := len(a.defined[kind]) > 0; now != before {
		log.FromContext(ctx).Info("Looked at what the cluster serves", "group", kind.Group, "version", kind.Version, "kind", kind.Kind, "served", now)
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// follow starts the watches, and returns when each has seen what there is.
func (a *APIs) follow(ctx context.Context, reader dynamic.Interface, optional []OptionalKind) error {
	lastErr := &lastError{}
	var synced []toolscache.InformerSynced
	for _, o := range optional {
		definition := watched{
			kind: o.GroupVersionKind, origin: byDefinition, name: o.Resource + "." + o.Group,
			resource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			defines:  func(u *unstructured.Unstructured) (bool, error) { return established(u, o.Version) },
		}
		service := watched{
			kind: o.GroupVersionKind, origin: byAggregator, name: o.Version + "." + o.Group,
			resource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
			defines:  aggregated,
		}
		watches := []watched{definition}
		if o.Aggregated {
			watches = append(watches, service)
		}
		for _, w := range watches {
			hasSynced, err := a.start(ctx, reader, w, lastErr)
			if err != nil {
				return fmt.Errorf("watching %s %s: %w", w.origin, w.name, err)
			}
			synced = append(synced, hasSynced)
		}
	}
	first, stop := context.WithTimeout(ctx, firstLook)
	defer stop()
	if !toolscache.WaitForCacheSync(first.Done(), synced...) {
		return fmt.Errorf("looking at which optional APIs the cluster serves: no answer in %s: %w", firstLook, lastErr.get())
	}
	return nil
}

// watched is one object that may define an optional kind.
type watched struct {
	kind     schema.GroupVersionKind
	origin   origin
	resource schema.GroupVersionResource
	name     string
	defines  func(*unstructured.Unstructured) (bool, error)
}

// finding is what is kept in memory of a watched object.
type finding struct {
	metav1.ObjectMeta
	defines bool
}

// start watches one object by its name, until ctx is done.
func (a *APIs) start(ctx context.Context, reader dynamic.Interface, w watched, lastErr *lastError) (toolscache.InformerSynced, error) {
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	informer := dynamicinformer.NewFilteredDynamicInformer(reader, w.resource, metav1.NamespaceAll, 0, toolscache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = byName }).Informer()
	if err := informer.SetTransform(func(o any) (any, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil // a tombstone of what was transformed before
		}
		defines, err := w.defines(u)
		return &finding{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, defines: defines}, err
	}); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		lastErr.set(fmt.Errorf("watching %s %s: %w", w.origin, w.name, err))
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}); err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.set(ctx, w.kind, w.origin, o.(*finding).defines) },
		UpdateFunc: func(_, o any) { a.set(ctx, w.kind, w.origin, o.(*finding).defines) },
		DeleteFunc: func(any) { a.set(ctx, w.kind, w.origin, false) },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return registration.HasSynced, nil
}

// established tells whether a CustomResourceDefinition makes the API server serve the version. One that is being
// deleted does so for a moment longer, but takes no new object.
func established(u *unstructured.Unstructured, version string) (bool, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &definition); err != nil {
		return false, fmt.Errorf("decoding CustomResourceDefinition %s: %w", u.GetName(), err)
	}
	if definition.DeletionTimestamp != nil {
		return false, nil
	}
	served := false
	for i := range definition.Spec.Versions {
		served = served || definition.Spec.Versions[i].Name == version && definition.Spec.Versions[i].Served
	}
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return served, nil
		}
	}
	return false, nil
}

// aggregated tells whether an APIService leads to an API server of its own, whether that answers or not. One without a
// service belongs to CustomResourceDefinitions.
func aggregated(u *unstructured.Unstructured) (bool, error) {
	_, found, err := unstructured.NestedMap(u.Object, "spec", "service")
	return found && u.GetDeletionTimestamp() == nil, err
}

// lastError remembers why a watch did not start.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return context.DeadlineExceeded
	}
	return l.err
}
