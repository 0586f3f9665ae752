package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// gateways is a fixture with a client for the Gateway API, in versions of several releases.
type gateways struct {
	*fixture
	api client.Client
	// edge is the name of the Gateway that the class refers to.
	edge string
}

func gatewayKinds() []crds.CRD {
	return []crds.CRD{crds.Gateways, crds.TLSRoutes, crds.HTTPRoutes, crds.TCPRoutes, crds.UDPRoutes}
}

// gatewayClass returns the spec of a class with routes of a kind of a Gateway in the namespace default.
func gatewayClass(kind listenersv1alpha1.GatewayRouteKind, edge string) listenersv1alpha1.ListenerClassSpec {
	gateway := &listenersv1alpha1.GatewayExposure{Kind: kind, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: metav1.NamespaceDefault, Name: edge}}}
	if kind == listenersv1alpha1.GatewayRouteKindTLS || kind == listenersv1alpha1.GatewayRouteKindHTTP {
		gateway.HostTemplate = "{listener}.{namespace}.example.com"
	}
	return listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, Gateway: gateway}
}

// newGateways returns a fixture with a class with routes of a kind. Whether the API server serves them is unchanged.
func newGateways(t *testing.T, kind listenersv1alpha1.GatewayRouteKind) *gateways {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{gatewayv1.Install, gatewayv1alpha2.Install, apiextensionsv1.AddToScheme} {
		check.Must(t, add(scheme))
	}
	api, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	check.Must(t, err)
	edge := "edge-" + rand.String(8)
	return &gateways{newFixture(t, gatewayClass(kind, edge)), api, edge}
}

// createGateway creates a Gateway with these listeners, which is programmed and has an address.
func (g *gateways) createGateway(listeners ...gatewayv1.Listener) *gatewayv1.Gateway {
	g.Helper()
	gateway := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: g.edge},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "class", Listeners: listeners},
	}
	g.Eventually(func() error { return g.api.Create(g.Context(), gateway) }).Should(Succeed())
	g.setAddresses(gateway, "192.0.2.1")
	return gateway
}

func (g *gateways) setAddresses(gateway *gatewayv1.Gateway, addresses ...string) {
	g.Helper()
	gateway.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue, Reason: "Programmed", LastTransitionTime: metav1.Now()}}
	gateway.Status.Addresses = nil
	for _, a := range addresses {
		gateway.Status.Addresses = append(gateway.Status.Addresses, gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: a})
	}
	g.Expect(g.api.Status().Update(g.Context(), gateway)).To(Succeed())
}

func gatewayListener(name string, protocol gatewayv1.ProtocolType, port gatewayv1.PortNumber) gatewayv1.Listener {
	l := gatewayv1.Listener{
		Name: gatewayv1.SectionName(name), Protocol: protocol, Port: port,
		AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
	}
	if protocol == gatewayv1.TLSProtocolType {
		l.TLS = &gatewayv1.ListenerTLSConfig{Mode: ptr.To(gatewayv1.TLSModePassthrough)}
	}
	return l
}

func parentStatus(parent gatewayv1.ParentReference, status metav1.ConditionStatus, reason string) gatewayv1.RouteStatus {
	return gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{ParentRef: parent, ControllerName: "example.com/c", Conditions: []metav1.Condition{
		{Type: "Accepted", Status: status, Reason: reason, LastTransitionTime: metav1.Now()},
	}}}}
}

// tlsRoute waits until a TLSRoute exists, and returns it.
func (g *gateways) tlsRoute(name string) *gatewayv1.TLSRoute {
	g.Helper()
	return awaited(g.fixture, g.api, name, &gatewayv1.TLSRoute{})
}

func (g *gateways) decideTLS(name string, status metav1.ConditionStatus, reason string) {
	g.Helper()
	route := g.tlsRoute(name)
	route.Status.RouteStatus = parentStatus(route.Spec.ParentRefs[0], status, reason)
	g.Expect(g.api.Status().Update(g.Context(), route)).To(Succeed())
}

// sections returns the listeners of Gateways that the TCPRoutes of the namespace have, by the names of the routes.
func (g *gateways) sections() map[string]string {
	g.Helper()
	var routes gatewayv1.TCPRouteList
	g.Expect(g.api.List(g.Context(), &routes, client.InNamespace(g.key.Namespace))).To(Succeed())
	sections := map[string]string{}
	for _, r := range routes.Items {
		sections[r.Name] = string(*r.Spec.ParentRefs[0].SectionName)
	}
	return sections
}

// acceptTCP accepts a TCPRoute.
func (g *gateways) acceptTCP(name string) {
	g.Helper()
	route := awaited(g.fixture, g.api, name, &gatewayv1.TCPRoute{})
	route.Status.RouteStatus = parentStatus(route.Spec.ParentRefs[0], metav1.ConditionTrue, "Accepted")
	g.Expect(g.api.Status().Update(g.Context(), route)).To(Succeed())
}

func (g *gateways) serve(t *testing.T) {
	t.Helper()
	crds.Install(t, g.Client, gatewayKinds()...)
}

func TestHostOfATLSRouteIsReportedWhileAGatewayServesIt(t *testing.T) {
	g := newGateways(t, listenersv1alpha1.GatewayRouteKindTLS)
	crds.Remove(t, g.Client, gatewayKinds()...)
	g.createListener(nil)
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNotServed)
	g.serve(t)
	g.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForGateway)
	g.decideTLS("web-http", metav1.ConditionTrue, "Accepted")
	gateway := g.createGateway(gatewayListener("tls", gatewayv1.TLSProtocolType, 8443), gatewayListener("tcp", gatewayv1.TCPProtocolType, 9001))
	host := "web." + g.key.Namespace + ".example.com"
	l := g.eventuallyAddresses(host)
	g.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 8443}))

	// The Gateway loses its address and gets another one, and no longer allows the namespace for some time.
	g.setAddresses(gateway)
	g.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForGateway)
	g.Expect(g.listener().Status.IngressAddresses).To(BeEmpty())
	g.setAddresses(gateway, "192.0.2.2")
	g.eventuallyAddresses(host)
	g.decideTLS("web-http", metav1.ConditionFalse, "NotAllowedByListeners")
	g.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonGatewayRouteNotAccepted)
	g.decideTLS("web-http", metav1.ConditionTrue, "Accepted")
	g.eventuallyAddresses(host)

	// A route that is deleted is created again.
	first := g.tlsRoute("web-http")
	g.Expect(g.api.Delete(t.Context(), first)).To(Succeed())
	g.Eventually(func() bool { return g.tlsRoute("web-http").UID != first.UID }).Should(BeTrue())
	g.decideTLS("web-http", metav1.ConditionTrue, "Accepted")
	g.eventuallyAddresses(host)

	// A port of the Gateway for itself, instead: the host stays published until that is served.
	g.change(g.class, func() { g.class.Spec.Gateway = gatewayClass(listenersv1alpha1.GatewayRouteKindTCP, g.edge).Gateway })
	g.Eventually(g.sections).Should(Equal(map[string]string{"web-http": "tcp"}))
	g.Expect(g.listener().Status.IngressAddresses).To(HaveLen(1))
	g.acceptTCP("web-http")
	l = g.eventuallyAddresses("192.0.2.2")
	g.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 9001}))
	g.eventuallyGone(g.api, first) // after its grace period

	// The Gateway API is removed with all its objects, and returns.
	crds.Remove(t, g.Client, gatewayKinds()...)
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNotServed)
	g.serve(t)
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNoGatewayListener)
	g.createGateway(gatewayListener("tcp", gatewayv1.TCPProtocolType, 9001))
	g.Eventually(g.sections).Should(Equal(map[string]string{"web-http": "tcp"}))
}

// createForeignRoute creates a TCPRoute that has a listener of the Gateway.
func (g *gateways) createForeignRoute(namespace, section string) *gatewayv1.TCPRoute {
	g.Helper()
	route := &gatewayv1.TCPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-foreign"}}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{
		Namespace: ptr.To[gatewayv1.Namespace](metav1.NamespaceDefault), Name: gatewayv1.ObjectName(g.edge), SectionName: ptr.To(gatewayv1.SectionName(section)),
	}}
	route.Spec.Rules = []gatewayv1.TCPRouteRule{{BackendRefs: []gatewayv1.BackendRef{{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: "other", Port: ptr.To[gatewayv1.PortNumber](80)},
	}}}}
	g.Eventually(func() error { return g.api.Create(g.Context(), route) }).Should(Succeed())
	return route
}

// Anybody may write a TCPRoute in a namespace of their own. The namespace that a listener allows may change, and with
// it who has the port.
func TestARouteThatTheGatewayDoesNotAllowTakesNoPort(t *testing.T) {
	g := newGateways(t, listenersv1alpha1.GatewayRouteKindTCP)
	g.serve(t)
	allowed := gatewayListener("tcp-0", gatewayv1.TCPProtocolType, 9000)
	allowed.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{
		From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"gateway": g.edge}},
	}}
	g.createGateway(allowed)
	admin := apiserver.Client(t)
	label := func(name, value string) {
		namespace := &corev1.Namespace{}
		g.Expect(admin.Get(t.Context(), client.ObjectKey{Name: name}, namespace)).To(Succeed())
		namespace.Labels["gateway"] = value
		g.Expect(admin.Update(t.Context(), namespace)).To(Succeed())
	}
	other := apiserver.Namespace(t)
	g.createForeignRoute(other, "tcp-0")
	label(g.key.Namespace, g.edge)
	label(other, g.edge)
	l := g.createListener(nil)
	g.key.Name = l.Name
	g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNoGatewayListener)

	label(other, "")
	g.Eventually(g.sections).Should(HaveKeyWithValue(l.Name+"-http", "tcp-0"))
}

// A release of the Gateway API makes a kind stable, and a later one stops serving its former version.
func TestRoutesFollowTheVersionsThatAreServed(t *testing.T) {
	g := newGateways(t, listenersv1alpha1.GatewayRouteKindTCP)
	g.serve(t)
	defer crds.Remove(t, g.Client, crds.TCPRoutes)
	serveOnly := func(version string) {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: string(crds.TCPRoutes)}}
		g.Eventually(func() error {
			g.Expect(g.api.Get(t.Context(), client.ObjectKeyFromObject(crd), crd)).To(Succeed())
			for i := range crd.Spec.Versions {
				crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Name == version
			}
			return g.api.Update(t.Context(), crd)
		}).Should(Succeed())
	}
	serveOnly("v1alpha2")
	g.createGateway(gatewayListener("a", gatewayv1.TCPProtocolType, 9001), gatewayListener("b", gatewayv1.TCPProtocolType, 9002))
	g.createListener(nil)
	first := awaited(g.fixture, g.api, "web-http", &gatewayv1alpha2.TCPRoute{})
	first.Status.RouteStatus = parentStatus(first.Spec.ParentRefs[0], metav1.ConditionTrue, "Accepted")
	g.Expect(g.api.Status().Update(t.Context(), first)).To(Succeed())
	g.eventuallyAddresses("192.0.2.1")
	serveOnly("v1")

	// The route is the same one, and changes are still written and noticed.
	g.createListener(func(l *listenersv1alpha1.Listener) { l.Name = "second" })
	kind := metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "TCPRoute"}
	second := awaited(g.fixture, g.api, "second-http", &metav1.PartialObjectMetadata{TypeMeta: kind})
	g.eventuallyAddresses("192.0.2.1")
	key, uid := client.ObjectKeyFromObject(second), second.UID
	g.Expect(g.api.Delete(t.Context(), second)).To(Succeed())
	g.Eventually(func() bool { return g.api.Get(t.Context(), key, second) == nil && second.UID != uid }).Should(BeTrue())

	// A change of the class deletes it.
	g.change(g.class, func() { g.class.Spec.Gateway = nil })
	g.eventuallyAddresses("web." + g.key.Namespace + ".svc.cluster.local")
	g.eventuallyGone(g.api, second)
}

// newListenerSets returns a fixture with a class that has a range of ports of a Gateway, which does not exist yet.
func newListenerSets(t *testing.T, kind listenersv1alpha1.GatewayRouteKind, numbers string) *gateways {
	t.Helper()
	g := newGateways(t, kind)
	g.serve(t)
	g.change(g.class, func() { g.class.Spec.Gateway.PortRange = numbers })
	return g
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

// program reports that the Gateway serves a ListenerSet.
func (g *gateways) program(name string) {
	g.Helper()
	set := awaited(g.fixture, g.api, name, &gatewayv1.ListenerSet{})
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
