package platform_test

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	routev1 "github.com/openshift/api/route/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/tlsprofile"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

var (
	route     = routev1.GroupVersion.WithKind("Route")
	routeKind = platform.OptionalKind{GroupVersionKind: route, Resource: "routes", Aggregated: true}
)

// watch returns the APIs of the API server, from which it has removed the optional CRDs, and a client.
func watch(t *testing.T) (*platform.APIs, client.Client) {
	t.Helper()
	c := apiserver.Client(t)
	crds.Remove(t, c, crds.Routes, crds.ServiceMonitors)
	apis, err := platform.Watch(t.Context(), apiserver.Config(t), routeKind)
	check.Must(t, err)
	return apis, c
}

func TestServesFollowsTheCRD(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	serves := func() bool { return apis.Serves(names.KindServiceMonitor) }
	g.Expect(serves()).To(BeFalse())
	for range 2 {
		crds.Install(t, c, crds.ServiceMonitors)
		g.Eventually(serves, apiserver.Timeout, "10ms").Should(BeTrue())
		g.Expect(apis.Serves(route)).To(BeFalse())
		again, err := platform.Watch(t.Context(), apiserver.Config(t), routeKind)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again.Serves(names.KindServiceMonitor)).To(BeTrue(), "after Watch returns")
		crds.Remove(t, c, crds.ServiceMonitors)
		g.Eventually(serves, apiserver.Timeout, "10ms").Should(BeFalse())
	}
}

func TestCRDWithoutTheVersionDoesNotServeTheKind(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	other := crds.Read(t, crds.ServiceMonitors)
	versions, _, err := unstructured.NestedSlice(other.Object, "spec", "versions")
	g.Expect(err).NotTo(HaveOccurred())
	versions[0].(map[string]any)["name"] = "v1beta1"
	g.Expect(unstructured.SetNestedSlice(other.Object, versions, "spec", "versions")).To(Succeed())
	g.Expect(c.Create(t.Context(), other)).To(Succeed())
	g.Eventually(func() bool {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(other), other)).To(Succeed())
		return strings.Contains(toJSON(g, other), `"type":"Established"`)
	}, apiserver.Timeout, "10ms").Should(BeTrue())
	g.Consistently(func() bool { return apis.Serves(names.KindServiceMonitor) }, "300ms", "10ms").Should(BeFalse())
	crds.Remove(t, c, crds.ServiceMonitors)
}

func toJSON(g Gomega, u *unstructured.Unstructured) string {
	raw, err := u.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// A CRD that is being deleted exists until the last object of the kind is removed; here a finalizer blocks that.
func TestCRDThatIsBeingDeletedDoesNotServeTheKind(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	crds.Install(t, c, crds.ServiceMonitors)
	g.Eventually(func() bool { return apis.Serves(names.KindServiceMonitor) }, apiserver.Timeout, "10ms").Should(BeTrue())
	blocked := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"endpoints": []any{}, "selector": map[string]any{}}}}
	blocked.SetGroupVersionKind(names.KindServiceMonitor)
	blocked.SetNamespace(apiserver.Namespace(t))
	blocked.SetName("blocked")
	blocked.SetFinalizers([]string{"example.com/block"})
	g.Eventually(func() error { return c.Create(t.Context(), blocked) }, apiserver.Timeout, "50ms").Should(Succeed())
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: string(crds.ServiceMonitors)}}
	admin, err := client.New(apiserver.Config(t), client.Options{Scheme: crdScheme(g)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Delete(t.Context(), crd)).To(Succeed())
	g.Eventually(func() bool { return apis.Serves(names.KindServiceMonitor) }, apiserver.Timeout, "10ms").Should(BeFalse())
	g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(crd), crd)).To(Succeed(), "the CRD still exists")
	g.Expect(c.Patch(t.Context(), blocked, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	crds.Remove(t, c, crds.ServiceMonitors)
}

func crdScheme(g Gomega) *runtime.Scheme {
	scheme := runtime.NewScheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	return scheme
}

// OpenShift's Routes are unavailable in this way while openshift-apiserver restarts.
func TestAggregatedAPIThatIsUnavailableIsStillServed(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	service := aggregateRoutes(t, c)
	g.Eventually(func() bool { return apis.Serves(route) }, apiserver.Timeout, "10ms").Should(BeTrue())
	view := routes(g, apis)
	g.Expect(view.Version()).To(Equal("v1"))
	err := view.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &routev1.Route{})
	g.Expect(err).To(MatchError(ContainSubstring("has not answered")))
	g.Expect(meta.IsNoMatchError(err)).To(BeFalse())
	g.Expect(c.Delete(t.Context(), service)).To(Succeed())
	g.Eventually(func() bool { return apis.Serves(route) }, apiserver.Timeout, "10ms").Should(BeFalse())
}

// aggregateRoutes creates an APIService for Routes whose API server does not exist, as soon as the APIService of their
// CRD is removed.
func aggregateRoutes(t *testing.T, c client.Client) *unstructured.Unstructured {
	t.Helper()
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.route.openshift.io"},
		"spec": map[string]any{
			"group": "route.openshift.io", "version": "v1", "groupPriorityMinimum": int64(9900), "versionPriority": int64(15),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "nowhere", "name": "api", "port": int64(443)},
		},
	}}
	g := NewWithT(t)
	g.Eventually(func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(service), service.DeepCopy()))
	}, apiserver.Timeout, "20ms").Should(BeTrue())
	g.Expect(c.Create(t.Context(), service)).To(Succeed())
	return service
}

// A controller starts at once if the cluster does not serve the kind, with the objects if it does, and after a timeout
// if the API is unavailable; then it is notified when the API answers. Objects of an API that was removed are not taken
// for those of another API that replaces it.
func TestControllerStartsWithAndWithoutAnOptionalKind(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	start := func() *platform.View {
		view := routes(g, apis)
		queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(queue.ShutDown)
		g.Expect(view.Start(t.Context(), queue)).To(Succeed())
		return view
	}
	// wait reports whether the start timed out because the API is unavailable.
	wait := func(view *platform.View) (timedOut bool) {
		logger := funcr.New(func(_, line string) { timedOut = timedOut || strings.Contains(line, "does not answer") }, funcr.Options{})
		g.Expect(view.WaitForSync(log.IntoContext(t.Context(), logger))).To(Succeed())
		return timedOut
	}
	read := func(view *platform.View) error {
		return client.IgnoreNotFound(view.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &routev1.Route{}))
	}

	absent := start()
	g.Expect(wait(absent)).To(BeFalse())
	g.Expect(meta.IsNoMatchError(read(absent))).To(BeTrue())

	crds.Install(t, c, crds.Routes)
	g.Eventually(func() bool { return apis.Serves(route) }, apiserver.Timeout, "10ms").Should(BeTrue())
	view := start()
	g.Expect(wait(view)).To(BeFalse())
	g.Expect(read(view)).To(Succeed())

	crds.Remove(t, c, crds.Routes)
	g.Eventually(view.Version, apiserver.Timeout, "10ms").Should(BeEmpty())
	service := aggregateRoutes(t, c)
	g.Eventually(view.Version, apiserver.Timeout, "10ms").Should(Equal("v1"))
	g.Eventually(func() error { return read(view) }, apiserver.Timeout, "10ms").Should(MatchError(ContainSubstring("has not answered")))
	unavailable := start()
	g.Expect(wait(unavailable)).To(BeTrue())
	g.Expect(read(unavailable)).To(MatchError(ContainSubstring("has not answered")))
	g.Expect(c.Create(t.Context(), crds.Read(t, crds.Routes))).To(Succeed())
	g.Expect(c.Delete(t.Context(), service)).To(Succeed())
	g.Eventually(func() error { return read(unavailable) }, apiserver.Timeout, "10ms").Should(Succeed())
	g.Eventually(queue.Len, apiserver.Timeout, "10ms").Should(Equal(1))
	crds.Remove(t, c, crds.Routes)
}

func routes(g Gomega, apis *platform.APIs) *platform.View {
	scheme := runtime.NewScheme()
	g.Expect(routev1.AddToScheme(scheme)).To(Succeed())
	view, err := apis.View(platform.ViewOptions{
		Scheme: scheme, Object: &routev1.Route{},
		Cache:   cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"ours": "true"})},
		Handler: &handler.EnqueueRequestForObject{},
		Changed: func(context.Context) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "changed"}}}
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	return view
}

// At the start, a controller reconciles everything anyway.
func TestControllerIsNotNotifiedOfAKindThatIsServedAtItsStart(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	crds.Install(t, c, crds.Routes)
	g.Eventually(func() bool { return apis.Serves(route) }, apiserver.Timeout, "10ms").Should(BeTrue())
	first := make(chan string, 10)
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named("routes at the start").WatchesRawSource(routes(g, apis)).
			Complete(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				first <- request.Name
				return reconcile.Result{}, nil
			}))
	})
	created := &routev1.Route{}
	created.Namespace, created.Name, created.Labels = apiserver.Namespace(t), "web", map[string]string{"ours": "true"}
	created.Spec.To = routev1.RouteTargetReference{Kind: "Service", Name: "web"}
	g.Expect(c.Create(t.Context(), created)).To(Succeed())
	var name string
	g.Eventually(first, apiserver.Timeout).Should(Receive(&name))
	g.Expect(name).To(Equal("web"))
	crds.Remove(t, c, crds.Routes)
}

// The CRD of Routes is created, deleted and created again while a controller runs that was started without it.
func TestControllerFollowsAKindThatIsAddedAndRemoved(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	view := routes(g, apis)
	var changed, seen atomic.Int32
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named("routes").WatchesRawSource(view).
			Complete(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				if request.Name == "changed" {
					changed.Add(1)
				} else {
					seen.Add(1)
				}
				return reconcile.Result{}, nil
			}))
	})
	namespace := apiserver.Namespace(t)
	key := client.ObjectKey{Namespace: namespace, Name: "web"}
	read := func() error { return view.Get(t.Context(), key, &routev1.Route{}) }
	for range 2 {
		g.Expect(meta.IsNoMatchError(read())).To(BeTrue())
		changed.Store(0)
		seen.Store(0)
		crds.Install(t, c, crds.Routes)
		g.Eventually(changed.Load, apiserver.Timeout, "10ms").Should(BeEquivalentTo(1))
		g.Expect(client.IgnoreNotFound(read())).To(Succeed())
		for name, ours := range map[string]string{"web": "true", "other": "false"} {
			created := &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"to": map[string]any{"kind": "Service", "name": "web"}},
			}}
			created.SetGroupVersionKind(route)
			created.SetNamespace(namespace)
			created.SetName(name)
			created.SetLabels(map[string]string{"ours": ours})
			g.Expect(c.Create(t.Context(), created)).To(Succeed())
		}
		g.Eventually(read, apiserver.Timeout, "10ms").Should(Succeed())
		g.Eventually(seen.Load, apiserver.Timeout, "10ms").Should(BeEquivalentTo(1))
		var list routev1.RouteList
		g.Expect(view.List(t.Context(), &list)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1), "only those with the label")
		crds.Remove(t, c, crds.Routes)
		g.Eventually(changed.Load, apiserver.Timeout, "10ms").Should(BeEquivalentTo(2))
	}
}

func TestWatchReportsMissingPermissions(t *testing.T) {
	config := apiserver.Config(t)
	config.Impersonate.UserName = "unprivileged"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := platform.Watch(ctx, config)
	if err == nil || !strings.Contains(err.Error(), "is forbidden") || !strings.Contains(err.Error(), "unprivileged") {
		t.Errorf("error is %v", err)
	}
}

// The server keeps running while the CRD of APIServers is created, the profile changes, and the CRD is deleted.
func TestTLSProfileFollowsTheCluster(t *testing.T) {
	g := NewWithT(t)
	apis, c := watch(t)
	crds.Remove(t, c, crds.APIServers)
	profile := tlsprofile.New()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	profile.Apply(config)
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error { return profile.SetupWithManager(mgr, apis) })
	minimum := func() uint16 {
		current, err := config.GetConfigForClient(nil)
		g.Expect(err).NotTo(HaveOccurred())
		return current.MinVersion
	}
	g.Expect(minimum()).To(BeEquivalentTo(tls.VersionTLS12))
	crds.Install(t, c, crds.APIServers)
	server := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tlsSecurityProfile": map[string]any{"type": "Modern", "modern": map[string]any{}}}}}
	server.SetGroupVersionKind(names.KindAPIServer)
	server.SetName("cluster")
	g.Eventually(func() error { return c.Create(t.Context(), server) }, apiserver.Timeout, "50ms").Should(Succeed())
	g.Eventually(minimum, apiserver.Timeout, "20ms").Should(BeEquivalentTo(tls.VersionTLS13))
	g.Expect(c.Patch(t.Context(), server, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tlsSecurityProfile":{"type":"Old","old":{}}}}`)))).To(Succeed())
	g.Eventually(minimum, apiserver.Timeout, "20ms").Should(BeEquivalentTo(tls.VersionTLS10))
	crds.Remove(t, c, crds.APIServers)
	g.Eventually(minimum, apiserver.Timeout, "20ms").Should(BeEquivalentTo(tls.VersionTLS12))
}
