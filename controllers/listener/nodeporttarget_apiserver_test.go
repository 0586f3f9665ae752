package listener_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// sameTarget returns the spec of a class whose node ports lead to the container ports of the same numbers.
func sameTarget() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, NodePorts: &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame},
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
func Numbers(ports map[string]int32) map[string]intstr.IntOrString {
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
	f.Expect(f.targets()).To(Equal(Numbers(before)))
	f.Expect(f.eventuallyAddresses("10.3.1.1").Status.IngressAddresses[0].Ports).To(Equal(before))
	f.eventuallyNodePortsUnowned()
	for range 5 {
		f.deleteService()
		f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		f.Eventually(f.targets).Should(Equal(Numbers(before)))
		f.eventuallyNodePortsUnowned()
	}

	service := f.service()
	f.change(service, func() { service.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })
	f.Eventually(f.targets).Should(Equal(Numbers(before)))

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
	f.Expect(f.targets()).To(Equal(Numbers(f.listener().Status.NodePorts)))
}

func TestTargetPortsFollowTheClass(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	own := Numbers(map[string]int32{"dns-tcp": 53, "dns-udp": 53, "http": 80})
	f.Expect(f.targets()).To(Equal(own))
	uid := f.service().UID
	for _, step := range []struct {
		change func()
		want   map[string]intstr.IntOrString
	}{
		{func() { f.class.Spec.NodePorts = sameTarget().NodePorts }, Numbers(before)},
		{func() { f.class.Spec.NodePorts.Range = "30080-30085" }, Numbers(before)},
		{func() { f.class.Spec.NodePorts = nil }, own},
		{func() { f.class.Spec.NodePorts = sameTarget().NodePorts }, Numbers(before)},
		{func() { f.class.Spec.ServiceType, f.class.Spec.NodePorts = listenersv1alpha1.ServiceTypeClusterIP, nil }, own},
		{func() { f.class.Spec = sameTarget() }, Numbers(before)},
		{func() {
			f.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`)
		}, map[string]intstr.IntOrString{
			"dns-tcp": intstr.FromInt32(before["dns-tcp"]), "dns-udp": intstr.FromInt32(before["dns-udp"]), "http": intstr.FromString("web"),
		}},
	} {
		f.change(f.class, step.change)
		f.Eventually(f.targets).Should(Equal(step.want))
		if f.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort {
			f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		}
	}
	f.Expect(f.service().UID).To(Equal(uid))
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

func TestTargetPortsFollowNodePortsThatListenersOverride(t *testing.T) {
	spec := sameTarget()
	spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.ports.nodePort"}}
	f := newFixture(t, spec)
	reserved := f.occupy(0)
	number := reserved.Spec.Ports[0].NodePort
	f.Expect(f.Delete(t.Context(), reserved)).To(Succeed())
	override := func(field string) func(l *listenersv1alpha1.Listener) {
		return func(l *listenersv1alpha1.Listener) {
			l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":{"ports":[{"port":80,%s}]}}`, f.key.Name, f.key.Namespace, field)}}
		}
	}
	l := f.createListener(override(fmt.Sprintf(`"nodePort":%d`, number)))
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": number}))
	f.Expect(f.targets()).To(Equal(Numbers(map[string]int32{"http": number})))

	f.change(l, func() { override(`"targetPort":22`)(l) })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidOverrides)
	f.Expect(f.targets()).To(Equal(Numbers(map[string]int32{"http": number})))
	f.change(f.class, func() {
		f.class.Spec.ListenerOverrides.Allowed = []listenersv1alpha1.ServiceField{"spec.ports.nodePort", "spec.ports.targetPort"}
	})
	f.Eventually(f.targets).Should(Equal(Numbers(map[string]int32{"http": 22})))
}

func TestTargetPortsStayAfterARestart(t *testing.T) {
	first := newFixture(t, sameTarget())
	first.createListener(nil)
	ports := first.eventuallyNodePorts(1)
	first.Expect(first.targets()).To(Equal(Numbers(ports)))
	first.eventuallyNodePortsUnowned()
	first.Eventually(first.idle).Should(BeTrue())
	service, listener := first.service().ResourceVersion, first.listener().ResourceVersion
	stopProcess(t)

	cfg, count := apiserver.Config(t), &counter{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
	before := reconciliations(t)
	second := newFixtureWith(t, settings{config: cfg}, sameTarget())
	second.key = first.key
	second.Eventually(func() float64 { return reconciliations(t) }).Should(BeNumerically(">", before))
	second.Eventually(second.idle).Should(BeTrue())
	writes := slices.DeleteFunc(count.recorded(), func(w string) bool { return !strings.Contains(w, first.key.Namespace) })
	second.Expect(len(writes)).To(BeNumerically("<=", 1)) // which changes nothing
	second.Expect([]string{second.service().ResourceVersion, second.listener().ResourceVersion}).To(Equal([]string{service, listener}))
}
