package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// The Listener says so, and has addresses, until the Service is deleted, which is up to users: others may have its
// cluster IP. TestStatus has other types of Services.
func TestAServiceNeitherBecomesHeadlessNorStopsBeingSo(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after listenersv1alpha1.ListenerClassSpec
	}{
		"load balancer, then Pods": {ofType(loadBalancer), podClass()},
		"Pods, then cluster IP":    {podClass(), ofType(clusterIP)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.before)
			node := f.createNode("192.0.2.1")
			f.createVolume(node.Name)
			f.createListener(nil)
			if tc.before.ServiceType == loadBalancer {
				f.assign(corev1.LoadBalancerIngress{IP: "198.51.100.7"})
			}
			f.Eventually(func() bool {
				l := f.listener()
				return l.Status != nil && len(l.Status.IngressAddresses) > 0
			}).Should(BeTrue())
			before, service := f.listener().Status.IngressAddresses, f.service()

			f.change(f.class, func() { f.class.Spec = tc.after })
			l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
			message := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted).Message
			f.Expect(message).To(ContainSubstring("delete the Service"))
			f.Expect(l.Status.IngressAddresses).To(Equal(before))
			f.Expect(f.service().ResourceVersion).To(Equal(service.ResourceVersion))

			f.Expect(f.Delete(t.Context(), service, client.PropagationPolicy("Background"))).To(Succeed())
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
			now := f.service()
			f.Expect(now.UID).NotTo(Equal(service.UID))
			f.Expect(now.Spec.ClusterIP == corev1.ClusterIPNone).To(Equal(tc.after.Pod != nil))
			f.Expect(now.Spec.Type).To(Equal(corev1.ServiceType(tc.after.ServiceType)))
			if tc.after.Pod != nil {
				f.eventuallyAddresses("web." + f.key.Namespace + ".svc.cluster.local")
			}
		})
	}
}
