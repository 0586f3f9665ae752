package listener_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// sameTarget returns the spec of a class whose node ports lead to the container ports of the same numbers.
func sameTarget() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame},
	}
}

// targets returns the target ports of the Service, by port name.
func (f *fixture) targets() map[string]intstr.IntOrString {
	f.Helper()
	targets := map[string]intstr.IntOrString{}
	for _, p := range f.service().Spec.Ports {
		targets[p.Name] = p.TargetPort
	}
	return targets
}

// numbers returns target ports with these numbers.
func numbers(ports map[string]int32) map[string]intstr.IntOrString {
	targets := map[string]intstr.IntOrString{}
	for name, number := range ports {
		targets[name] = intstr.FromInt32(number)
	}
	return targets
}

func TestNodePortsLeadToTheSameContainerPorts(t *testing.T) {
	f := newFixture(t, sameTarget())
	node := f.createNode("10.3.1.1")
	f.createVolume(node.Name)
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	f.Expect(before["dns-tcp"]).To(Equal(before["dns-udp"])) // one number, in both protocols
	f.Expect(f.targets()).To(Equal(numbers(before)))
	f.Expect(f.eventuallyAddresses("10.3.1.1").Status.IngressAddresses[0].Ports).To(Equal(before))
	f.eventuallyNodePortsUnowned()
	for range 5 {
		f.deleteService()
		f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		f.Eventually(f.targets).Should(Equal(numbers(before)))
		f.eventuallyNodePortsUnowned()
	}

	service := f.service()
	f.change(service, func() { service.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })
	f.Eventually(f.targets).Should(Equal(numbers(before)))

	// Another client changes the node port of the Service, and the Listener gets another number and another port.
	reserved := f.occupy(0)
	free := reserved.Spec.Ports[0].NodePort
	f.Expect(f.Delete(t.Context(), reserved)).To(Succeed())
	f.Eventually(func() error {
		service := f.service()
		service.Spec.Ports[slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "http" })].NodePort = free
		return f.Update(t.Context(), service)
	}).Should(Succeed())
	f.Eventually(func() int32 { return f.listener().Status.NodePorts["http"] }).Should(Equal(free))
	f.Expect(f.targets()["http"]).To(Equal(intstr.FromInt32(free)))
	f.Eventually(f.nodePortEvents).Should(ConsistOf(ContainSubstring("programs have to listen on: http: %d instead of %d", free, before["http"])))

	l := f.listener()
	f.change(l, func() {
		l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}, {Name: "new", Port: 81}}
	})
	f.Eventually(func() map[string]int32 { return f.listener().Status.NodePorts }).Should(And(HaveKeyWithValue("http", free), HaveKey("new"), HaveLen(2)))
	f.Expect(f.targets()).To(Equal(numbers(f.listener().Status.NodePorts)))
}

func TestTargetPortsFollowTheClass(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	own := numbers(map[string]int32{"dns-tcp": 53, "dns-udp": 53, "http": 80})
	f.Expect(f.targets()).To(Equal(own))
	uid := f.service().UID
	for _, step := range []struct {
		change func()
		want   map[string]intstr.IntOrString
	}{
		{func() { f.class.Spec.NodePorts = sameTarget().NodePorts }, numbers(before)},
		{func() { f.class.Spec.NodePorts.Range = "30080-30085" }, numbers(before)},
		{func() { f.class.Spec.NodePorts = nil }, own},
		{func() { f.class.Spec.NodePorts = sameTarget().NodePorts }, numbers(before)},
		{func() { f.class.Spec.ServiceType, f.class.Spec.NodePorts = clusterIP, nil }, own},
		{func() { f.class.Spec = sameTarget() }, numbers(before)},
		{func() {
			f.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`)
		}, map[string]intstr.IntOrString{
			"dns-tcp": intstr.FromInt32(before["dns-tcp"]), "dns-udp": intstr.FromInt32(before["dns-udp"]), "http": intstr.FromString("web"),
		}},
	} {
		f.change(f.class, step.change)
		f.Eventually(f.targets).Should(Equal(step.want))
		if f.class.Spec.ServiceType == nodePort {
			f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		}
	}
	f.Expect(f.service().UID).To(Equal(uid))
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}
