package podlisteners_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// node is a node with a node agent and one Pod. The tests do what the operator, the kubelet and the garbage collector
// do.
type node struct {
	t      *testing.T
	api    client.Client
	config *rest.Config
	name   string
	dir    string
	host   *volume.Host
	pod    podlisteners.Pod
	syncer *podlisteners.Syncer
	watch  *podlisteners.Watch
	stop   func()
	// checkInterval is how often the agent checks volumes. 0 means its default.
	checkInterval time.Duration
	// down makes all requests of the agent fail.
	down atomic.Bool
	// cut ends the agent's watch, as the API server does after some minutes. The next one starts from a resource
	// version of the future, as after a restore of etcd, if stale is set. staleWatches counts those.
	cut          func()
	stale        atomic.Bool
	staleWatches atomic.Int32
}

func newNode(t *testing.T) *node {
	t.Helper()
	id := uuid.NewString()
	n := &node{
		t: t, api: apiserver.Client(t), config: apiserver.Config(t), name: "node-" + id, dir: t.TempDir(),
		pod: podlisteners.Pod{Namespace: apiserver.Namespace(t), Name: "web-0", UID: types.UID(id)},
	}
	n.host = volume.NewHost(n.dir)
	n.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/podlisteners") { // list or watch
				t.Errorf("the agent requested %s %s, which it has no permission for", r.Method, r.URL)
			}
			if n.down.Load() {
				return nil, errors.New("connection refused")
			}
			query := r.URL.Query()
			if query.Get("watch") == "" {
				return next.RoundTrip(r)
			}
			if n.stale.Load() && query.Get("sendInitialEvents") == "" {
				n.staleWatches.Add(1)
				query.Set("resourceVersion", "1000000000")
				r = r.Clone(r.Context())
				r.URL.RawQuery = query.Encode()
			}
			response, err := next.RoundTrip(r)
			if err == nil {
				response.Body, n.cut = cuttable(response.Body)
			}
			return response, err
		})
	})
	return n
}

// cuttable returns a body that ends when cut is called.
func cuttable(body io.ReadCloser) (_ io.ReadCloser, cut func()) {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, body)
		_ = writer.CloseWithError(err)
		_ = body.Close()
	}()
	return reader, func() { _ = writer.Close() }
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// startAgent runs the Watch and the Syncer until the test ends or stop is called.
func (n *node) startAgent() {
	n.t.Helper()
	watch, err := podlisteners.NewWatch(n.config, n.name)
	if err != nil {
		n.t.Fatal(err)
	}
	watch.SetObjectTimeout(apiserver.Timeout)
	n.watch, n.syncer = watch, podlisteners.NewSyncer(watch, n.host)
	if n.checkInterval > 0 {
		n.syncer.SetCheckInterval(n.checkInterval)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	watched, synced := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); watch.Run(ctx) }()
	go func() { defer close(synced); n.syncer.Run(ctx) }()
	n.stop = func() { cancel(); <-watched; <-synced }
	n.t.Cleanup(n.stop)
}

func (n *node) eventually(f any) AsyncAssertion {
	n.t.Helper()
	return NewWithT(n.t).Eventually(f).WithTimeout(apiserver.Timeout).WithPolling(2 * time.Millisecond)
}

type answer struct {
	addresses []listenersv1alpha1.IngressAddress
	err       error
}

// request calls Addresses for a volume in the background.
func (n *node) request(ctx context.Context, pv string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		addresses, err := n.syncer.Addresses(ctx, n.pod, pv)
		answers <- answer{addresses, err}
	}()
	return answers
}

func (n *node) key() types.NamespacedName {
	return types.NamespacedName{Namespace: n.pod.Namespace, Name: listenersv1alpha1.PodListenersName(n.pod.UID)}
}

// object reads the Pod's PodListeners object. It returns nil if there is none.
func (n *node) object() *listenersv1alpha1.PodListeners {
	n.t.Helper()
	var o listenersv1alpha1.PodListeners
	switch err := n.api.Get(n.t.Context(), n.key(), &o); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		n.t.Fatal(err)
	}
	return &o
}

// write creates or updates the Pod's PodListeners object, as the operator does.
func (n *node) write(listeners entries) {
	n.t.Helper()
	existing := n.object()
	desired := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: n.pod.Namespace, Name: n.pod.Name}, n.pod.UID, n.name)
	var err error
	if existing == nil {
		desired.Spec.Listeners = listeners
		err = n.api.Create(n.t.Context(), desired)
	} else {
		desired = existing.DeepCopy()
		desired.Spec.Listeners = listeners
		err = n.api.Patch(n.t.Context(), desired, client.MergeFrom(existing))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) delete() {
	n.t.Helper()
	if err := n.api.Delete(n.t.Context(), n.object()); err != nil {
		n.t.Fatal(err)
	}
}

// publish publishes a volume as the kubelet and the driver do.
func (n *node) publish(pv, address string) {
	n.t.Helper()
	n.publishAs(pv, map[string]string{"driverName": "listeners.stackable.tech", "volumeHandle": pv, "specVolID": pv}, address)
}

// publishAs publishes a volume, about which the kubelet has this record.
func (n *node) publishAs(pv string, kubelets map[string]string, address string) {
	n.t.Helper()
	parent := filepath.Dir(n.mount(pv))
	record, err := json.Marshal(kubelets)
	if err = errors.Join(err, os.MkdirAll(parent, 0o750), os.WriteFile(filepath.Join(parent, "vol_data.json"), record, 0o600)); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.host.Write(volume.Target{PodUID: n.pod.UID, Name: pv, Namespace: n.pod.Namespace}, addresses(address)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) mount(pv string) string {
	return filepath.Join(n.dir, "pods", string(n.pod.UID), "volumes", "kubernetes.io~csi", pv, "mount")
}

// file returns a function that returns the default address in a volume, or "".
func (n *node) file(pv string) func() string {
	return func() string {
		content, err := os.ReadFile(filepath.Join(n.mount(pv), "default-address", "address"))
		if err != nil {
			return ""
		}
		return string(content)
	}
}

func addresses(address string) []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080}}}
}

func entry(pv, address string) listenersv1alpha1.PodListener {
	e := listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: pv, ListenerName: "web"}
	if address != "" {
		e.IngressAddresses = addresses(address)
	}
	return e
}

// entries is the content of a PodListeners object.
type entries = map[string]listenersv1alpha1.PodListener

func TestAddressesReturnsWhenTheOperatorHasWrittenThem(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	first, second := n.request(t.Context(), "pvc-1"), n.request(t.Context(), "pvc-2")
	// The second volume's load balancer is slow.
	n.write(entries{"a": entry("pvc-1", "192.0.2.1"), "b": entry("pvc-2", "")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, first)); diff != "" {
		t.Errorf("first volume (-want +got):\n%s", diff)
	}
	n.write(entries{"a": entry("pvc-1", "192.0.2.1"), "b": entry("pvc-2", "192.0.2.2")})
	if diff := cmp.Diff(addresses("192.0.2.2"), received(t, second)); diff != "" {
		t.Errorf("second volume (-want +got):\n%s", diff)
	}
	// The addresses are in the cache now, and need no API server.
	n.down.Store(true)
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, n.request(t.Context(), "pvc-1"))); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
}

func received(t *testing.T, answers <-chan answer) []listenersv1alpha1.IngressAddress {
	t.Helper()
	select {
	case a := <-answers:
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.addresses
	case <-time.After(apiserver.Timeout):
		t.Fatal("no answer")
		return nil
	}
}

func TestErrorSaysWhyThereIsNoAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*node)
		want    string
	}{
		"API server unreachable": {func(n *node) { n.down.Store(true) }, "is it running"},
		"no operator":            {func(*node) {}, "is it running"},
		"volume unknown": {func(n *node) {
			n.write(entries{"b": entry("pvc-2", "192.0.2.2")})
		}, "is not among the Pod's listener volumes"},
		"no address yet": {func(n *node) {
			n.write(entries{"a": entry("pvc-1", "")})
		}, `volume "a" of the Pod waits for Listener web; see: kubectl -n `},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.prepare(n)
			n.startAgent()
			if !n.down.Load() {
				n.eventually(n.watch.Ready).Should(Succeed())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := n.syncer.Addresses(ctx, n.pod, "pvc-1")
			if !errors.Is(err, podlisteners.ErrNoAddress) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range []string{"pvc-1", n.pod.String(), tc.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not mention %q", err, want)
				}
			}
		})
	}
}

func TestDeletedObjectEndsTheWait(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "")})
	answers := n.request(t.Context(), "pvc-1")
	n.eventually(n.watch.Waiters).Should(Equal(1))
	n.delete()
	if err := (<-answers).err; !errors.Is(err, podlisteners.ErrNoAddress) {
		t.Errorf("error is %v", err)
	}
	// If the Pod still exists, the kubelet retries.
	answers = n.request(t.Context(), "pvc-1")
	n.write(entries{"a": entry("pvc-1", "192.0.2.1")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, answers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMissingObjectEndsTheWait(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.eventually(n.watch.Ready).Should(Succeed())
	n.watch.SetObjectTimeout(50 * time.Millisecond)
	_, err := n.syncer.Addresses(t.Context(), n.pod, "pvc-1")
	if !errors.Is(err, podlisteners.ErrNoAddress) || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("error is %v", err)
	}
}

// After a restore of etcd, a watch may wait for resource versions that are long to come.
func TestAMountFindsAnObjectThatTheWatchDoesNotShow(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.watch.SetObjectTimeout(50 * time.Millisecond)
	n.watch.SetLagTimeout(50 * time.Millisecond)
	n.write(entries{"a": entry("pvc-1", "")})
	n.eventually(n.watch.Objects).Should(Equal(1)) // by the first watch
	n.delete()
	n.eventually(n.watch.Objects).Should(Equal(0))
	n.stale.Store(true)
	n.cut()
	n.eventually(n.staleWatches.Load).Should(BeEquivalentTo(1))
	n.stale.Store(false)
	n.write(entries{"a": entry("pvc-1", "192.0.2.1")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, n.request(t.Context(), "pvc-1"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := n.watch.Relists(); got != 1 {
		t.Errorf("%v relists are counted, want 1", got)
	}
	// The watch after the list works.
	n.write(entries{"a": entry("pvc-1", "192.0.2.1"), "b": entry("pvc-2", "192.0.2.2")})
	if diff := cmp.Diff(addresses("192.0.2.2"), received(t, n.request(t.Context(), "pvc-2"))); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
}

// The operator may well have created an object that the agent cannot see.
func TestAMissingObjectIsNotBlamedOnTheOperatorIfTheAPIServerDoesNotAnswer(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.eventually(n.watch.Ready).Should(Succeed())
	n.watch.SetObjectTimeout(50 * time.Millisecond)
	n.down.Store(true)
	_, err := n.syncer.Addresses(t.Context(), n.pod, "pvc-1")
	if !errors.Is(err, podlisteners.ErrNoAddress) || !strings.Contains(err.Error(), "cannot read PodListeners") || strings.Contains(err.Error(), "is it running") {
		t.Errorf("error is %v", err)
	}
}

// A wait for an address of an existing object only ends with the context, however long a load balancer takes.
func TestExistingObjectWithoutAddressDoesNotEndTheWait(t *testing.T) {
	n := newNode(t)
	n.write(entries{"a": entry("pvc-1", "")})
	n.startAgent()
	n.eventually(n.watch.Ready).Should(Succeed()) // the cache has the object
	n.watch.SetObjectTimeout(0)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := n.syncer.Addresses(ctx, n.pod, "pvc-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
}

func TestCanceledContextEndsTheWait(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	ctx, cancel := context.WithCancel(t.Context())
	answers := n.request(ctx, "pvc-1")
	n.eventually(n.watch.Waiters).Should(Equal(1))
	cancel()
	if err := (<-answers).err; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if got := n.watch.Waiters(); got != 0 {
		t.Errorf("%d waiters remain", got)
	}
}

func TestWaitSurvivesAnOutageOfTheAPIServer(t *testing.T) {
	n := newNode(t)
	n.down.Store(true)
	n.startAgent()
	answers := n.request(t.Context(), "pvc-1")
	n.eventually(n.watch.Waiters).Should(Equal(1))
	n.down.Store(false)
	n.write(entries{"a": entry("pvc-1", "192.0.2.1")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, answers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublishedVolumesAreUpdated(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.publish("pvc-2", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.11"), "b": entry("pvc-2", "192.0.2.12")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.11"))
	n.eventually(n.file("pvc-2")).Should(Equal("192.0.2.12"))
	// A removed address stays in the file until there is a new one.
	n.write(entries{"a": entry("pvc-1", ""), "b": entry("pvc-2", "192.0.2.22")})
	n.eventually(n.file("pvc-2")).Should(Equal("192.0.2.22"))
	if got := n.file("pvc-1")(); got != "192.0.2.11" {
		t.Errorf("the volume without an address reads %q", got)
	}
}

// It has the entry of its name, unless that is about a PersistentVolume.
func TestPublishedInlineVolumesAreUpdated(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"a", "b"} {
		n.publishAs(name, map[string]string{"driverName": "listeners.stackable.tech", "volumeHandle": "csi-" + name, "volumeLifecycleMode": "Ephemeral"}, "192.0.2.1")
	}
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("", "192.0.2.11"), "b": entry("pvc-1", "192.0.2.12")})
	n.eventually(n.file("a")).Should(Equal("192.0.2.11"))
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.12"))
	if got := n.file("b")(); got != "192.0.2.1" {
		t.Errorf("the volume without an entry reads %q", got)
	}
}

func TestVolumesAreUpdatedWhenTheAgentRestarts(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
	n.stop()
	n.write(entries{"a": entry("pvc-1", "192.0.2.3")})
	n.startAgent()
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.3"))
}

func TestFailedUpdateIsRetried(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	var failed atomic.Bool
	n.host.Label = func(*os.File) error {
		if failed.CompareAndSwap(false, true) {
			return errors.New("denied")
		}
		return nil
	}
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
	if !failed.Load() {
		t.Error("no update has failed")
	}
}

func TestRecheckUpdatesAVolume(t *testing.T) {
	n := newNode(t)
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	received(t, n.request(t.Context(), "pvc-1"))
	n.waitUntilSynced()
	n.publish("pvc-1", "192.0.2.1") // an earlier address
	n.syncer.Recheck(n.pod)
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
}

// waitUntilSynced waits until the agent has processed all earlier changes, by one more change for another Pod.
func (n *node) waitUntilSynced() {
	n.t.Helper()
	pod := n.pod
	n.pod.UID = types.UID(uuid.NewString())
	n.publish("pvc-last", "192.0.2.1")
	n.write(entries{"a": entry("pvc-last", "192.0.2.2")})
	n.eventually(n.file("pvc-last")).Should(Equal("192.0.2.2"))
	n.pod = pod
}

func TestVolumeIsUpdatedFromRecreatedPodListeners(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
	n.delete()
	n.write(entries{"a": entry("pvc-1", "192.0.2.3")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.3"))
}

// A user may delete the PodListeners object of a running Pod repeatedly while the operator, which recreates it, does
// not run.
func TestVolumeKeepsItsAddressesWhenPodListenersAreDeleted(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	for range 3 {
		n.write(entries{"a": entry("pvc-1", "192.0.2.1")})
		n.delete()
		n.waitUntilSynced()
		if got := n.file("pvc-1")(); got != "192.0.2.1" {
			t.Fatalf("the volume reads %q", got)
		}
	}
}

// empty deletes what is in a volume, as its Pod may do.
func (n *node) empty(pv string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.mount(pv))
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(n.mount(pv), e.Name())))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func TestVolumeThatItsPodHasEmptiedIsRepaired(t *testing.T) {
	n := newNode(t)
	n.checkInterval = 10 * time.Millisecond
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	for range 3 {
		n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
		n.empty("pvc-1")
	}
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
}

// A Pod that damages its volume all the time must not keep the agent busy.
func TestDamagedVolumeIsRepairedAtTheNextCheckOnly(t *testing.T) {
	n := newNode(t)
	n.checkInterval = time.Hour
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	for range 3 {
		n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
		n.waitUntilSynced() // the file can be read before its agent has completed the volume
		n.empty("pvc-1")
		n.waitUntilSynced()
		if got := n.file("pvc-1")(); got != "" {
			t.Errorf("without a check the volume reads %q", got)
		}
		n.syncer.Check(t.Context())
	}
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
}

// The agent knows the namespace of what it has written, whatever is left of it.
func TestEmptiedVolumeIsRepairedFromItsOwnNamespace(t *testing.T) {
	n, _ := emptiedInTwoNamespaces(t, false)
	n.eventually(func() string { n.syncer.Check(t.Context()); return n.file("pvc-1")() }).Should(Equal("192.0.2.2"))
}

// An emptied volume does not tell its namespace to an agent that has started since.
func TestEmptiedVolumeIsNotRepairedFromEitherOfTwoNamespaces(t *testing.T) {
	n, victim := emptiedInTwoNamespaces(t, true)
	n.syncer.Check(t.Context())
	n.waitUntilSynced()
	if got := n.file("pvc-1")(); got != "" {
		t.Errorf("the volume reads %q", got)
	}
	n.delete()
	n.pod.Namespace = victim
	n.eventually(func() string { n.syncer.Check(t.Context()); return n.file("pvc-1")() }).Should(Equal("192.0.2.2"))
}

// emptiedInTwoNamespaces returns a node on which a volume is empty, and PodListeners of two namespaces are about it.
// The Pod of the node is in the other namespace.
func emptiedInTwoNamespaces(t *testing.T, restarted bool) (n *node, victim string) {
	t.Helper()
	n = newNode(t)
	n.checkInterval = time.Hour
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
	victim = n.pod.Namespace
	n.pod.Namespace = apiserver.Namespace(t)
	n.write(entries{"a": entry("pvc-1", "203.0.113.66")})
	n.waitUntilSynced()
	if restarted {
		n.stop()
		n.host = volume.NewHost(n.dir)
	}
	n.empty("pvc-1")
	if restarted {
		n.startAgent()
		n.waitUntilSynced()
	}
	return n, victim
}

// Users who may write PodListeners in one namespace must not be able to change volumes of Pods in other namespaces.
func TestPodListenersOfAnotherNamespaceAreIgnored(t *testing.T) {
	n := newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	victim := n.pod.Namespace
	n.pod.Namespace = apiserver.Namespace(t)
	n.write(entries{"a": entry("pvc-1", "203.0.113.66")})
	n.waitUntilSynced()
	if got := n.file("pvc-1")(); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
	n.delete()
	n.pod.Namespace = victim
	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
}

// The namespace of a volume is unknown if Stackable's listener operator wrote it.
func TestUpdateRecordsAnUnknownNamespace(t *testing.T) {
	n := newNode(t)
	namespace := n.pod.Namespace
	n.pod.Namespace = ""
	n.publish("pvc-1", "192.0.2.1")
	n.pod.Namespace = namespace
	n.startAgent()

	n.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.eventually(n.file("pvc-1")).Should(Equal("192.0.2.2"))
	// The address is visible before the write has ended.
	n.eventually(func(g Gomega) {
		published, err := n.host.Published(n.pod.UID)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(published).To(HaveExactElements(HaveField("Namespace", namespace)))
	}).Should(Succeed())
}

func TestPodListenersOfOtherNodesAreIgnored(t *testing.T) {
	n, other := newNode(t), newNode(t)
	n.publish("pvc-1", "192.0.2.1")
	n.startAgent()
	other.pod = n.pod // as if the same Pod ran on the other node
	other.write(entries{"a": entry("pvc-1", "192.0.2.2")})
	n.waitUntilSynced()
	if got := n.file("pvc-1")(); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
}
