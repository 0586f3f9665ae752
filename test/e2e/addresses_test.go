//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// TestEachReplicaIsReachedAtItsOwnAddress covers the operator's main use: a client outside the cluster reaches each
// replica, and each replica reads its own address.
func TestEachReplicaIsReachedAtItsOwnAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 3, byClass(class.Name)))
	for i := range 3 {
		name := fmt.Sprintf("broker-%d", i)
		p := s.awaitReady(name)
		entry := s.awaitPodListener(p, "listener")
		if entry.Scope != listenersv1alpha1.ListenerScopeNode || len(entry.IngressAddresses) != 1 {
			t.Fatalf("the entry of %s is %+v, want one address of its node", name, entry)
		}
		own := entry.IngressAddresses[0]
		if own.Address != testbed.NodeIP(nodeOf(p)) {
			t.Errorf("%s on %s has the address %s", name, p.Spec.NodeName, own.Address)
		}
		s.awaitAnswer(own, name)
		s.checkFilesAt(own)
		l := s.awaitListener("listener-"+name, 1)
		if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, l.Status.IngressAddresses); diff != "" {
			t.Errorf("addresses (-Pod +Listener):\n%s", diff)
		}
		if _, err := testbed.ClientDial(s.ctx, "tcp", net.JoinHostPort(p.Status.PodIP, "8080")); err == nil {
			t.Errorf("the client reaches the IP address of Pod %s, so it is not outside the cluster", name)
		}
	}
}

// The deletion of a Pod and a rolling restart change neither address nor port.
func TestABrokerThatMovesKeepsItsAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	set := statefulSet("broker", 2, byClass(class.Name))
	s.create(set)
	before := map[string]*corev1.Pod{}
	addresses := map[string]listenersv1alpha1.IngressAddress{}
	for _, name := range []string{"broker-0", "broker-1"} {
		before[name] = s.awaitReady(name)
		addresses[name] = s.awaitPodListener(before[name], "listener").IngressAddresses[0]
	}
	check := func(name string) {
		t.Helper()
		after := s.awaitReady(name, before[name])
		if diff := cmp.Diff(addresses[name], s.awaitPodListener(after, "listener").IngressAddresses[0]); diff != "" {
			t.Errorf("address of %s (-before +after):\n%s", name, diff)
		}
		s.awaitAnswer(addresses[name], name)
		before[name] = after
	}

	s.remove(before["broker-0"])
	check("broker-0")

	s.patch(set, func() { set.Spec.Template.Annotations = map[string]string{"restarted": "yes"} })
	check("broker-1")
	check("broker-0")
}

// When the Pod starts on another node, the Listener gets that node's address.
func TestAnAddressFollowsAPodThatIsNotPinned(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	before, old := s.awaitReachable("web-0")

	// While there is no Pod, the Listener keeps the address.
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](0) })
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(before))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(before.UID)))
	l := mustGet(s, &listenersv1alpha1.Listener{}, s.key("listener-web-0"))
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{old}, l.Status.IngressAddresses); diff != "" {
		t.Errorf("addresses while there is no Pod (-before +now):\n%s", diff)
	}

	s.patch(set, func() {
		set.Spec.Replicas = ptr.To[int32](1)
		set.Spec.Template.Spec.Affinity = notOn(before.Spec.NodeName)
	})
	after := s.awaitReady("web-0", before)
	moved := s.awaitPodListener(after, "listener").IngressAddresses[0]
	if moved.Address != testbed.NodeIP(nodeOf(after)) || !maps.Equal(moved.Ports, old.Ports) {
		t.Errorf("on %s the Pod has the address %+v; before, it was %+v", after.Spec.NodeName, moved, old)
	}
	s.awaitAnswer(moved, "web-0")
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("listener-web-0"), func(l *listenersv1alpha1.Listener) bool {
		return len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == moved.Address
	})
}

// Each replica reads the address of its own node, and the Listener has those of all nodes, ordered by node name.
func TestThreeReplicasShareOneListener(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener(class.Name)
	set := statefulSet("broker", 3, byName("bootstrap"))
	spread(set)
	s.create(set)
	want := map[string]bool{}
	for i := range 3 {
		p := s.awaitReady(fmt.Sprintf("broker-%d", i))
		entry := s.awaitPodListener(p, "listener")
		if len(entry.IngressAddresses) != 1 || entry.IngressAddresses[0].Address != testbed.NodeIP(nodeOf(p)) {
			t.Errorf("the entry of %s on %s is %+v", p.Name, p.Spec.NodeName, entry)
		}
		want[testbed.NodeIP(nodeOf(p))] = true
	}
	l := s.awaitListener("bootstrap", len(want))
	var got []string
	for _, a := range l.Status.IngressAddresses {
		got = append(got, a.Address)
		s.awaitAnyAnswer(a)
	}
	check.Equal(t, "addresses", slices.Sorted(maps.Keys(want)), got)
	if l.Generation != 1 {
		t.Errorf("the spec of the user's Listener was changed: generation %d", l.Generation)
	}
}

func nodePort(service *corev1.Service, name string) int32 {
	for _, p := range service.Spec.Ports {
		if p.Name == name {
			return p.NodePort
		}
	}
	return 0
}

// A broker has its own address and a shared one, in two volumes.
func TestTwoListenersInOnePod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener("cluster-internal")
	s.create(podWith("broker", objects.EphemeralVolume("own", byClass(class.Name)), objects.EphemeralVolume("shared", byName("bootstrap"))))
	p := s.awaitReady("broker")
	own, shared := s.awaitPodListener(p, "own").IngressAddresses[0], s.awaitPodListener(p, "shared").IngressAddresses[0]
	if want := fmt.Sprintf("bootstrap.%s.svc.cluster.local", s.namespace); shared.Address != want || shared.Ports["http"] != 8080 {
		t.Errorf("the shared address is %+v, want %s:8080", shared, want)
	}
	s.awaitAnswer(own, "broker")
	want := wantFiles("own", own)
	maps.Copy(want, wantFiles("shared", shared))
	check.Equal(t, "files", want, s.readFiles(own))
	for _, name := range []string{"broker-own", "bootstrap"} {
		l := s.awaitListener(name, 1)
		if p.Labels[names.PodMountLabel(l.UID)] != name {
			t.Errorf("the Pod lacks the label of Listener %s: %v", name, p.Labels)
		}
	}
}

// A client outside the cluster reaches a UDP port.
func TestAPortCanBeUDP(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("game", byClass(class.Name)))
	_, own := s.awaitReachable("game")
	s.awaitAnswerOverUDP(own, "game")
}

// The class lists ports, and a claim restricts them further. No other port of the Pod is open to clients outside, and
// the files have none. An event names a port that the Pod does not have.
func TestOnlyListedPortsAreReachedFromOutside(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.Ports = []string{"kafka", "http"}
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	checkOnlyHTTP(s, s.awaitReady("web"), "web-listener")

	annotations := byClass(class.Name)
	annotations[names.AnnotationPorts] = "http, admin"
	s.create(pod("typo", annotations))
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "typo-listener", listenersv1alpha1.ReasonInvalidClaim, `"admin"`, "http, echo"))

	// Without a list of the class, the claim decides.
	s.patch(class, func() { class.Spec.Ports = nil })
	annotations[names.AnnotationPorts] = "http"
	s.create(pod("claimed", annotations))
	checkOnlyHTTP(s, s.awaitReady("claimed"), "claimed-listener")
	mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool { return len(service.Spec.Ports) == 2 })
}

// checkOnlyHTTP checks that clients outside reach only the port http of a Pod.
func checkOnlyHTTP(s *scenario, p *corev1.Pod, listener string) {
	s.Helper()
	address := s.awaitPodListener(p, "listener").IngressAddresses[0]
	service := mustGet(s, &corev1.Service{}, s.key(listener))
	if want := map[string]int32{"http": nodePort(service, "http")}; !cmp.Equal(want, address.Ports) || len(service.Spec.Ports) != 1 {
		s.Errorf("%s has the ports %v, and its Service %+v", p.Name, address.Ports, service.Spec.Ports)
	}
	s.awaitAnswer(address, p.Name)
	s.awaitFilesAt(address, address)
}
