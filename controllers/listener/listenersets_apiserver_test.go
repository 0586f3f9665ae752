package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// newListenerSets returns a fixture with a class that has a range of ports of a Gateway, which does not exist yet.
func newListenerSets(t *testing.T, kind listenersv1alpha1.GatewayRouteKind, numbers string) *gateways {
	t.Helper()
	g := newGateways(t, kind)
	g.serve(t)
	g.change(g.class, func() { g.class.Spec.Gateway.PortRange = numbers })
	return g
}

// openGateway creates a Gateway that allows ListenerSets of all namespaces, and has a listener at port 20000.
func (g *gateways) openGateway() *gatewayv1.Gateway {
	g.Helper()
	gateway := g.createGateway(gatewayListener("own", gatewayv1.TCPProtocolType, 20000))
	g.allowListenerSets(gateway, gatewayv1.NamespacesFromAll)
	return gateway
}

func (g *gateways) allowListenerSets(gateway *gatewayv1.Gateway, from gatewayv1.FromNamespaces) {
	g.Helper()
	g.Eventually(func() error {
		g.Expect(g.api.Get(g.Context(), client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
		gateway.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &from}}
		return g.api.Update(g.Context(), gateway)
	}).Should(Succeed())
}

// ports returns the ports of the ListenerSets of the namespace, by their names, and those of their listeners.
func (g *gateways) ports() map[string]int32 {
	g.Helper()
	var sets gatewayv1.ListenerSetList
	g.Expect(client.IgnoreNotFound(g.api.List(g.Context(), &sets, client.InNamespace(g.key.Namespace)))).To(Succeed())
	ports := map[string]int32{}
	for i := range sets.Items {
		for _, entry := range sets.Items[i].Spec.Listeners {
			ports[sets.Items[i].Name+"/"+string(entry.Name)] = entry.Port
		}
	}
	return ports
}

func (g *gateways) listenerSet(name string) *gatewayv1.ListenerSet {
	g.Helper()
	set := &gatewayv1.ListenerSet{}
	g.Eventually(func() error {
		return g.api.Get(g.Context(), client.ObjectKey{Namespace: g.key.Namespace, Name: name}, set)
	}).Should(Succeed())
	return set
}

// program makes a ListenerSet one that the Gateway serves.
func (g *gateways) program(name string) {
	g.Helper()
	set := g.listenerSet(name)
	set.Status.Conditions = nil
	for _, conditionType := range []string{"Accepted", "Programmed"} {
		set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: conditionType, LastTransitionTime: metav1.Now()})
	}
	g.Expect(g.api.Status().Update(g.Context(), set)).To(Succeed())
}

func TestAListenerSetIsWrittenWhenTheGatewayAllowsIt(t *testing.T) {
	g := newListenerSets(t, listenersv1alpha1.GatewayRouteKindTCP, "20000-20999")
	crds.Remove(t, g.Client, crds.ListenerSets)
	g.createListener(nil)
	l := g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNotServed)
	g.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("requires objects of kind ListenerSet, which this cluster does not serve in gateway.networking.k8s.io/v1"))
	crds.Install(t, g.Client, crds.ListenerSets)
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNoGatewayListener)
	gateway := g.createGateway(gatewayListener("own", gatewayv1.TCPProtocolType, 20000))
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonListenerSetNotAllowed)
	g.allowListenerSets(gateway, gatewayv1.NamespacesFromAll)
	g.Eventually(g.ports).Should(Equal(map[string]int32{"web-tcp/http": 20001}))
	g.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForGateway)
	g.acceptTCP("web-http")
	g.program("web-tcp")
	g.Expect(g.eventuallyAddresses("192.0.2.1").Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 20001}))

	// The Gateway no longer allows it for some time.
	g.allowListenerSets(gateway, gatewayv1.NamespacesFromNone)
	g.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonGatewayRouteNotAccepted)
	g.allowListenerSets(gateway, gatewayv1.NamespacesFromAll)
	g.eventuallyAddresses("192.0.2.1")

	// A kind of routes that the Listener has no ports for changes nothing.
	g.change(g.class, func() { g.class.Spec.Gateway.Kind = listenersv1alpha1.GatewayRouteKindUDP })
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNoRoutablePorts)
	g.Expect(g.ports()).To(Equal(map[string]int32{"web-tcp/http": 20001}))
	g.change(g.class, func() { g.class.Spec.Gateway.Kind = listenersv1alpha1.GatewayRouteKindTCP })
	g.eventuallyAddresses("192.0.2.1")

	// Without a range, the ListenerSet is not needed, and the route has the listener of the Gateway.
	g.change(g.class, func() { g.class.Spec.Gateway.PortRange = "" })
	g.Eventually(g.ports).Should(BeEmpty())
	g.Expect(g.sections()).To(Equal(map[string]string{"web-http": "own"}))
	crds.Remove(t, g.Client, crds.ListenerSets)
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
}

// Not every Gateway serves TCP and UDP at one port.
func TestAListenerThatChangesItsProtocolGetsAnotherPort(t *testing.T) {
	g := newListenerSets(t, listenersv1alpha1.GatewayRouteKindTCP, "20000-20999")
	g.openGateway()
	g.createListener(func(l *listenersv1alpha1.Listener) {
		l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "echo", Port: 9090, Protocol: ptr.To(corev1.ProtocolUDP)})
	})
	g.Eventually(g.ports).Should(Equal(map[string]int32{"web-tcp/http": 20001}))
	g.change(g.class, func() { g.class.Spec.Gateway.Kind = listenersv1alpha1.GatewayRouteKindUDP })
	g.Eventually(g.ports).Should(Equal(map[string]int32{"web-tcp/http": 20001, "web-udp/echo": 20002}))
}

// Either of them is enough. A port outside of the range stays, too, as long as the ListenerSet has it, unless the
// Gateway itself has it.
func TestPortsOfAGatewayStayWhenAStatusOrAListenerSetIsLost(t *testing.T) {
	g := newListenerSets(t, listenersv1alpha1.GatewayRouteKindTCP, "20005-20005")
	crds.Install(t, g.Client, crds.ListenerSets)
	gateway := g.openGateway()
	g.createListener(nil)
	want := map[string]int32{"web-tcp/http": 20005}
	g.Eventually(g.ports).Should(Equal(want))
	g.acceptTCP("web-http")
	g.program("web-tcp")
	g.eventuallyAddresses("192.0.2.1")

	g.change(g.class, func() { g.class.Spec.Gateway.PortRange = "20001-20002" })
	l := g.listener()
	l.Status = nil
	g.Expect(g.Status().Update(t.Context(), l)).To(Succeed())
	g.eventuallyAddresses("192.0.2.1")
	g.Expect(g.ports()).To(Equal(want))

	g.change(g.class, func() { g.class.Spec.Gateway.PortRange = "20001-20009" })
	before := g.listenerSet("web-tcp")
	g.Expect(g.api.Delete(t.Context(), before)).To(Succeed())
	g.Eventually(func() bool { return g.listenerSet("web-tcp").UID != before.UID }).Should(BeTrue())
	g.Expect(g.ports()).To(Equal(want))

	// Another client changes the published port, and then an administrator needs it for the Gateway.
	g.program("web-tcp")
	g.eventuallyAddresses("192.0.2.1")
	set := g.listenerSet("web-tcp")
	g.change(set, func() { set.Spec.Listeners[0].Port = 9999 })
	g.Eventually(g.ports).Should(Equal(want))
	g.Expect(g.api.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
	gateway.Spec.Listeners = []gatewayv1.Listener{gatewayListener("own", gatewayv1.TCPProtocolType, 20005)}
	g.Expect(g.api.Update(t.Context(), gateway)).To(Succeed())
	g.Eventually(g.ports).Should(Equal(map[string]int32{"web-tcp/http": 20001}))
}
