//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestReplicasGetNodePortsOfARange: each replica is reached at a node port of its own in the range of the class, which
// stays when its Service is deleted. A replica for which no number is left waits until one is.
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
	message := s.awaitCondition("listener-broker-2", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNodePortsExhausted)
	if !containsAll(message, []string{spec.NodePorts.Range, "extend spec.nodePorts.range of ListenerClass " + class.Name}) {
		t.Errorf("condition: %s", message)
	}
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-2", listenersv1alpha1.ReasonNodePortsExhausted, spec.NodePorts.Range))

	for name, address := range addresses {
		service := &corev1.Service{}
		s.get(service, s.key("listener-"+name))
		deleted := service.UID
		s.remove(service)
		mustAwait(s, &corev1.Service{}, service.Name, func(again *corev1.Service) bool {
			return again.UID != deleted && nodePort(again, "http") == address.Ports["http"] && nodePort(again, "echo") == address.Ports["echo"]
		})
		s.awaitAnswer(address, name)
	}

	s.patch(class, func() { class.Spec.NodePorts.Range = fmt.Sprintf("%d-%d", first, last+2) })
	address := s.awaitPodListener(s.awaitReady("broker-2"), "listener").IngressAddresses[0]
	if http := address.Ports["http"]; http <= last || http > last+2 {
		t.Errorf("broker-2 has the node port %d", http)
	}
	s.awaitAnswer(address, "broker-2")
	for name, address := range addresses {
		s.awaitAnswer(address, name)
	}
}
