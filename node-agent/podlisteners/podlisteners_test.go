package podlisteners_test

import (
	"context"
	"encoding/json"
	"errors"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// world is a node of its own, with an agent and one Pod. The operator and the garbage collector are played by the
// tests.
type world struct {
	t      *testing.T
	api    client.Client
	config *rest.Config
	node   string
	dir    string
	host   *volume.Host
	pod    podlisteners.Pod
	keeper *podlisteners.Keeper
	watch  *podlisteners.Watch
	stop   func()
	// creations counts the requests of the agent that create objects.
	creations atomic.Int32
	// down makes the API server unreachable for the agent.
	down atomic.Bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	id := uuid.NewString()
	w := &world{
		t: t, api: apiserver.Client(t), config: apiserver.Config(t), node: "node-" + id, dir: t.TempDir(),
		pod: podlisteners.Pod{Namespace: apiserver.Namespace(t), Name: "web-0", UID: types.UID(id)},
	}
	w.host = volume.NewHost(w.dir)
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				w.creations.Add(1)
			}
			if w.down.Load() {
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(r)
		})
	})
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// startAgent runs the Watch and the Keeper until the test ends, or stop is called.
func (w *world) startAgent() {
	w.t.Helper()
	watch, err := podlisteners.NewWatch(w.config, w.node)
	if err != nil {
		w.t.Fatal(err)
	}
	w.watch, w.keeper = watch, podlisteners.NewKeeper(watch, w.host)
	ctx, cancel := context.WithCancel(w.t.Context())
	watched, kept := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); watch.Run(ctx) }()
	go func() { defer close(kept); w.keeper.Run(ctx) }()
	w.stop = func() { cancel(); <-watched; <-kept }
	w.t.Cleanup(w.stop)
}

func (w *world) eventually(f any) AsyncAssertion {
	w.t.Helper()
	return NewWithT(w.t).Eventually(f).WithTimeout(apiserver.Timeout).WithPolling(2 * time.Millisecond)
}

type answer struct {
	addresses []listenersv1alpha1.IngressAddress
	err       error
}

// ask asks for the addresses of a volume in the background.
func (w *world) ask(ctx context.Context, pv string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		addresses, err := w.keeper.Addresses(ctx, w.pod, pv)
		answers <- answer{addresses, err}
	}()
	return answers
}

func (w *world) key() types.NamespacedName {
	return types.NamespacedName{Namespace: w.pod.Namespace, Name: listenersv1alpha1.PodListenersName(w.pod.UID)}
}

// object reads the PodListeners, or returns nil.
func (w *world) object() *listenersv1alpha1.PodListeners {
	w.t.Helper()
	var o listenersv1alpha1.PodListeners
	switch err := w.api.Get(w.t.Context(), w.key(), &o); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		w.t.Fatal(err)
	}
	return &o
}

// waitForHint waits until the agent has created the hint.
func (w *world) waitForHint() *listenersv1alpha1.PodListeners {
	w.t.Helper()
	var o *listenersv1alpha1.PodListeners
	w.eventually(func() *listenersv1alpha1.PodListeners { o = w.object(); return o }).ShouldNot(BeNil())
	return o
}

// fill does what the operator does with a hint.
func (w *world) fill(listeners entries) {
	w.t.Helper()
	o := w.waitForHint()
	original := o.DeepCopy()
	o.Spec.Listeners = listeners
	if err := w.api.Patch(w.t.Context(), o, client.MergeFrom(original)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete() {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), w.waitForHint()); err != nil {
		w.t.Fatal(err)
	}
}

// publish does what the kubelet and the driver do.
func (w *world) publish(pv, address string) {
	w.t.Helper()
	parent := filepath.Dir(w.mount(pv))
	record, err := json.Marshal(map[string]string{"driverName": "listeners.stackable.tech", "volumeHandle": pv, "specVolID": pv})
	if err = errors.Join(err, os.MkdirAll(parent, 0o750), os.WriteFile(filepath.Join(parent, "vol_data.json"), record, 0o600)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.host.Write(volume.Target{PodUID: w.pod.UID, Name: pv, Namespace: w.pod.Namespace}, addresses(address)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mount(pv string) string {
	return filepath.Join(w.dir, "pods", string(w.pod.UID), "volumes", "kubernetes.io~csi", pv, "mount")
}

// file returns the default address that the Pod reads, or "".
func (w *world) file(pv string) func() string {
	return func() string {
		content, err := os.ReadFile(filepath.Join(w.mount(pv), "default-address", "address"))
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

// entries are the content of a PodListeners.
type entries = map[string]listenersv1alpha1.PodListener

func TestAVolumeGetsItsAddressesWhenTheOperatorHasFoundThem(t *testing.T) {
	w := newWorld(t)
	w.startAgent()
	first, second := w.ask(t.Context(), "pvc-1"), w.ask(t.Context(), "pvc-2")
	hint := w.waitForHint()
	want := &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: w.pod.UID}}},
		Spec:       listenersv1alpha1.PodListenersSpec{NodeName: w.node, Listeners: entries{}},
	}
	got := &listenersv1alpha1.PodListeners{ObjectMeta: metav1.ObjectMeta{OwnerReferences: hint.OwnerReferences}, Spec: hint.Spec}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hint (-want +got):\n%s", diff)
	}
	// The second volume's load balancer is slow.
	w.fill(entries{"a": entry("pvc-1", "192.0.2.1"), "b": entry("pvc-2", "")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, first)); diff != "" {
		t.Errorf("first volume (-want +got):\n%s", diff)
	}
	w.fill(entries{"a": entry("pvc-1", "192.0.2.1"), "b": entry("pvc-2", "192.0.2.2")})
	if diff := cmp.Diff(addresses("192.0.2.2"), received(t, second)); diff != "" {
		t.Errorf("second volume (-want +got):\n%s", diff)
	}
	if got := w.creations.Load(); got > 2 {
		t.Errorf("%d requests to create hints, want one for each volume at most", got)
	}
	// From here on it is known, and nothing is asked.
	before := w.creations.Load()
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, w.ask(t.Context(), "pvc-1"))); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	if got := w.creations.Load(); got != before {
		t.Errorf("a hint that was there was created again")
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

func TestWhatAWaitingVolumeIsMissingIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world)
		want    string
	}{
		"API server unreachable": {func(w *world) { w.down.Store(true) }, "connection refused"},
		"no operator":            {func(*world) {}, "is it running"},
		"forged with a stolen token": {func(w *world) {
			w.create(entries{"a": entry("pvc-1", "203.0.113.66")})
		}, "is it running"},
		"volume unknown": {func(w *world) {
			w.create(nil)
			w.fill(entries{"b": entry("pvc-2", "192.0.2.2")})
		}, "does not know it"},
		"no address yet": {func(w *world) {
			w.create(nil)
			w.fill(entries{"a": entry("pvc-1", "")})
		}, `volume "a" in the Pod waits for Listener web; see: kubectl -n `},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.prepare(w)
			w.startAgent()
			if !w.down.Load() {
				w.eventually(w.watch.Ready).Should(Succeed())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := w.keeper.Addresses(ctx, w.pod, "pvc-1")
			if !errors.Is(err, podlisteners.ErrNoAddress) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range []string{"pvc-1", w.pod.String(), tc.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not mention %q", err, want)
				}
			}
		})
	}
}

// create creates the PodListeners as somebody else.
func (w *world) create(listeners entries) {
	w.t.Helper()
	if listeners == nil {
		listeners = entries{}
	}
	object := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: w.pod.Namespace, Name: w.pod.Name}, w.pod.UID, w.node)
	object.Spec.Listeners = listeners
	if err := w.api.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func TestAHintThatIsDeletedWhileAVolumeWaitsEndsTheWait(t *testing.T) {
	w := newWorld(t)
	w.startAgent()
	answers := w.ask(t.Context(), "pvc-1")
	first := w.waitForHint().UID
	w.delete()
	if err := (<-answers).err; !errors.Is(err, podlisteners.ErrNoAddress) {
		t.Errorf("error is %v", err)
	}
	// The kubelet asks again if the Pod lives after all.
	answers = w.ask(t.Context(), "pvc-1")
	w.eventually(func() bool { o := w.object(); return o != nil && o.UID != first }).Should(BeTrue())
	w.fill(entries{"a": entry("pvc-1", "192.0.2.1")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, answers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPodThatIsDeletedWhileItsVolumeWaitsEndsTheWait(t *testing.T) {
	w := newWorld(t)
	w.startAgent()
	ctx, cancel := context.WithCancel(t.Context())
	answers := w.ask(ctx, "pvc-1")
	w.waitForHint()
	cancel()
	if err := (<-answers).err; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if got := w.watch.Waiters(); got != 0 {
		t.Errorf("%d waiters remain", got)
	}
}

func TestAPIServerThatComesBackIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.down.Store(true)
	w.startAgent()
	answers := w.ask(t.Context(), "pvc-1")
	w.eventually(w.creations.Load).Should(BeNumerically(">", 0))
	w.down.Store(false)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.1")})
	if diff := cmp.Diff(addresses("192.0.2.1"), received(t, answers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublishedVolumesFollowTheirAddresses(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.publish("pvc-2", "192.0.2.1")
	w.startAgent()
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.11"), "b": entry("pvc-2", "192.0.2.12")})
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.11"))
	w.eventually(w.file("pvc-2")).Should(Equal("192.0.2.12"))
	// An address that is taken away stays in the file until there is another.
	w.fill(entries{"a": entry("pvc-1", ""), "b": entry("pvc-2", "192.0.2.22")})
	w.eventually(w.file("pvc-2")).Should(Equal("192.0.2.22"))
	if got := w.file("pvc-1")(); got != "192.0.2.11" {
		t.Errorf("the volume without an address reads %q", got)
	}
}

func TestVolumesAreBroughtUpToDateWhenTheAgentComesBack(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.2")})
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.2"))
	w.stop()
	w.fill(entries{"a": entry("pvc-1", "192.0.2.3")})
	w.startAgent()
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.3"))
}

func TestAVolumeThatChangedWhileItWasWrittenIsRechecked(t *testing.T) {
	w := newWorld(t)
	w.startAgent()
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.2")})
	received(t, w.ask(t.Context(), "pvc-1"))
	w.waitUntilKept()
	w.publish("pvc-1", "192.0.2.1") // as of before
	w.keeper.Recheck(w.pod)
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.2"))
}

func TestContentThatTheOperatorHasNotWrittenIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	w.create(entries{"a": entry("pvc-1", "203.0.113.66")})
	w.publish("pvc-2", "192.0.2.1")
	w.waitUntilKept()
	if got := w.file("pvc-1")(); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
}

// waitUntilKept waits until the agent has dealt with all that was done so far: with another Pod that comes last.
func (w *world) waitUntilKept() {
	w.t.Helper()
	pod := w.pod
	w.pod.UID = types.UID(uuid.NewString())
	w.publish("pvc-last", "192.0.2.1")
	w.create(nil)
	w.fill(entries{"a": entry("pvc-last", "192.0.2.2")})
	w.eventually(w.file("pvc-last")).Should(Equal("192.0.2.2"))
	w.pod = pod
}

func TestPodListenersThatTheOperatorMakesAgainAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.2")})
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.2"))
	w.delete()
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.3")})
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.3"))
}

// Somebody may delete the PodListeners of a Pod that lives, as often as he likes, while no operator is there to make
// them again.
func TestAVolumeKeepsItsAddressesUntilTheKubeletUnpublishesIt(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	for range 3 {
		w.create(nil)
		w.fill(entries{"a": entry("pvc-1", "192.0.2.1")})
		w.delete()
		w.waitUntilKept()
		if got := w.file("pvc-1")(); got != "192.0.2.1" {
			t.Fatalf("the volume reads %q", got)
		}
		if w.object() != nil {
			t.Fatal("the agent announces a mount where there is none")
		}
	}
}

// Who may write PodListeners in one namespace must neither change nor remove what Pods of other namespaces read.
func TestPodListenersOfAnotherNamespaceLeadToNoVolume(t *testing.T) {
	w := newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	victim := w.pod.Namespace
	w.pod.Namespace = apiserver.Namespace(t)
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "203.0.113.66")})
	w.waitUntilKept()
	if got := w.file("pvc-1")(); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
	w.delete()
	w.pod.Namespace = victim
	w.create(nil)
	w.fill(entries{"a": entry("pvc-1", "192.0.2.2")})
	w.eventually(w.file("pvc-1")).Should(Equal("192.0.2.2"))
}

func TestOtherNodesAreNotWatched(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.publish("pvc-1", "192.0.2.1")
	w.startAgent()
	other.pod = w.pod // as if the same Pod ran elsewhere
	other.create(nil)
	other.fill(entries{"a": entry("pvc-1", "192.0.2.2")})
	w.waitUntilKept()
	if got := w.file("pvc-1")(); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
}
