//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster/envoygateway"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
)

var withEnvoyGateway = flag.Bool("envoy-gateway", false, "run the scenarios with Envoy Gateway, as make test-envoy-gateway does")

// envoyGateway is Envoy Gateway.
var envoyGateway installation

// newEnvoyGateway returns a scenario with a Gateway that Envoy Gateway serves at the address, with a listener for each
// of HTTP and TLS. It allows the routes and the ListenerSets of all namespaces.
func newEnvoyGateway(t *testing.T) (s *scenario, address string) {
	t.Helper()
	if !*withEnvoyGateway {
		t.Skip("this scenario needs the flag -envoy-gateway; make test-envoy-gateway sets it")
	}
	s = newScenario(t)
	return s, s.createEnvoyGateway()
}

// createEnvoyGateway creates the Gateway of newEnvoyGateway, and returns its address.
func (s *scenario) createEnvoyGateway() (address string) {
	s.Helper()
	s.ensureLoadBalancer()
	address = s.freeAddress()
	envoyGateway.ensure(s, "Envoy Gateway", buildTimeout, func(ctx context.Context) error {
		return envoygateway.Install(ctx, testbed, address+"-"+address, os.Stderr)
	})
	s.must(metallb.SetPool(s.ctx, testbed, envoygateway.Namespace, []string{envoygateway.Namespace}, address+"-"+address))
	s.create(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: envoygateway.GatewayClass,
			AllowedListeners: allNamespaces(),
			Listeners:        []gatewayv1.Listener{gatewayListener("http", gatewayv1.HTTPProtocolType, 9080), gatewayListener("tls", gatewayv1.TLSProtocolType, 9443)},
		},
	})
	return address
}

// A Pod moves from one kind to the next, and a client outside uses each. Each former route stays until the Pod is
// reached by the next one, and its ListenerSet goes with it.
func TestEnvoyGatewayServesAllKindsOfRoutes(t *testing.T) {
	s, address := newEnvoyGateway(t)
	prepareRouters(t) // for the CA
	s.createAuthoritySecret()
	const template = "{listener}.{namespace}.gateway.example.test"
	class := s.createClass(s.byGateway(listenersv1alpha1.GatewayRouteKindHTTP, template, "http"))
	p := pod("web", byClass(class.Name))
	addTLS(&p.Spec)
	s.create(p)
	change := func(spec listenersv1alpha1.ListenerClassSpec) {
		t.Helper()
		s.patch(class, func() { class.Spec.Gateway, class.Spec.Ports = spec.Gateway, spec.Ports })
	}
	client := clientOf(address, 5*time.Second, trustAuthority())
	host := "web-listener." + s.namespace + ".gateway.example.test"
	awaitByHost := func(scheme string, port int32) {
		t.Helper()
		a := hostAddress(host, scheme, port)
		s.awaitThrough(client, scheme+"://"+hostPort(a, scheme), a, "web")
	}
	s.awaitReady("web")
	awaitByHost("http", 9080)

	change(s.byGateway(listenersv1alpha1.GatewayRouteKindTLS, template, "https"))
	awaitByHost("https", 9443)
	mustAwaitDeleted(s, &gatewayv1.HTTPRoute{}, s.key("web-listener-http"))

	change(s.byRange(listenersv1alpha1.GatewayRouteKindTCP, "http", 20000, 20999))
	byTCP := s.awaitPodAddress(p, address)
	s.awaitAnswer(byTCP, "web")
	s.awaitFilesAt(byTCP, byTCP)
	mustAwaitDeleted(s, &gatewayv1.TLSRoute{}, s.key("web-listener-https"))

	change(s.byRange(listenersv1alpha1.GatewayRouteKindUDP, "echo", 20000, 20999))
	mustAwaitDeleted(s, &gatewayv1.ListenerSet{}, s.key("web-listener-tcp"))
	byUDP := s.awaitPodAddress(p, address)
	s.awaitAnswerOverUDP(byUDP, "web")
	if byTCP.Ports["http"] == byUDP.Ports["echo"] {
		t.Errorf("%v and %v had the same port at the same time", byTCP, byUDP)
	}
	s.awaitNoAnswer(byTCP)

	change(listenersv1alpha1.ListenerClassSpec{})
	s.awaitHosts("web-listener", "web-listener."+s.namespace+".svc.cluster.local")
	mustAwaitDeleted(s, &gatewayv1.ListenerSet{}, s.key("web-listener-udp"))
}

// The ranges of TCP and UDP classes overlap. The ports stay when ListenerSets are deleted by hand, also while the
// operator restarts. A replica for which no port is left waits until another one goes.
func TestEnvoyGatewayHasAPortForEachReplica(t *testing.T) {
	s, address := newEnvoyGateway(t)
	const first, last = 20000, 20003 // two replicas of each of two StatefulSets
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{
		"tcp": s.byRange(listenersv1alpha1.GatewayRouteKindTCP, "http", first, last), "udp": s.byRange(listenersv1alpha1.GatewayRouteKindUDP, "echo", first, last),
	})
	tcp, udp := classes["tcp"], classes["udp"]
	brokers, games := statefulSet("broker", 2, byClass(tcp.Name)), statefulSet("game", 2, byClass(udp.Name))
	s.create(brokers)
	s.create(games)
	addresses, taken := map[string]listenersv1alpha1.IngressAddress{}, map[int32]string{}
	reach := func() {
		t.Helper()
		for name, a := range addresses {
			if a.Ports["echo"] != 0 {
				s.awaitAnswerOverUDP(a, name)
				continue
			}
			s.awaitAnswer(a, name)
			s.awaitFilesAt(a, a)
		}
	}
	add := func(name string) {
		t.Helper()
		addresses[name] = s.awaitPodAddress(s.awaitReady(name), address)
		for port, number := range addresses[name].Ports {
			if taken[number] != "" || number < first || number > last {
				t.Errorf("%s has %d for %s, which is not in the range, or that of %q", name, number, port, taken[number])
			}
			taken[number] = name
		}
	}
	for i := range 2 {
		add(fmt.Sprintf("broker-%d", i))
		add(fmt.Sprintf("game-%d", i))
	}
	t.Logf("addresses: %+v", addresses)
	reach()

	s.patch(brokers, func() { brokers.Spec.Replicas = ptr.To[int32](3) })
	s.awaitCondition("listener-broker-2", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonGatewayPortsExhausted,
		"Gateway "+s.namespace+"/edge", "20000-20003", "extend spec.gateway.portRange of ListenerClass "+tcp.Name)
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-2", listenersv1alpha1.ReasonGatewayPortsExhausted))

	var awaitRestart func()
	for i, name := range []string{"listener-broker-0-tcp", "listener-game-0-udp"} {
		if i == 1 {
			_, awaitRestart = s.killOperator()
		}
		deleted := mustGet(s, &gatewayv1.ListenerSet{}, s.key(name))
		s.remove(deleted)
		mustAwait(s, &gatewayv1.ListenerSet{}, s.key(name), func(again *gatewayv1.ListenerSet) bool { return again.UID != deleted.UID })
	}
	awaitRestart()
	reach()

	delete(taken, addresses["game-1"].Ports["echo"])
	delete(addresses, "game-1")
	s.removeReplica(games, 1)
	add("broker-2")
	reach()
}
