//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The host ports of the scenarios, which differ because they run at the same time.
const (
	replicaPort   = 20080
	sharedPort    = 21080
	dualStackPort = 22080
)

func atHostPorts(pinned bool) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, HostPort: &listenersv1alpha1.HostPortExposure{}, PinnedNodePorts: pinned,
	}
}

// withHostPorts gives the ports of the test server consecutive host ports.
func withHostPorts(spec *corev1.PodSpec, first int32) {
	for i := range spec.Containers[0].Ports {
		spec.Containers[0].Ports[i].HostPort = first + int32(i) //nolint:gosec // a handful
	}
}

// awaitHostPorts waits for the address of a Pod, and checks that a client outside reaches the Pod at it, that it is
// that of the node with these ports, and that the Pod reads it.
func (s *scenario) awaitHostPorts(p *corev1.Pod, answer string, ports map[string]int32) {
	s.Helper()
	entry := s.awaitPodListener(p, "listener")
	want := []listenersv1alpha1.IngressAddress{{
		Address: testbed.NodeIP(nodeOf(p)), AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports,
	}}
	if diff := cmp.Diff(want, entry.IngressAddresses); diff != "" || entry.Scope != listenersv1alpha1.ListenerScopeNode {
		s.Fatalf("scope %s, addresses of %s on %s (-want +got):\n%s", entry.Scope, p.Name, p.Spec.NodeName, diff)
	}
	s.awaitReached(answer, want...)
}

// The ports are those that the Pods declare, over TCP and UDP, and the Service opens none. A Pod that starts on another
// node is reached there.
func TestEachReplicaIsReachedAtItsHostPorts(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowPrivileged()
	class := s.createClass(atHostPorts(false))
	set := statefulSet("data", 2, byClass(class.Name))
	withHostPorts(&set.Spec.Template.Spec, replicaPort)
	s.create(set)
	ports := map[string]int32{"http": replicaPort, "echo": replicaPort + 1}
	before := map[string]*corev1.Pod{}
	for i := range 2 {
		name := fmt.Sprintf("data-%d", i)
		before[name] = s.awaitReady(name)
		s.awaitHostPorts(before[name], name, ports)
		l := s.awaitListener("listener-"+name, 1)
		if diff := cmp.Diff(s.awaitPodListener(before[name], "listener").IngressAddresses, l.Status.IngressAddresses); diff != "" {
			t.Errorf("addresses (-Pod +Listener):\n%s", diff)
		}
		service := mustGet(s, &corev1.Service{}, s.key("listener-"+name))
		if service.Spec.Type != corev1.ServiceTypeClusterIP || nodePort(service, "http") != 0 || l.Status.NodePorts != nil {
			t.Errorf("Service %s opens node ports: %+v", service.Name, service.Spec)
		}
	}
	s.patch(set, func() { set.Spec.Template.Spec.Affinity = notOn(before["data-0"].Spec.NodeName) })
	after := s.awaitReady("data-0", before["data-0"])
	if after.Spec.NodeName == before["data-0"].Spec.NodeName {
		t.Errorf("the Pod still runs on %s", after.Spec.NodeName)
	}
	s.awaitHostPorts(after, "data-0", ports)
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("listener-data-0"), func(l *listenersv1alpha1.Listener) bool {
		return len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == testbed.NodeIP(nodeOf(after))
	})
}

// Its ports are the node's, whether it declares them or not. While it is replaced, the Listener keeps the address.
func TestAPinnedPodInTheNetworkOfItsNodeKeepsItsAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowPrivileged()
	class := s.createClass(atHostPorts(true))
	set := statefulSet("data", 1, byClass(class.Name))
	set.Spec.Template.Spec.HostNetwork = true
	s.create(set)
	ports := map[string]int32{"http": 8080, "echo": 9090}
	before := s.awaitReady("data-0")
	s.awaitHostPorts(before, before.Spec.NodeName, ports) // the name of such a Pod is that of the node
	published := s.awaitListener("listener-data-0", 1).Status.IngressAddresses

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](0) })
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(before))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(before.UID)))
	if diff := cmp.Diff(published, s.awaitListener("listener-data-0", 1).Status.IngressAddresses); diff != "" {
		t.Errorf("addresses while there is no Pod (-before +now):\n%s", diff)
	}
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](1) })
	after := s.awaitReady("data-0", before)
	if after.Spec.NodeName != before.Spec.NodeName {
		t.Errorf("the Pod ran on %s and now runs on %s", before.Spec.NodeName, after.Spec.NodeName)
	}
	s.awaitHostPorts(after, after.Spec.NodeName, ports)
}

// The Listener has the address of each, and each reads its own.
func TestThreeReplicasWithHostPortsShareOneListener(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowPrivileged()
	class := s.createClass(atHostPorts(false))
	s.createBootstrapListener(class.Name)
	set := statefulSet("data", 3, byName("bootstrap"))
	withHostPorts(&set.Spec.Template.Spec, sharedPort)
	s.create(set)
	for i := range 3 {
		p := s.awaitReady(fmt.Sprintf("data-%d", i))
		own := s.awaitPodListener(p, "listener").IngressAddresses
		want := []listenersv1alpha1.IngressAddress{{
			Address: testbed.NodeIP(nodeOf(p)), AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": sharedPort},
		}}
		check.Equal(t, "addresses of "+p.Name, want, own)
		s.awaitAnswer(want[0], p.Name)
		s.awaitFilesAt(want[0], want...)
	}
	for i, a := range s.awaitListener("bootstrap", 3).Status.IngressAddresses {
		if want := testbed.NodeIP(testbed.Nodes()[i]); a.Address != want || a.Ports["http"] != sharedPort {
			t.Errorf("address %d is %+v, want port %d of %s", i, a, sharedPort, want)
		}
	}
}

// An event and a condition name the Pod, the ports and what to do.
func TestAPodWithoutHostPortsWaits(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(atHostPorts(false))
	s.create(pod("web", byClass(class.Name)))
	words := []string{s.namespace + "/web declares no hostPort", `"http" (8080/TCP)`, `"echo" (9090/UDP)`, "hostNetwork: true"}
	t.Logf("event: %s", s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress, words...))
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonNoHostPorts)
	if !containsAll(message, words) {
		t.Errorf("condition: %s", message)
	}
}
