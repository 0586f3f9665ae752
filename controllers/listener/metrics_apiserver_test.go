package listener_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// left returns what the metrics say about the ports that are left in a range of a class, or -1 if they say nothing.
func (f *fixture) left(class, kind string) int {
	f.Helper()
	families, err := metrics.Registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "listener_operator_port_range_left" && labels["class"] == class && labels["kind"] == kind {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return -1
}

// As many Listeners get a number as the metric says, although other Services have numbers of the range, and the ranges
// of two classes overlap.
func TestThePortsThatAreLeftAreThoseThatListenersCanGet(t *testing.T) {
	const first, size, overlap = 30010, 10, 5 // numbers of no other test: nothing is garbage-collected
	nodePorts := func(first int) listenersv1alpha1.ListenerClassSpec {
		return listenersv1alpha1.ListenerClassSpec{
			ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: fmt.Sprintf("%d-%d", first, first+size-1)},
		}
	}
	f := newFixture(t, nodePorts(first))
	other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: nodePorts(first + size - overlap)}
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	f.occupy(first + 2)
	checked := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "health-check"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: first + 3,
		AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}},
	}}
	f.Expect(f.Create(t.Context(), checked)).To(Succeed())
	left := func(class string) func() int { return func() int { return f.left(class, "NodePort") } }
	f.Eventually(left(f.class.Name)).Should(Equal(size - 2))
	f.Eventually(left(other.Name)).Should(Equal(size))

	inOverlap := 0
	for i := range size - 2 {
		f.key.Name = fmt.Sprint("web-", i)
		f.createListener(nil)
		if f.eventuallyNodePorts(1)["http"] >= first+size-overlap {
			inOverlap++
		}
	}
	f.key.Name = "last"
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNodePortsExhausted)
	f.Expect(f.left(f.class.Name, "NodePort")).To(Equal(0))
	f.Expect(f.left(other.Name, "NodePort")).To(Equal(size - inOverlap))

	f.Expect(f.Delete(t.Context(), other)).To(Succeed())
	f.Eventually(left(other.Name)).Should(Equal(-1))
	f.change(f.class, func() { f.class.Spec.NodePorts.Range = fmt.Sprintf("%d-%d", first, first+size+1) })
	f.eventuallyNodePorts(1)
	f.Expect(f.left(f.class.Name, "NodePort")).To(Equal(1))
}
