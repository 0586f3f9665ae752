//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// translate lets the client outside reach a node at another address, as behind NAT, until the end of the test.
func (s *scenario) translate(address string, node int) {
	s.Helper()
	s.onClient("nft", "add table ip nat-of-nodes; add chain ip nat-of-nodes output { type nat hook output priority -100; }; "+
		"add rule ip nat-of-nodes output ip daddr "+address+" dnat to "+testbed.NodeIP(node))
	s.onClientAtEnd("nft", "delete table ip nat-of-nodes")
}

// advertise annotates a node with the address to publish for it, or removes the annotation if that is nil. All Pods on
// the node are affected, so no other test may run at the same time.
func (s *scenario) advertise(ctx context.Context, node string, address *string) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.AnnotationAdvertisedAddress: address}}})
	s.must(err)
	if err := api.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Errorf("annotating %s: %v", node, err)
	}
}

// A client outside reaches a node behind NAT at the address in its annotation, which the Pod reads without a restart.
// An invalid annotation is reported, and nothing of it is published. Without the annotation, the class chooses among
// the addresses of the node.
func TestANodeAdvertisesAnotherAddress(t *testing.T) {
	s := newScenario(t)
	class, p, own := s.createReachablePod()
	node := p.Spec.NodeName
	t.Cleanup(func() { s.advertise(context.WithoutCancel(s.ctx), node, nil) })

	translated := own
	translated.Address = s.freeAddress()
	s.translate(translated.Address, nodeOf(p))
	s.advertise(s.ctx, node, &translated.Address)
	s.awaitReached("web", translated)
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("web-listener"), func(l *listenersv1alpha1.Listener) bool {
		return len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == translated.Address
	})

	invalid := translated.Address + ":80"
	s.advertise(s.ctx, node, &invalid)
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidNodeAddress)
	if words := []string{node, invalid, names.AnnotationAdvertisedAddress}; !containsAll(message, words) {
		t.Errorf("condition: %s", message)
	}
	t.Logf("event: %s", s.awaitEvent("Listener", "web-listener", listenersv1alpha1.ReasonInvalidNodeAddress, invalid))
	s.awaitFilesAt(translated, translated) // the last valid address

	s.advertise(s.ctx, node, nil)
	s.awaitFilesAt(own, own)
	named := own
	named.Address, named.AddressType = node, listenersv1alpha1.AddressTypeHostname
	s.patch(class, func() {
		class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{Types: []listenersv1alpha1.NodeAddressType{"ExternalDNS", "Hostname"}}
	})
	s.awaitFilesAt(own, named)
	s.patch(class, func() {
		class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{CIDRs: []listenersv1alpha1.CIDR{listenersv1alpha1.CIDR(own.Address + "/32")}}
	})
	s.awaitFilesAt(own, own)
}

// Each replica is reached at a node port of its own in the range of the class, which stays when its Service is deleted.
// A replica without a number waits until one is free.
func TestReplicasGetNodePortsOfARange(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	const first, last = 30060, 30063 // two replicas with two ports; Kubernetes allocates such low numbers last
	spec := unpinned()
	spec.NodePorts = &listenersv1alpha1.NodePorts{Range: fmt.Sprintf("%d-%d", first, last)}
	class := s.createClass(spec)
	set := statefulSet("broker", 2, byClass(class.Name))
	s.create(set)
	addresses := map[string]listenersv1alpha1.IngressAddress{}
	taken := map[int32]string{}
	for i := range 2 {
		name := fmt.Sprintf("broker-%d", i)
		address := s.awaitPodListener(s.awaitReady(name), "listener").IngressAddresses[0]
		for port, number := range address.Ports {
			if other := taken[number]; other != "" || number < first || number > last {
				t.Errorf("%s has the node port %d for %s, which is not in the range, or that of %q", name, number, port, other)
			}
			taken[number] = name
		}
		s.awaitAnswer(address, name)
		s.awaitAnswerOverUDP(address, name)
		addresses[name] = address
	}

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](3) })
	s.awaitCondition("listener-broker-2", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNodePortsExhausted,
		spec.NodePorts.Range, "extend spec.nodePorts.range of ListenerClass "+class.Name)
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-2", listenersv1alpha1.ReasonNodePortsExhausted, spec.NodePorts.Range))

	for name, address := range addresses {
		s.removeService("listener-"+name, func(again *corev1.Service) bool {
			return nodePort(again, "http") == address.Ports["http"] && nodePort(again, "echo") == address.Ports["echo"]
		})
		s.awaitAnswer(address, name)
	}

	s.patch(class, func() { class.Spec.NodePorts.Range = fmt.Sprintf("%d-%d", first, last+2) })
	_, address := s.awaitReachable("broker-2")
	if http := address.Ports["http"]; http <= last || http > last+2 {
		t.Errorf("broker-2 has the node port %d", http)
	}
	s.awaitAnswer(address, "broker-2")
	for name, address := range addresses {
		s.awaitAnswer(address, name)
	}
}

// The program in each replica reads its node ports from its volume when it starts, listens on these numbers and no
// others, and is reached from outside, over TCP and UDP. Replicas that start again read and have the same address, also
// when their Service was deleted.
func TestReplicasListenOnThePortsThatTheyAdvertise(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.PinnedNodePorts, spec.NodePorts = true, &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
	class := s.createClass(spec)
	set := statefulSet("data", 2, byClass(class.Name))
	server := &set.Spec.Template.Spec.Containers[0]
	server.Args = []string{"advertised"}
	server.ReadinessProbe.TCPSocket.Port = intstr.FromInt32(8081)
	s.create(set)

	check := func(p *corev1.Pod) listenersv1alpha1.IngressAddress {
		t.Helper()
		address := s.awaitPodListener(p, "listener").IngressAddresses[0]
		service := mustGet(s, &corev1.Service{}, s.key("listener-"+p.Name))
		for _, port := range service.Spec.Ports {
			if port.NodePort != address.Ports[port.Name] || port.TargetPort != intstr.FromInt32(port.NodePort) {
				t.Errorf("%s advertises %v, and its Service has %+v", p.Name, address.Ports, port)
			}
		}
		s.awaitReached(p.Name, address)
		return address
	}
	for i := range 2 {
		name := fmt.Sprintf("data-%d", i)
		before := s.awaitReady(name)
		want := check(before)

		s.remove(before)
		after := s.awaitReady(name, before)
		if got := check(after); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has the address %v after it was deleted, and had %v", name, got, want)
		}

		s.removeService("listener-"+name, func(again *corev1.Service) bool {
			return nodePort(again, "http") == want.Ports["http"] && nodePort(again, "echo") == want.Ports["echo"]
		})
		if got := check(after); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has the address %v after its Service was deleted, and had %v", name, got, want)
		}
	}
}

// The probe connects to the port that the program read at its start, as docs/choosing-a-class.md advises. So Pods stay
// ready when their ports change, and a StatefulSet that waits for each Pod restarts all of them.
func TestARollingUpdateFollowsAChangeOfThePortsThatReplicasListenOn(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	s.setPool(s.freeAddress(), s.freeAddress())
	balanced := class.Spec
	s.patch(class, func() {
		class.Spec = unpinned()
		class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
	})
	set := statefulSet("data", 2, byClass(class.Name))
	set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	template := &set.Spec.Template.Spec
	template.Volumes = append(template.Volumes, corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	server := &template.Containers[0]
	server.Args = []string{"advertised"}
	server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	server.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/server", "probe"}}}
	s.create(set)
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"data-0", "data-1"} {
		var address listenersv1alpha1.IngressAddress
		before[name], address = s.awaitReachable(name)
		if address.Ports["http"] == 8080 {
			t.Errorf("%s has the address %v, want a node port", name, address)
		}
	}

	s.patch(class, func() { class.Spec = balanced })
	for _, p := range before {
		s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
			return len(entry.IngressAddresses) == 1 && entry.IngressAddresses[0].Ports["http"] == 8080
		})
	}
	s.shell("kubectl rollout restart statefulset/data && kubectl rollout status statefulset/data --timeout=2m")
	for name, p := range before {
		if after, address := s.awaitReachable(name); after.UID == p.UID || address.Ports["http"] != 8080 {
			t.Errorf("%s is reached at %v, and was restarted: %v", name, address, after.UID != p.UID)
		}
	}
}
