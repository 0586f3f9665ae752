package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// advertisingClass returns the spec of a class with node ports that advertises an address and a port.
func advertisingClass(address listenersv1alpha1.AdvertisedAddress, port listenersv1alpha1.AdvertisedPort) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, Advertise: &listenersv1alpha1.Advertise{AddressTemplate: address, PortTemplate: port},
	}
}

// The Service stays as it is, the status says where to forward to, and both follow the class.
func TestAdvertisedAddressesArePublishedInPlaceOfThoseOfNodes(t *testing.T) {
	f := newFixture(t, advertisingClass("edge.example.com", "{servicePort}"))
	node := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-1"}, "192.0.2.1")
	other := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-2"}, "192.0.2.2")
	f.createVolume(node.Name)
	f.createListener(nil)
	l := f.eventuallyAddresses("edge.example.com")
	published := listenersv1alpha1.IngressAddress{Address: "edge.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}
	nodePorts := map[string]int32{"http": f.service().Spec.Ports[0].NodePort}
	target := func(name, ip string) listenersv1alpha1.Target {
		return listenersv1alpha1.Target{Address: ip, AddressType: listenersv1alpha1.AddressTypeIP, NodeName: name, Ports: nodePorts, Advertised: published}
	}
	f.Expect(l.Status.IngressAddresses).To(Equal([]listenersv1alpha1.IngressAddress{published}))
	f.Expect(l.Status.Targets).To(Equal([]listenersv1alpha1.Target{target(node.Name, "192.0.2.1")}))
	f.Expect(l.Status.NodePorts).To(Equal(nodePorts))
	f.Expect(l.Status.Endpoints).To(Equal(map[string]string{"http": "edge.example.com:80"}))
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)

	f.createVolume(other.Name)
	f.Eventually(func() []listenersv1alpha1.Target { return f.listener().Status.Targets }).Should(ConsistOf(target(node.Name, "192.0.2.1"), target(other.Name, "192.0.2.2")))
	f.eventuallyAddresses("edge.example.com")

	f.change(f.class, func() { f.class.Spec.Advertise.PortTemplate = "{servicePort}-80" })
	refused := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidAdvertisement)
	f.Expect(accepted(refused).Message).To(ContainSubstring("results in 0 for port http"))
	f.Expect(refused.Status.IngressAddresses).To(Equal([]listenersv1alpha1.IngressAddress{published}))

	f.change(f.class, func() { f.class.Spec.Advertise = nil })
	l = f.eventuallyAddresses("192.0.2.1", "192.0.2.2")
	f.Expect(l.Status.Targets).To(BeEmpty())
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.service().Spec.Ports[0].NodePort).To(Equal(nodePorts["http"]))
}

// The Service has no annotation, by which external-dns would let the name lead to all nodes.
func TestANameIsPublishedInPlaceOfTheAddressesOfNodes(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort, Hostname: &listenersv1alpha1.Hostname{
		Template: "{listener}.{namespace}.example.com", Records: listenersv1alpha1.HostnameRecordsDNSEndpoint,
	}})
	name := f.key.Name + "." + f.key.Namespace + ".example.com"
	node, other := f.createNode("192.0.2.1"), f.createNode("192.0.2.2")
	volume := f.createVolume(node.Name)
	f.createListener(nil)
	l := f.eventuallyAddresses(name)
	nodePorts := map[string]int32{"http": f.service().Spec.Ports[0].NodePort}
	published := []listenersv1alpha1.IngressAddress{{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: nodePorts}}
	f.Expect(l.Status.IngressAddresses).To(Equal(published))
	f.Expect(f.service().Annotations).NotTo(Or(HaveKey(names.AnnotationHostname), HaveKey(names.AnnotationHostname022)))

	f.change(volume, func() { volume.Annotations[names.AnnotationNode] = other.Name })
	f.Eventually(func() (ips []string) {
		for _, target := range f.listener().Status.Targets {
			ips = append(ips, target.Address)
		}
		return ips
	}).Should(Equal([]string{"192.0.2.2"}))
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(published), "while the Pod moves, the name and the port stay")
}

// The later one is refused with both names, also by a class of its own, and gets the address when the first one has
// given it up. Package holdings tests all ways to give it up, and restarts.
func TestNoTwoListenersAreAdvertisedAtOneAddress(t *testing.T) {
	address := listenersv1alpha1.AdvertisedAddress(apiserver.Namespace(t) + ".example.com") // of no other test
	f := newFixture(t, advertisingClass(address, "443"))
	other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: advertisingClass(address, "{servicePort}+363")}
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	first, second := f.key, client.ObjectKey{Namespace: apiserver.Namespace(t), Name: "later"}
	node := f.createNode("192.0.2.1")
	f.createVolume(node.Name)
	f.createListener(nil)
	f.eventuallyAddresses(string(address))

	f.key = second
	f.createVolume(node.Name)
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.ClassName = &other.Name })
	refused := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAddressTaken)
	f.Expect(accepted(refused).Message).To(ContainSubstring("a port of Listener %s is at %s:443, which Listener %s has already", second, address, first))
	f.Expect(refused.Status.IngressAddresses).To(BeEmpty())
	f.Expect(refused.Status.NodePorts).NotTo(BeEmpty())

	f.change(f.class, func() { f.class.Spec.Advertise.PortTemplate = "444" })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.eventuallyAddresses(string(address))
}
