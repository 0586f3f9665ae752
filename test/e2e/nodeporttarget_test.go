//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestReplicasListenOnThePortsThatTheyAdvertise: the program in each replica reads its node ports from its volume when
// it starts, listens on these numbers and no others, and is reached from outside, over TCP and UDP. Replicas that start
// again read and have the same address, also when their Service was deleted.
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
		service := &corev1.Service{}
		s.get(service, s.key("listener-"+p.Name))
		for _, port := range service.Spec.Ports {
			if port.NodePort != address.Ports[port.Name] || port.TargetPort != intstr.FromInt32(port.NodePort) {
				t.Errorf("%s advertises %v, and its Service has %+v", p.Name, address.Ports, port)
			}
		}
		s.awaitAnswer(address, p.Name)
		s.awaitAnswerOverUDP(address, p.Name)
		s.awaitFilesAt(address, address)
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

		service := &corev1.Service{}
		s.get(service, s.key("listener-"+name))
		deleted := service.UID
		s.remove(service)
		mustAwait(s, &corev1.Service{}, service.Name, func(again *corev1.Service) bool {
			return again.UID != deleted && nodePort(again, "http") == want.Ports["http"] && nodePort(again, "echo") == want.Ports["echo"]
		})
		if got := check(after); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has the address %v after its Service was deleted, and had %v", name, got, want)
		}
	}
}
