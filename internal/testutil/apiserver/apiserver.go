// Package apiserver gives tests a real kube-apiserver and etcd, with this project's CustomResourceDefinitions
// installed. Which programs it starts is envtest's convention: KUBEBUILDER_ASSETS names the directory that contains
// them, or TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD name the programs. `make test-apiserver` builds them and sets
// these variables; tests that need the API server are skipped without them. There is no controller manager and no
// kubelet: namespaces are never removed, nothing is garbage-collected, and Pods never run.
//
// One API server serves all tests of a package, and a second one, without an optional admission plugin, those that ask
// for it. Each is started by the first test that asks for it, and stopped by Run:
//
//	func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }
//
// Only tests may import it.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// Timeout is how long tests wait for one thing that the API server or a controller does. It is many times what that
// takes, because the machine may have other work.
const Timeout = time.Minute

type server struct {
	plugins []string // admission plugins that are not enabled by default
	ranges  string   // of cluster IPs, or "" for a single IPv4 range
	once    sync.Once
	env     *envtest.Environment
	config  *rest.Config
	err     error
}

var (
	running bool
	// shared is as on OpenShift, where an owner reference that blocks deletion requires permissions on the owner.
	// Nothing deletes the Services of tests that have ended, so it has more cluster IPs than by default.
	shared = &server{plugins: []string{"OwnerReferencesPermissionEnforcement"}, ranges: "10.0.0.0/20"}
	plain  = &server{}
	// dualStack has cluster IPs of both families. Services have one of IPv4 unless they ask for others.
	dualStack = &server{ranges: "10.0.0.0/24,fd00:10::/112"}

	stopShared []func() error
)

// Run runs the tests of a package, stops the managers that tests share, and the API servers, and returns the exit code.
func Run(m *testing.M) int {
	running = true
	log.SetLogger(logr.Discard()) // after 30 seconds without a logger, controller-runtime prints a stack trace
	code := m.Run()
	for _, stop := range stopShared {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "running a manager:", err)
			code = 1
		}
	}
	for _, s := range []*server{shared, plain, dualStack} {
		if s.env == nil {
			continue
		}
		if err := s.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
			code = 1
		}
	}
	return code
}

// programVariables are the environment variables that name the programs, or the directory that holds them.
var programVariables = []string{"KUBEBUILDER_ASSETS", "TEST_ASSET_KUBE_APISERVER", "TEST_ASSET_ETCD"}

// Config returns the configuration of a client with all permissions. It skips the test if there are no programs.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	return shared.get(t)
}

// PlainConfig is like Config, for an API server without the admission plugin OwnerReferencesPermissionEnforcement,
// which OpenShift enables, and most clusters do not.
func PlainConfig(t testing.TB) *rest.Config {
	t.Helper()
	return plain.get(t)
}

// DualStackConfig is like PlainConfig, for an API server that allocates cluster IPs of both IP families.
func DualStackConfig(t testing.TB) *rest.Config {
	t.Helper()
	return dualStack.get(t)
}

func (s *server) get(t testing.TB) *rest.Config {
	t.Helper()
	if !slices.ContainsFunc(programVariables, func(name string) bool { return os.Getenv(name) != "" }) {
		t.Skip("needs kube-apiserver and etcd: run `make test-apiserver`, or set KUBEBUILDER_ASSETS to a directory " +
			"that contains them")
	}
	if !running {
		t.Fatal("TestMain must call apiserver.Run, which stops the API server")
	}
	s.once.Do(func() { s.config, s.err = s.start() })
	if s.err != nil {
		t.Fatal("starting the API server: ", s.err)
	}
	return rest.CopyConfig(s.config)
}

func (s *server) start() (*rest.Config, error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	s.env = &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, "config", "crd",
			"bases")}, MaxTime: Timeout},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: Timeout,
		ControlPlaneStopTimeout:  Timeout,
	}
	if len(s.plugins) > 0 {
		s.env.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", s.plugins...)
	}
	if s.ranges != "" {
		s.env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", s.ranges)
	}
	cfg, err := s.env.Start()
	if err != nil {
		return nil, errors.Join(err, s.env.Stop())
	}
	cfg.QPS = -1 // no client-side rate limit
	return cfg, nil
}

func Scheme() *runtime.Scheme { return fakeclient.Scheme() }

func Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.New(Config(t), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal("creating a client: ", err)
	}
	return c
}

// NamespaceWithoutPolicies creates a namespace. A moment later, no ValidatingAdmissionPolicy that is installed applies
// to it.
func NamespaceWithoutPolicies(t testing.TB) string {
	t.Helper()
	c, namespace := Client(t), Namespace(t)
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	check.Must(t, c.List(t.Context(), &bindings))
	for i := range bindings.Items {
		patch := fmt.Appendf(nil, `{"spec":{"matchResources":{"namespaceSelector":{"matchExpressions":[`+
			`{"key":%q,"operator":"NotIn","values":[%q]}]}}}}`, corev1.LabelMetadataName, namespace)
		check.Must(t, c.Patch(t.Context(), &bindings.Items[i], client.RawPatch(types.MergePatchType, patch)))
	}
	return namespace
}

// Namespace creates a namespace for the test and returns its name. When the test ends, what the controllers of each
// later test would reconcile, too, is deleted.
func Namespace(t testing.TB) string {
	t.Helper()
	c := Client(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal("creating a namespace: ", err)
	}
	t.Cleanup(func() {
		// Controllers create Listeners for claims, and PodListeners for Pods.
		for _, o := range []client.Object{
			&corev1.PersistentVolumeClaim{}, &corev1.Pod{}, &listenersv1alpha1.Listener{},
			&listenersv1alpha1.PodListeners{},
		} {
			err := c.DeleteAllOf(context.Background(), o, client.InNamespace(namespace.Name),
				client.GracePeriodSeconds(0))
			if err != nil {
				t.Errorf("deleting each %T of a namespace: %v", o, err)
			}
		}
	})
	return namespace.Name
}

// World is an API server for a test with gomega's assertions, and a namespace of its own.
type World struct {
	*testing.T
	gomega.Gomega
	client.Client
	Namespace string
}

// NewWorld returns a World, in which eventually is within Timeout.
func NewWorld(t *testing.T) *World {
	t.Helper()
	w := &World{T: t, Gomega: gomega.NewWithT(t), Client: Client(t), Namespace: Namespace(t)}
	w.SetDefaultEventuallyTimeout(Timeout)
	w.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	return w
}

// StartManager runs a manager until the test ends, with the cache and the indexes of an operator in the namespace, and
// with the controllers that setup adds. Its caches have synced when StartManager returns. If cfg is nil it uses Config;
// a test passes its own, for example, to count requests.
func StartManager(t testing.TB, cfg *rest.Config, namespace string, setup func(mgr ctrl.Manager) error) ctrl.Manager {
	t.Helper()
	mgr, _ := RunManager(t, cfg, namespace, setup)
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("waiting for the caches")
	}
	return mgr
}

// RunManager is StartManager for a test that stops the manager itself: it does not wait for the caches, and the
// returned function stops the manager and waits until it has ended.
func RunManager(t testing.TB, cfg *rest.Config, namespace string,
	setup func(mgr ctrl.Manager) error) (ctrl.Manager, func()) {
	t.Helper()
	mgr, stopManager := runManager(t, cfg, namespace, setup)
	stop := func() {
		if err := stopManager(); err != nil {
			t.Error("running the manager: ", err)
		}
	}
	t.Cleanup(stop)
	return mgr, stop
}

// ShareManager is StartManager for a manager that several tests of a package share: it runs until a test stops it, or
// until Run has run all tests.
func ShareManager(t testing.TB, cfg *rest.Config, namespace string, setup func(mgr ctrl.Manager) error) func() error {
	t.Helper()
	mgr, stop := runManager(t, cfg, namespace, setup)
	stopShared = append(stopShared, stop)
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("waiting for the caches")
	}
	return stop
}

func runManager(t testing.TB, cfg *rest.Config, namespace string,
	setup func(mgr ctrl.Manager) error) (ctrl.Manager, func() error) {
	t.Helper()
	if cfg == nil {
		cfg = Config(t)
	}
	skip := true // several tests of one binary create controllers of the same name
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme:     Scheme(),
		Cache:      cache.Options(namespace),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip, UsePriorityQueue: ptr.To(false)}, // as cmd/operator
	})
	if err != nil {
		t.Fatal("creating a manager: ", err)
	}
	check.Must(t, index.Register(t.Context(), mgr.GetFieldIndexer()))
	if err := setup(mgr); err != nil {
		t.Fatal("setting up controllers: ", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return mgr, sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// WithToken returns the configuration of a client that has nothing but a token of a ServiceAccount, bound to a Pod of
// it, as the kubelet mounts it into the Pod. The ServiceAccount and the Pod are created if they do not exist.
func WithToken(t testing.TB, admin *rest.Config, namespace, account string) *rest.Config {
	t.Helper()
	c, err := client.New(admin, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal("creating a client: ", err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		Spec: corev1.PodSpec{ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	for _, object := range []client.Object{serviceAccount, pod} {
		check.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), object)))
	}
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
			UID: pod.UID},
	}}
	if err := c.SubResource("token").Create(t.Context(), serviceAccount, request); err != nil {
		t.Fatalf("requesting a token of ServiceAccount %s/%s: %v", namespace, account, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config
}

const resolution = time.Second / 100

// processorTime returns how long the API servers have computed.
func processorTime(t testing.TB) (total time.Duration) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	check.Must(t, err)
	for _, stat := range stats {
		content, _ := os.ReadFile(stat) // other processes end
		_, rest, found := strings.Cut(string(content), "(kube-apiserver) ")
		if fields := strings.Fields(rest); found && fields[1] == strconv.Itoa(os.Getpid()) {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			total += time.Duration(user+system) * resolution
		}
	}
	return total
}

// ComputesTwice reports whether the API servers compute more than twice as long for do as for reference, apart from the
// resolution of both times, which it returns. They are the least of several, taken in turns, because processors are
// slower while others are busy, and the API servers also collect garbage.
func ComputesTwice(t testing.TB, do, reference func()) (least, leastOfReference time.Duration, twice bool) {
	t.Helper()
	take := func(do func()) time.Duration {
		start := processorTime(t)
		do()
		return processorTime(t) - start
	}
	least, leastOfReference = time.Hour, time.Hour
	for round := 0; round < 3 || round < 10 && twice; round++ {
		leastOfReference, least = min(leastOfReference, take(reference)), min(least, take(do))
		twice = least > 2*leastOfReference+2*resolution
	}
	return least, leastOfReference, twice
}
