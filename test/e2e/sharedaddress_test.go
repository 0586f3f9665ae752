//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestReplicasShareTheAddressOfALoadBalancer: replicas in two namespaces have one address, and are reached from outside
// at ports of their own, over TCP and UDP. The ports stay when a Service is deleted, also while the operator restarts.
// A replica for which no port is left waits until the range is extended.
func TestReplicasShareTheAddressOfALoadBalancer(t *testing.T) {
	s, other := newScenario(t), newScenario(t)
	const first, last = 9000, 9007 // four Pods with two ports
	free, address := s.freeAddress(), s.freeAddress()
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{
			Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: fmt.Sprintf("%d-%d", first, last)},
		}
		spec.LoadBalancerAllocateNodePorts = ptr.To(false)
		spec.ServiceAnnotations = map[string]string{"metallb.io/allow-shared-ip": s.namespace, "metallb.io/loadBalancerIPs": address}
	})
	s.setPoolOf([]string{s.namespace, other.namespace}, free, address)

	set := statefulSet("broker", 3, byClass(class.Name))
	s.create(set)
	other.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	addresses, taken := map[string]listenersv1alpha1.IngressAddress{}, map[int32]string{}
	reach := func() {
		t.Helper()
		for name, a := range addresses {
			s.awaitAnswer(a, name)
			s.awaitAnswerOverUDP(a, name)
			s.awaitFilesAt(a, a)
		}
	}
	add := func(s *scenario, name string) {
		t.Helper()
		addresses[name] = s.awaitPodAddress(s.awaitReady(name), address)
		for port, number := range addresses[name].Ports {
			if taken[number] != "" || number < first || number > last+2 {
				t.Errorf("%s has %d for %s, which is not in the range, or that of %q", name, number, port, taken[number])
			}
			taken[number] = name
		}
	}
	add(other, "web")
	for i := range 3 {
		add(s, fmt.Sprintf("broker-%d", i))
	}
	t.Logf("addresses: %+v", addresses)
	reach()

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](4) })
	message := s.awaitCondition("listener-broker-3", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonSharedPortsExhausted)
	if !containsAll(message, []string{"9000-9007", "extend spec.loadBalancer.sharing.portRange of ListenerClass " + class.Name}) {
		t.Errorf("condition: %s", message)
	}
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-3", listenersv1alpha1.ReasonSharedPortsExhausted))

	operator := s.operatorPod()
	restarts := operator.Status.ContainerStatuses[0].RestartCount
	for i, name := range []string{"broker-0", "broker-1"} {
		if i == 1 {
			s.killOnNode(operator.Spec.NodeName, "/operator")
		}
		service := &corev1.Service{}
		s.get(service, s.key("listener-"+name))
		deleted := service.UID
		s.remove(service)
		mustAwait(s, &corev1.Service{}, service.Name, func(again *corev1.Service) bool {
			return again.UID != deleted && len(again.Status.LoadBalancer.Ingress) == 1
		})
	}
	if _, err := await(s.timeoutContext(), &corev1.Pod{}, client.ObjectKeyFromObject(operator), func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount > restarts && isReady(p)
	}); err != nil {
		t.Fatal(err)
	}
	reach()

	s.patch(class, func() { class.Spec.LoadBalancer.Sharing.PortRange = fmt.Sprintf("%d-%d", first, last+2) })
	add(s, "broker-3")
	reach()
}
