package hostport_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/hostport"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func node(name, ip string) *corev1.Node {
	n := objects.Node(name)
	if ip != "" {
		n.Status.Addresses = []corev1.NodeAddress{objects.InternalIP(ip), {Type: corev1.NodeHostName, Address: name + ".example.com"}}
	}
	return n
}

// pod returns a Pod on a node, with these ports in its second container.
func pod(name, node string, ports ...corev1.ContainerPort) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "helper", Ports: []corev1.ContainerPort{{ContainerPort: 1234, HostPort: 4321}}}, {Name: "web", Ports: ports},
		}},
	}
}

func inHostNetwork(p *corev1.Pod) *corev1.Pod {
	p.Spec.HostNetwork = true
	return p
}

// port returns a port of a container.
func port(number, hostPort int32, change func(*corev1.ContainerPort)) corev1.ContainerPort {
	p := corev1.ContainerPort{Name: "any", ContainerPort: number, HostPort: hostPort, Protocol: corev1.ProtocolTCP}
	if change != nil {
		change(&p)
	}
	return p
}

// listener returns a Listener with the ports http, 8080 TCP, and dns, 5353 UDP.
func listener() *exposure.Listener {
	return &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{
				{Name: "http", Port: 8080}, {Name: "dns", Port: 5353, Protocol: ptr.To(corev1.ProtocolUDP)},
			}},
		},
		Class: &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeClusterIP, HostPort: &listenersv1alpha1.HostPortExposure{},
		}},
	}
}

func ip(address string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}
}

// withSidecar adds a sidecar with a port to a Pod.
func withSidecar(pod *corev1.Pod, port corev1.ContainerPort) *corev1.Pod {
	pod.Spec.InitContainers = []corev1.Container{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{port}}}
	return pod
}

func udp(p *corev1.ContainerPort) { p.Protocol = corev1.ProtocolUDP }

func TestPodIsReachedAtItsNodeAndItsOwnPorts(t *testing.T) {
	both := map[string]int32{"http": 18080, "dns": 15353}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		node    *corev1.Node
		class   listenersv1alpha1.PreferredAddressType
		want    []listenersv1alpha1.IngressAddress
		message []string // parts of the message; without any it is empty
	}{
		"ports are found by number and protocol, whatever their names": {
			pod:  pod("web-0", "a", port(8080, 18080, nil), port(5353, 9, nil), port(5353, 15353, udp)),
			want: []listenersv1alpha1.IngressAddress{ip("10.0.0.1", both)},
		},
		"a sidecar declares a port": {
			pod:  withSidecar(pod("web-0", "a", port(5353, 15353, udp)), port(8080, 18080, nil)),
			want: []listenersv1alpha1.IngressAddress{ip("10.0.0.1", both)},
		},
		"TCP is the default protocol": {
			pod:  pod("web-0", "a", port(8080, 18080, func(p *corev1.ContainerPort) { p.Protocol = "" }), port(5353, 15353, udp)),
			want: []listenersv1alpha1.IngressAddress{ip("10.0.0.1", both)},
		},
		"the class prefers host names": {
			pod:   pod("web-0", "a", port(8080, 18080, nil), port(5353, 15353, udp)),
			class: listenersv1alpha1.PreferredAddressTypeHostname,
			want:  []listenersv1alpha1.IngressAddress{{Address: "a.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: both}},
		},
		"in the network of the node, whatever the containers declare": {
			pod:  inHostNetwork(pod("web-0", "a")),
			want: []listenersv1alpha1.IngressAddress{ip("10.0.0.1", map[string]int32{"http": 8080, "dns": 5353})},
		},
		"a port that is not declared is left out": {
			pod:     pod("web-0", "a", port(8080, 18080, nil), port(5353, 0, udp)),
			want:    []listenersv1alpha1.IngressAddress{ip("10.0.0.1", map[string]int32{"http": 18080})},
			message: []string{`Pod shop/web-0 declares no hostPort for "dns" (5353/UDP)`, "set hostPort in the ports", "hostNetwork: true"},
		},
		"no port is declared": {
			pod:     pod("web-0", "a", port(8080, 0, nil)),
			message: []string{`Pod shop/web-0 declares no hostPort for "http" (8080/TCP), "dns" (5353/UDP)`},
		},
		"a port on all addresses": {
			pod: pod("web-0", "a", port(8080, 18080, func(p *corev1.ContainerPort) { p.HostIP = "0.0.0.0" }), port(5353, 15353, func(p *corev1.ContainerPort) {
				p.HostIP, p.Protocol = "::", corev1.ProtocolUDP
			})),
			want: []listenersv1alpha1.IngressAddress{ip("10.0.0.1", both)},
		},
		"a port on the address of the node, and one on its loopback": {
			pod: pod("web-0", "a", port(8080, 18080, func(p *corev1.ContainerPort) { p.HostIP = "10.0.0.1" }), port(5353, 15353, func(p *corev1.ContainerPort) {
				p.HostIP, p.Protocol = "127.0.0.1", corev1.ProtocolUDP
			})),
			want:    []listenersv1alpha1.IngressAddress{ip("10.0.0.1", map[string]int32{"http": 18080})},
			message: []string{`"dns" (5353/UDP)`},
		},
		"the node has no address": {
			pod: pod("web-0", "a", port(8080, 18080, nil)), node: node("a", ""),
			message: []string{"node a has neither a valid IP address nor a valid host name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listener()
			l.Class.Spec.PreferredAddressType = tc.class
			if tc.node == nil {
				tc.node = node("a", "10.0.0.1")
			}
			got := hostport.Backend().PodAddresses(&exposure.Listener{Listener: l.Listener, Class: l.Class}, tc.pod, tc.node)
			check.Equal(t, "addresses", tc.want, got.Addresses)
			if got.Complete != (len(tc.want) > 0) {
				t.Errorf("complete is %t", got.Complete)
			}
			if (got.Message == "") != (len(tc.message) == 0) {
				t.Errorf("message %q", got.Message)
			}
			for _, part := range tc.message {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message %q, want %q in it", got.Message, part)
				}
			}
		})
	}
}

func TestListenerHasTheAddressesOfItsPods(t *testing.T) {
	a, b := node("a", "10.0.0.1"), node("b", "10.0.0.2")
	web := func(name, node string, hostPort int32) *corev1.Pod {
		return pod(name, node, port(8080, hostPort, nil), port(5353, hostPort+1, udp))
	}
	at := func(address string, hostPort int32) listenersv1alpha1.IngressAddress {
		return ip(address, map[string]int32{"http": hostPort, "dns": hostPort + 1})
	}
	for name, tc := range map[string]struct {
		nodes   []*corev1.Node
		missing []string
		pods    []*corev1.Pod
		status  *listenersv1alpha1.ListenerStatus
		want    []listenersv1alpha1.IngressAddress
		reason  string // "" if the addresses are complete
		message string // part of the message
	}{
		"in the order of the nodes": {
			nodes: []*corev1.Node{a, b}, pods: []*corev1.Pod{web("web-0", "b", 100), web("web-1", "a", 200)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 200), at("10.0.0.2", 100)},
		},
		"two Pods on a node": {
			nodes: []*corev1.Node{a}, pods: []*corev1.Pod{web("web-0", "a", 100), web("web-1", "a", 200)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100), at("10.0.0.1", 200)},
		},
		"a Pod and its successor have the same address": {
			nodes: []*corev1.Node{a}, pods: []*corev1.Pod{web("web-0", "a", 100), web("web-0", "a", 100)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100)},
		},
		"a Pod on a node without a reservation does not count": {
			nodes: []*corev1.Node{a}, pods: []*corev1.Pod{web("web-0", "a", 100), web("web-1", "b", 200)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100)},
		},
		"a node keeps its address while its Pod is replaced": {
			nodes: []*corev1.Node{a, b}, pods: []*corev1.Pod{web("web-1", "b", 200)},
			status: &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100), at("10.0.0.2", 300)}},
			want:   []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100), at("10.0.0.2", 200)},
		},
		"a node keeps its address while its Pod is replaced, also if others are advertised": {
			nodes: []*corev1.Node{a, b}, pods: []*corev1.Pod{web("web-1", "b", 200)},
			status: &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{at("198.51.100.1", 443)}, Targets: []listenersv1alpha1.Target{
				{Address: "10.0.0.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: at("10.0.0.1", 100).Ports},
				{Address: "10.0.0.2", AddressType: listenersv1alpha1.AddressTypeIP, Ports: at("10.0.0.2", 300).Ports},
			}},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100), at("10.0.0.2", 200)},
		},
		"node ports of an earlier class are not kept": {
			nodes: []*corev1.Node{a},
			status: &listenersv1alpha1.ListenerStatus{
				NodePorts: map[string]int32{"http": 30000}, IngressAddresses: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 30000)},
			},
			want: []listenersv1alpha1.IngressAddress{}, reason: listenersv1alpha1.ReasonWaitingForPods, message: "no Pod mounts",
		},
		"one Pod declares no host ports": {
			nodes: []*corev1.Node{a, b}, pods: []*corev1.Pod{pod("web-0", "a"), web("web-1", "b", 200)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.2", 200)}, message: "Pod shop/web-0 declares no hostPort",
		},
		"no Pod declares host ports": {
			nodes: []*corev1.Node{a}, pods: []*corev1.Pod{pod("web-0", "a")},
			want: []listenersv1alpha1.IngressAddress{}, reason: listenersv1alpha1.ReasonNoHostPorts, message: "Pod shop/web-0 declares no hostPort",
		},
		"one of two nodes does not exist": {
			nodes: []*corev1.Node{a}, missing: []string{"gone"}, pods: []*corev1.Pod{web("web-0", "a", 100)},
			want: []listenersv1alpha1.IngressAddress{at("10.0.0.1", 100)}, message: "gone (Node does not exist)",
		},
		"no node exists": {
			missing: []string{"gone"},
			want:    []listenersv1alpha1.IngressAddress{}, reason: listenersv1alpha1.ReasonNodesMissing, message: "gone (Node does not exist)",
		},
		"no Pod": {
			want: []listenersv1alpha1.IngressAddress{}, reason: listenersv1alpha1.ReasonWaitingForPods, message: "no Pod mounts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listener()
			l.Status = tc.status
			placement := exposure.Placement{Nodes: tc.nodes, MissingNodes: tc.missing, Mounting: tc.pods}
			got := hostport.Backend().Addresses(l, placement)
			check.Equal(t, "addresses", tc.want, got.Addresses)
			if got.Reason != tc.reason || got.Complete != (tc.reason == "") || got.NodePorts != nil {
				t.Errorf("got %+v", got)
			}
			if !strings.Contains(got.Message, tc.message) || tc.message == "" && got.Message != "" {
				t.Errorf("message %q, want %q in it", got.Message, tc.message)
			}
		})
	}
}

func TestBackendExposesClassesWithHostPort(t *testing.T) {
	b := hostport.Backend()
	if !b.Exposes(listener().Class) || b.Exposes(&listenersv1alpha1.ListenerClass{}) {
		t.Error("the backend does not expose exactly the classes with spec.hostPort")
	}
}

func TestHostPortsAtAddressesOfBothFamilies(t *testing.T) {
	both := node("a", "10.0.0.1")
	both.Status.Addresses = append(both.Status.Addresses, objects.InternalIP("fd00::1"))
	l := listener()
	l.Class.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	l.Status = &listenersv1alpha1.ListenerStatus{IPFamilies: l.Class.Spec.IPFamilies}
	onIPv4 := func(p *corev1.ContainerPort) { p.HostIP, p.Protocol = "0.0.0.0", corev1.ProtocolUDP }
	web := pod("web-0", "a", port(8080, 18080, nil), port(5353, 15353, onIPv4))

	want := []listenersv1alpha1.IngressAddress{ip("fd00::1", map[string]int32{"http": 18080}), ip("10.0.0.1", map[string]int32{"http": 18080, "dns": 15353})}
	got := hostport.Backend().PodAddresses(&exposure.Listener{Listener: l.Listener, Class: l.Class}, web, both)
	if diff := cmp.Diff(want, got.Addresses); diff != "" || got.Message != "" {
		t.Errorf("message %q, addresses of the Pod (-want +got):\n%s", got.Message, diff)
	}
	placement := exposure.Placement{Nodes: []*corev1.Node{both}, Mounting: []*corev1.Pod{web}}
	check.Equal(t, "addresses of the Listener", want, hostport.Backend().Addresses(l, placement).Addresses)
}

func TestHostPortsAtTheAdvertisedAddress(t *testing.T) {
	a, b := node("a", "10.0.0.1"), node("b", "10.0.0.2")
	a.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100.1"}
	b.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "b/example"}
	l := listener()
	l.Spec.Ports = l.Spec.Ports[:1]
	placement := exposure.Placement{
		Nodes:    []*corev1.Node{a, b},
		Mounting: []*corev1.Pod{pod("web-0", "a", port(8080, 18080, nil)), pod("web-1", "b", port(8080, 18080, nil))},
	}
	got := hostport.Backend().Addresses(l, placement)
	check.Equal(t, "addresses", []listenersv1alpha1.IngressAddress{ip("198.51.100.1", map[string]int32{"http": 18080})}, got.Addresses)
	if got.Reason != listenersv1alpha1.ReasonInvalidNodeAddress || !got.Complete || !strings.Contains(got.Message, "node b has an invalid annotation") {
		t.Errorf("got %+v", got)
	}
}

func TestOnlyListedPortsAreExposed(t *testing.T) {
	l := listener()
	l.Class.Spec.Ports = []string{"http"}
	got := hostport.Backend().PodAddresses(&exposure.Listener{Listener: l.Listener, Class: l.Class}, pod("web-0", "a", port(8080, 18080, nil), port(5353, 15353, udp)), node("a", "10.0.0.1"))
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{ip("10.0.0.1", map[string]int32{"http": 18080})}, got.Addresses); diff != "" || got.Message != "" {
		t.Errorf("message %q, addresses (-want +got):\n%s", got.Message, diff)
	}
}
