// Package platform alone observes which optional APIs the cluster serves, such as those of OpenShift, and notifies the
// controllers that use such an API when the cluster starts or stops serving it.
//
// The package watches the CustomResourceDefinition and the APIService of an API, not the API itself: a kind is served
// while one of them exists. So an aggregated API server that is unavailable for a moment is not taken for one that was
// removed, and an API that the cluster does not serve costs one idle watch. The package must never write, and nothing
// may fail because an optional API is absent.
package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// definitions has, for each optional kind, the resources of what defines it, and the version to use.
	definitions map[schema.GroupVersionKind]map[schema.GroupVersionResource]string
	// changed is closed and replaced when the cluster starts or stops serving a version of a kind.
	changed chan struct{}
}

// These resources have the objects that can define an API, unless Kubernetes itself does.
var (
	byCRD        = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	byAPIService = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	byKubernetes = schema.GroupVersionResource{}
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
		definitions: map[schema.GroupVersionKind]map[schema.GroupVersionResource]string{}, changed: make(chan struct{}),
	}
	optional := append(kinds(), backendKinds...)
	for _, o := range optional {
		a.definitions[o.GroupVersionKind] = map[schema.GroupVersionResource]string{}
		if o.BuiltIn {
			if err := a.discover(ctx, o); err != nil {
				return nil, err
			}
		}
	}
	return a, a.follow(ctx, reader, slices.DeleteFunc(optional, func(o OptionalKind) bool { return o.BuiltIn }))
}

// discoveryInterval is how often it is found out whether an upgrade of Kubernetes has added a kind.
const discoveryInterval = 10 * time.Minute

// discover finds out whether Kubernetes itself serves a kind, and follows that in time until it does.
func (a *APIs) discover(ctx context.Context, o OptionalKind) error {
	serves := func(ctx context.Context) (bool, error) {
		_, err := a.mapper.RESTMapping(o.GroupKind(), o.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("finding out whether the API server serves %s: %w", o.GroupVersionKind, err)
		}
		a.set(ctx, o.GroupVersionKind, byKubernetes, o.Version)
		return true, nil
	}
	served, err := serves(ctx)
	if err == nil && !served {
		go func() {
			_ = wait.PollUntilContextCancel(ctx, discoveryInterval, false, func(ctx context.Context) (bool, error) {
				served, _ := serves(ctx) // an error may pass
				return served, nil
			})
		}()
	}
	return err
}

// Serves reports whether the cluster serves the kind, which must be an optional kind that is watched.
func (a *APIs) Serves(kind schema.GroupVersionKind) bool {
	version, _ := a.state(kind)
	return version != ""
}

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
func versionOf(definitions map[schema.GroupVersionResource]string) string {
	return cmp.Or(definitions[byKubernetes], definitions[byAPIService], definitions[byCRD])
}

// awaitOther waits until the version of the kind to use is another one, or until ctx is done.
func (a *APIs) awaitOther(ctx context.Context, kind schema.GroupVersionKind, version string) {
	for {
		now, changed := a.state(kind)
		if now != version {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// set records the version in which an object of this resource defines the kind, or "" if none does.
func (a *APIs) set(ctx context.Context, kind schema.GroupVersionKind, resource schema.GroupVersionResource,
	version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := versionOf(a.definitions[kind])
	a.definitions[kind][resource] = version
	if now := versionOf(a.definitions[kind]); now != before {
		log.FromContext(ctx).Info("Observed an optional API", "group", kind.Group, "version", cmp.Or(now, before),
			"kind", kind.Kind, "served", now != "")
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

func (a *APIs) follow(ctx context.Context, reader dynamic.Interface, optional []OptionalKind) error {
	var lastErr atomic.Pointer[error] // of the watches
	var synced []toolscache.InformerSynced
	for _, o := range optional {
		resources := []schema.GroupVersionResource{byCRD}
		if o.Aggregated {
			resources = append(resources, byAPIService)
		}
		for _, resource := range resources {
			hasSynced, err := a.start(ctx, reader, o, resource, &lastErr)
			if err != nil {
				return fmt.Errorf("watching %s for %s: %w", resource.Resource, o.GroupVersionKind, err)
			}
			synced = append(synced, hasSynced)
		}
	}
	syncing, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !toolscache.WaitForCacheSync(syncing.Done(), synced...) {
		return fmt.Errorf("finding out which optional APIs the cluster serves: the API server did not answer within "+
			"%s: %w", syncTimeout, *cmp.Or(lastErr.Load(), new(context.DeadlineExceeded)))
	}
	return nil
}

type finding struct {
	metav1.ObjectMeta
	version string
}

// start starts to watch the object of this resource that may define the kind, until ctx is done.
func (a *APIs) start(
	ctx context.Context, reader dynamic.Interface, o OptionalKind, resource schema.GroupVersionResource,
	lastErr *atomic.Pointer[error],
) (toolscache.InformerSynced, error) {
	name, versions, definedVersion := o.Resource+"."+o.Group, append([]string{o.Version}, o.OtherVersions...),
		established
	if resource == byAPIService {
		name, definedVersion = o.Version+"."+o.Group, aggregated
	}
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := dynamicinformer.NewFilteredDynamicInformer(reader, resource, metav1.NamespaceAll, 0,
		toolscache.Indexers{}, func(options *metav1.ListOptions) { options.FieldSelector = byName }).Informer()
	unstarted := errors.Join(
		informer.SetTransform(func(read any) (any, error) {
			u, ok := read.(*unstructured.Unstructured)
			if !ok {
				return read, nil // a tombstone of what was transformed before
			}
			version, err := definedVersion(u, versions)
			return &finding{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()},
				version: version}, err
		}),
		informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
			lastErr.Store(new(fmt.Errorf("watching %s %s: %w", resource.Resource, name, err)))
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}),
	)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { a.set(ctx, o.GroupVersionKind, resource, now.(*finding).version) },
		UpdateFunc: func(_, now any) { a.set(ctx, o.GroupVersionKind, resource, now.(*finding).version) },
		DeleteFunc: func(any) { a.set(ctx, o.GroupVersionKind, resource, "") },
	})
	if err := errors.Join(unstarted, err); err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return registration.HasSynced, nil
}

// established returns the first of the versions that the API server serves of a CustomResourceDefinition, or "". One
// that is being deleted counts as not served: the API server accepts no new objects.
func established(u *unstructured.Unstructured, versions []string) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
		return "", fmt.Errorf("decoding CustomResourceDefinition %s: %w", u.GetName(), err)
	}
	if crd.DeletionTimestamp != nil || !apihelpers.IsCRDConditionTrue(&crd, apiextensionsv1.Established) {
		return "", nil
	}
	for _, version := range versions {
		if apihelpers.HasServedCRDVersion(&crd, version) {
			return version, nil
		}
	}
	return "", nil
}

// aggregated returns the first of the versions if an APIService refers to an aggregated API server, which may be
// unavailable, and otherwise "". An APIService without a service is one of CustomResourceDefinitions.
func aggregated(u *unstructured.Unstructured, versions []string) (string, error) {
	_, found, err := unstructured.NestedMap(u.Object, "spec", "service")
	if err != nil || !found || u.GetDeletionTimestamp() != nil {
		return "", err
	}
	return versions[0], nil
}

type OptionalKind struct {
	schema.GroupVersionKind
	// OtherVersions are other versions of the kind, the preferred one first, which are used if the cluster does not
	// serve that of GroupVersionKind. The fields that the operator uses are the same in all of them.
	OtherVersions []string
	// Resource is the plural name of the kind in API paths. Resource and group form the name of the
	// CustomResourceDefinition that may define the kind.
	Resource string
	// Aggregated states that on some platforms an aggregated API server serves the group version.
	Aggregated bool
	// BuiltIn states that Kubernetes itself serves the kind, on every cluster or in later versions. No object is
	// watched for it: see discover.
	BuiltIn bool
}

// kinds returns the optional kinds that the operator uses, apart from those of the backends that expose Listeners. The
// operator's role lists the CustomResourceDefinitions and APIServices of all of them: see config/rbac/operator.yaml.
func kinds() []OptionalKind {
	return []OptionalKind{
		{GroupVersionKind: names.KindSecurityContextConstraints, Resource: "securitycontextconstraints"},
		{GroupVersionKind: names.KindClusterVersion, Resource: "clusterversions"},
		{GroupVersionKind: names.KindAPIServer, Resource: "apiservers"},
		{GroupVersionKind: names.KindConsoleYAMLSample, Resource: "consoleyamlsamples"},
		{GroupVersionKind: names.KindConsoleQuickStart, Resource: "consolequickstarts"},
		{GroupVersionKind: names.KindServiceMonitor, Resource: "servicemonitors"},
		{GroupVersionKind: names.KindPrometheusRule, Resource: "prometheusrules"},
		{GroupVersionKind: names.KindCertificate, Resource: "certificates"},
		{GroupVersionKind: names.KindDNSEndpoint, Resource: "dnsendpoints"},
		{GroupVersionKind: names.KindOperatorCondition, Resource: "operatorconditions"},
		{GroupVersionKind: names.KindPodCertificateRequest, Resource: "podcertificaterequests", BuiltIn: true},
		{GroupVersionKind: names.KindClusterTrustBundle, Resource: "clustertrustbundles", BuiltIn: true},
	}
}
