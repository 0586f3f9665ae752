//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
	"github.com/listener-operator/listener-operator/test/cluster/traefik"
)

// createGateway creates a Gateway, which Traefik serves, for routes and ListenerSets of all namespaces. Traefik serves
// no ListenerSets.
func (s *scenario) createGateway(listeners ...gatewayv1.Listener) *gatewayv1.Gateway {
	s.Helper()
	gateway := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: traefik.GatewayClass, Listeners: listeners, AllowedListeners: allNamespaces()},
	}
	s.create(gateway)
	return gateway
}

// allNamespaces allows ListenerSets of all namespaces.
func allNamespaces() *gatewayv1.AllowedListeners {
	return &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
}

func gatewayListener(name string, protocol gatewayv1.ProtocolType, port int) gatewayv1.Listener {
	l := gatewayv1.Listener{
		Name: gatewayv1.SectionName(name), Protocol: protocol, Port: gatewayv1.PortNumber(port), //nolint:gosec // a port
		AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
	}
	if protocol == gatewayv1.TLSProtocolType {
		l.TLS = &gatewayv1.ListenerTLSConfig{Mode: ptr.To(gatewayv1.TLSModePassthrough)}
	}
	return l
}

// byGateway returns the spec of a class whose Listeners are exposed by routes of the scenario's Gateway.
func (s *scenario) byGateway(kind listenersv1alpha1.GatewayRouteKind, host listenersv1alpha1.HostTemplate, ports ...string) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ports: ports, Gateway: &listenersv1alpha1.GatewayExposure{
		Kind: kind, HostTemplate: host, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: s.namespace, Name: "edge"}},
	}}
}

// awaitByHost waits until a client outside reaches a Pod through Traefik at a host name. The port has the name of the
// scheme. With https, the certificate is the Pod's, for this host.
func (s *scenario) awaitByHost(scheme string, a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.awaitThroughTraefik(trustAuthority(), scheme+"://"+hostPort(a, scheme), a, want)
}

// byRange returns the spec of a class with ports of the scenario's Gateway, which the operator allocates.
func (s *scenario) byRange(kind listenersv1alpha1.GatewayRouteKind, port string, first, last int) listenersv1alpha1.ListenerClassSpec {
	spec := s.byGateway(kind, "", port)
	spec.Gateway.PortRange = fmt.Sprintf("%d-%d", first, last)
	return spec
}

// removeReplica removes the last replica of a StatefulSet, and its claim with the Listener.
func (s *scenario) removeReplica(set *appsv1.StatefulSet, last int32) {
	s.Helper()
	s.patch(set, func() { set.Spec.Replicas = &last })
	s.remove(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("listener-%s-%d", set.Name, last)}})
}

// One port of the Gateway serves all, by the host in the TLS connection, which each replica terminates. Traefik loses
// its address and gets it again.
func TestEachReplicaIsReachedThroughAGatewayByItsHost(t *testing.T) {
	s := newScenario(t)
	s.ensureTraefik()
	prepareRouters(t) // for the CA
	s.createAuthoritySecret()
	s.createGateway(gatewayListener("tls", gatewayv1.TLSProtocolType, traefik.TLSPort))
	class := s.createClass(s.byGateway(listenersv1alpha1.GatewayRouteKindTLS, "{podName}.{namespace}.gateway.example.test", "https"))
	set := statefulSet("broker", 3, byClass(class.Name))
	addTLS(&set.Spec.Template.Spec)
	s.create(set)
	hosts := map[string]listenersv1alpha1.IngressAddress{}
	for i := range 3 {
		name := fmt.Sprintf("broker-%d", i)
		s.awaitReady(name)
		hosts[name] = hostAddress(name+"."+s.namespace+".gateway.example.test", "https", traefik.TLSPort)
		s.awaitByHost("https", hosts[name], name)
	}

	// The load balancer withdraws the address of Traefik, and so of the Gateway, and assigns it again.
	pool := func(ranges ...string) {
		t.Helper()
		s.must(metallb.SetPool(context.WithoutCancel(s.ctx), testbed, traefik.Namespace, []string{traefik.Namespace}, ranges...))
	}
	defer pool(traefikAddress() + "-" + traefikAddress())
	pool()
	s.awaitCondition("listener-broker-1", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForGateway,
		"Gateway "+s.namespace+"/edge", "no address in its status")
	pool(traefikAddress() + "-" + traefikAddress())
	for name, address := range hosts {
		s.awaitHosts("listener-"+name, address.Address)
		s.awaitByHost("https", address, name)
		if p := s.awaitReady(name); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("Pod %s was restarted", name)
		}
	}

	s.removeReplica(set, 2)
	mustAwaitDeleted(s, &gatewayv1.TLSRoute{}, s.key("listener-broker-2-https"))
}

// Each has a port of the Gateway for itself. A replica without one waits until an administrator adds one. The ports
// stay, also while a listener of the Gateway is missing, and when a route is deleted while the operator restarts.
func TestEachReplicaIsReachedThroughAGatewayByItsPort(t *testing.T) {
	s := newScenario(t)
	s.ensureTraefik()
	ports := traefik.TCPPorts()
	gateway := s.createGateway(gatewayListener("first", gatewayv1.TCPProtocolType, ports[0]), gatewayListener("second", gatewayv1.TCPProtocolType, ports[1]))
	class := s.createClass(s.byGateway(listenersv1alpha1.GatewayRouteKindTCP, "", "http"))
	set := statefulSet("broker", 2, byClass(class.Name))
	s.create(set)
	addresses, taken := map[string]listenersv1alpha1.IngressAddress{}, map[int32]bool{}
	reach := func() {
		t.Helper()
		for name, a := range addresses {
			s.awaitAnswer(a, name)
			s.awaitFilesAt(a, a)
		}
	}
	add := func(name string) {
		t.Helper()
		a := s.awaitPodAddress(s.awaitReady(name), traefikAddress())
		if taken[a.Ports["http"]] {
			t.Errorf("%s has the port %d of another replica", name, a.Ports["http"])
		}
		addresses[name], taken[a.Ports["http"]] = a, true
	}
	add("broker-0")
	add("broker-1")
	reach()

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](3) })
	s.awaitCondition("listener-broker-2", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNoGatewayListener,
		"first: Listener "+s.namespace+"/listener-broker-", "add a listener to a Gateway")
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-2", listenersv1alpha1.ReasonNoGatewayListener))
	s.patch(gateway, func() {
		gateway.Spec.Listeners = append(gateway.Spec.Listeners, gatewayListener("third", gatewayv1.TCPProtocolType, ports[2]))
	})
	add("broker-2")
	reach()

	// The Gateway loses a listener, and gets it again.
	all := gateway.Spec.Listeners
	s.patch(gateway, func() { gateway.Spec.Listeners = all[:2] })
	s.awaitCondition("listener-broker-2", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonGatewayRouteNotAccepted,
		"has no listener third with protocol TCP", "add it again")
	s.awaitHosts("listener-broker-0", traefikAddress())
	s.patch(gateway, func() { gateway.Spec.Listeners = all })
	s.awaitHosts("listener-broker-2", traefikAddress())
	reach()

	// A route is deleted while the operator restarts.
	_, awaitRestart := s.killOperator()
	deleted := mustGet(s, &gatewayv1.TCPRoute{}, s.key("listener-broker-1-http"))
	s.remove(deleted)
	mustAwait(s, &gatewayv1.TCPRoute{}, s.key(deleted.Name), func(again *gatewayv1.TCPRoute) bool { return again.UID != deleted.UID })
	awaitRestart()
	reach()

	s.removeReplica(set, 2)
	mustAwaitDeleted(s, &gatewayv1.TCPRoute{}, s.key("listener-broker-2-http"))
}
