// Package platform observes which optional APIs the cluster serves: those of OpenShift, of the Prometheus operator and
// of the Operator Lifecycle Manager. No other package does. It notifies the controllers that use such an API when the
// cluster starts or stops serving it.
//
// The package watches the CustomResourceDefinition and the APIService of an API, not the API itself: a kind is served
// while one of them exists. So an aggregated API server that is unavailable for a moment is not taken for one that was
// removed, and an API that the cluster does not serve costs one idle watch. The package must never write, and nothing
// may fail because an optional API is absent.
package platform

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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

// syncTimeout is how long Watch waits for the API server.
const syncTimeout = 30 * time.Second

// APIs reports which optional APIs the cluster serves. It is safe for concurrent use.
type APIs struct {
	config     *rest.Config
	httpClient *http.Client
	mapper     meta.RESTMapper

	mu sync.Mutex
	// definitions has, for each optional kind, what defines it, and the version to use.
	definitions map[schema.GroupVersionKind]map[origin]string
	// changed is closed and replaced when the cluster starts or stops serving a version of a kind.
	changed chan struct{}
}

// origin is what can define an API: the kind of an object, or Kubernetes itself.
type origin string

const (
	byCRD        origin = "CustomResourceDefinition"
	byAPIService origin = "APIService"
	byKubernetes origin = "Kubernetes"
)

// Watch returns which optional kinds the cluster serves now, and follows changes until ctx is done, even if it returns
// an error. The kinds are those that the operator always uses and the given ones, which are those of the backends.
func Watch(ctx context.Context, config *rest.Config, backendKinds ...OptionalKind) (*APIs, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the API server: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a mapper of kinds to resources: %w", err)
	}
	reader, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the API server: %w", err)
	}
	a := &APIs{
		config: config, httpClient: httpClient, mapper: mapper,
		definitions: map[schema.GroupVersionKind]map[origin]string{}, changed: make(chan struct{}),
	}
	var watched []OptionalKind
	for _, o := range append(kinds(), backendKinds...) {
		a.definitions[o.GroupVersionKind] = map[origin]string{}
		if o.BuiltIn {
			a.definitions[o.GroupVersionKind][byKubernetes] = o.Version
			continue
		}
		watched = append(watched, o)
	}
	if err := a.follow(ctx, reader, watched); err != nil {
		return nil, err
	}
	return a, nil
}

// Serves reports whether the cluster serves the kind, which must be an optional kind that is watched.
func (a *APIs) Serves(kind schema.GroupVersionKind) bool {
	version, _ := a.state(kind)
	return version != ""
}

// OpenShift reports whether the cluster is an OpenShift cluster.
func (a *APIs) OpenShift() bool { return a.Serves(names.KindClusterVersion) }

// state returns the version of the kind to use, or "" if the cluster does not serve the kind, and a channel that is
// closed when that changes for this or another kind.
func (a *APIs) state(kind schema.GroupVersionKind) (version string, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	definitions, known := a.definitions[kind]
	if !known {
		panic(fmt.Sprintf("%s is not one of the optional kinds that are watched", kind))
	}
	return versionOf(definitions), a.changed
}

// versionOf returns the version that is defined, or "". An aggregated API server takes precedence over a
// CustomResourceDefinition, as in the API server.
func versionOf(definitions map[origin]string) string {
	return cmp.Or(definitions[byKubernetes], definitions[byAPIService], definitions[byCRD])
}

// await waits until done returns true for the version of the kind, and returns true, or until ctx is done, and returns
// false.
func (a *APIs) await(ctx context.Context, kind schema.GroupVersionKind, done func(version string) bool) bool {
	for {
		version, changed := a.state(kind)
		if done(version) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// set records the version in which an object of this origin defines the kind, or "" if none does.
func (a *APIs) set(ctx context.Context, kind schema.GroupVersionKind, definedBy origin, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := versionOf(a.definitions[kind])
	a.definitions[kind][definedBy] = version
	if now := versionOf(a.definitions[kind]); now != before {
		log.FromContext(ctx).Info("Observed an optional API", "group", kind.Group, "version", cmp.Or(now, before), "kind", kind.Kind, "served", now != "")
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// follow starts the watches, and returns when all of them have synced.
func (a *APIs) follow(ctx context.Context, reader dynamic.Interface, optional []OptionalKind) error {
	var lastErr atomic.Pointer[error] // of the watches
	var synced []toolscache.InformerSynced
	for _, o := range optional {
		crd := watched{
			kind: o.GroupVersionKind, origin: byCRD, name: o.Resource + "." + o.Group,
			resource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			defines:  func(u *unstructured.Unstructured) (string, error) { return established(u, o.versions()) },
		}
		service := watched{
			kind: o.GroupVersionKind, origin: byAPIService, name: o.Version + "." + o.Group,
			resource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
			defines: func(u *unstructured.Unstructured) (string, error) {
				if served, err := aggregated(u); err != nil || !served {
					return "", err
				}
				return o.Version, nil
			},
		}
		watches := []watched{crd}
		if o.Aggregated {
			watches = append(watches, service)
		}
		for _, w := range watches {
			hasSynced, err := a.start(ctx, reader, w, &lastErr)
			if err != nil {
				return fmt.Errorf("watching %s %s: %w", w.origin, w.name, err)
			}
			synced = append(synced, hasSynced)
		}
	}
	syncing, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !toolscache.WaitForCacheSync(syncing.Done(), synced...) {
		return fmt.Errorf("finding out which optional APIs the cluster serves: the API server did not answer within %s: %w", syncTimeout, *cmp.Or(lastErr.Load(), new(context.DeadlineExceeded)))
	}
	return nil
}

// watched is one object that may define an optional kind.
type watched struct {
	kind     schema.GroupVersionKind
	origin   origin
	resource schema.GroupVersionResource
	name     string
	// defines returns the version that the object defines, or "".
	defines func(*unstructured.Unstructured) (version string, _ error)
}

// finding is what the informer keeps of a watched object.
type finding struct {
	metav1.ObjectMeta
	version string
}

// start starts to watch one object by its name, until ctx is done.
func (a *APIs) start(ctx context.Context, reader dynamic.Interface, w watched, lastErr *atomic.Pointer[error]) (toolscache.InformerSynced, error) {
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	informer := dynamicinformer.NewFilteredDynamicInformer(reader, w.resource, metav1.NamespaceAll, 0, toolscache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = byName }).Informer()
	if err := informer.SetTransform(func(o any) (any, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil // a tombstone of what was transformed before
		}
		version, err := w.defines(u)
		return &finding{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}, version: version}, err
	}); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		lastErr.Store(new(fmt.Errorf("watching %s %s: %w", w.origin, w.name, err)))
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}); err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.set(ctx, w.kind, w.origin, o.(*finding).version) },
		UpdateFunc: func(_, o any) { a.set(ctx, w.kind, w.origin, o.(*finding).version) },
		DeleteFunc: func(any) { a.set(ctx, w.kind, w.origin, "") },
	})
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return registration.HasSynced, nil
}

// established returns the first of the versions that the API server serves of a CustomResourceDefinition, or "". While
// a CustomResourceDefinition is being deleted, the API server still serves it for a moment but accepts no new objects;
// it counts as not served.
func established(u *unstructured.Unstructured, versions []string) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
		return "", fmt.Errorf("decoding CustomResourceDefinition %s: %w", u.GetName(), err)
	}
	isEstablished := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if crd.DeletionTimestamp != nil || !isEstablished {
		return "", nil
	}
	served := slices.IndexFunc(versions, func(version string) bool {
		return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served })
	})
	if served < 0 {
		return "", nil
	}
	return versions[served], nil
}

// aggregated reports whether an APIService refers to an aggregated API server, which may be unavailable. An APIService
// without a service is one of CustomResourceDefinitions.
func aggregated(u *unstructured.Unstructured) (bool, error) {
	_, found, err := unstructured.NestedMap(u.Object, "spec", "service")
	return found && u.GetDeletionTimestamp() == nil, err
}
