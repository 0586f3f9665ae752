package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

func podClass() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, Pod: &listenersv1alpha1.PodExposure{}}
}

// A NetworkPolicy restricts its clients, and the class may give it another name.
func TestPodsAreReachedByTheNameOfAHeadlessService(t *testing.T) {
	f := newFixture(t, podClass())
	f.createListener(nil)
	l := f.eventuallyAddresses("web." + f.key.Namespace + ".svc.cluster.local")
	f.Expect(f.service().Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
	f.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 80}))
	f.Expect(l.Status.NodePorts).To(BeNil())

	f.change(f.class, func() { f.class.Spec.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.0/24"} })
	f.Eventually(func(g Gomega) {
		ranges, port, _ := f.admitted()
		g.Expect(ranges).To(Equal([]string{"198.51.100.0/24"}))
		g.Expect(port).To(Equal(int32(80)))
	}).Should(Succeed())

	f.change(f.class, func() {
		f.class.Spec.Hostname = &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com"}
	})
	f.eventuallyAddresses("web." + f.key.Namespace + ".example.com")
}
