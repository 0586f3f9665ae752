package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// ingressClass returns the spec of a class with Ingresses of an IngressClass.
func ingressClass(className string) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, Ingress: &listenersv1alpha1.IngressExposure{
		ClassName: className, HostTemplate: "{listener}.{namespace}.example.com",
	}}
}

// ingress waits until the Ingress exists with another uid, and returns it.
func (f *fixture) ingress(name string, other types.UID) *networkingv1.Ingress {
	f.Helper()
	ingress := &networkingv1.Ingress{}
	f.Eventually(func(g Gomega) {
		g.Expect(f.Get(f.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: name}, ingress)).To(Succeed())
		g.Expect(ingress.UID).NotTo(Equal(other))
	}).Should(Succeed())
	return ingress
}

// take sets the addresses that a controller reports for an Ingress.
func (f *fixture) take(ingress *networkingv1.Ingress, ips ...string) {
	f.Helper()
	ingress.Status.LoadBalancer.Ingress = nil
	for _, ip := range ips {
		ingress.Status.LoadBalancer.Ingress = append(ingress.Status.LoadBalancer.Ingress, networkingv1.IngressLoadBalancerIngress{IP: ip})
	}
	f.Expect(f.Status().Update(f.Context(), ingress)).To(Succeed())
}

func TestHostOfAnIngressIsReportedWhileAControllerServesIt(t *testing.T) {
	f := newFixture(t, ingressClass("first"))
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForIngress)
	f.Expect(l.Status.IngressAddresses).To(BeEmpty())
	first := f.ingress("web-http", "")
	f.take(first, "192.0.2.1")
	host := "web." + f.key.Namespace + ".example.com"
	l = f.eventuallyAddresses(host)
	f.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 80}))

	// Another IngressClass: the Ingress is created again, without the address of the former controller.
	f.change(f.class, func() { f.class.Spec.Ingress.ClassName = "second" })
	second := f.ingress("web-http", first.UID)
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForIngress)
	f.Expect(f.listener().Status.IngressAddresses).To(BeEmpty())
	f.take(second, "192.0.2.2")
	f.eventuallyAddresses(host)

	// TLS, and the controller withdraws its address.
	f.change(f.class, func() { f.class.Spec.Ingress.TLS = &listenersv1alpha1.IngressTLS{SecretName: "{listener}-tls"} })
	f.Eventually(func() map[string]int32 { return f.eventuallyAddresses(host).Status.IngressAddresses[0].Ports }).Should(Equal(map[string]int32{"http": 443}))
	f.Expect(f.ingress("web-http", "").Spec.TLS).To(Equal([]networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "web-tls"}}))
	f.take(f.ingress("web-http", ""))
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForIngress)

	// Node ports instead.
	f.take(f.ingress("web-http", ""), "192.0.2.2")
	f.eventuallyAddresses(host)
	f.createVolume(f.createNode("10.4.0.1").Name)
	f.change(f.class, func() { f.class.Spec.Ingress, f.class.Spec.ServiceType = nil, nodePort })
	f.eventuallyAddresses("10.4.0.1")
	f.eventuallyGone(f, second)
}
