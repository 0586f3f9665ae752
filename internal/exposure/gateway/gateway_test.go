package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/gateway"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// edge is the Gateway that the classes of the tests refer to.
const edge = "edge"

// input is what the routes of a Listener depend on.
type input struct {
	*exposure.Listener
	Others          []exposure.Object
	OtherNamespaces map[string]map[string]string
	OtherListeners  []listenersv1alpha1.Listener
}

// desired returns the desired routes.
func (i *input) desired(b *exposure.Backend) ([]exposure.Desired, *exposure.Refusal) {
	return b.Objects(i.Listener, exposure.Others{
		Objects: i.Others, Namespaces: i.OtherNamespaces, Taken: i.published().Has, Holder: func(registry.Key) string { return "other/web" },
	})
}

// published returns what the other Listeners have by their statuses.
func (i *input) published() sets.Set[registry.Key] {
	keys := sets.New[registry.Key]()
	for j := range i.OtherListeners {
		for _, kind := range []listenersv1alpha1.GatewayRouteKind{listenersv1alpha1.GatewayRouteKindTCP, listenersv1alpha1.GatewayRouteKindUDP} {
			other := *i.Listener
			other.Listener, other.Class = &i.OtherListeners[j], i.Class.DeepCopy()
			other.Class.Spec.Gateway.Kind = kind
			keys.Insert(gateway.Backend(kind).Published(&other)...)
		}
	}
	return keys
}

// newListener returns a Listener of a class with a kind of routes, with the ports http, admin and dns, of which the
// last one is UDP.
func newListener(kind listenersv1alpha1.GatewayRouteKind, change func(*input)) *input {
	exposed := &listenersv1alpha1.GatewayExposure{Kind: kind, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: edge}}}
	if kind == listenersv1alpha1.GatewayRouteKindTLS || kind == listenersv1alpha1.GatewayRouteKindHTTP {
		exposed.HostTemplate = "{port}.{listener}.{namespace}.example.com"
	}
	l := &input{Listener: &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "listener-uid", Labels: map[string]string{"team": "blue"}}},
		Class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "class"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: exposed},
		},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
				{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 9000}, {Name: "http", Port: 8080}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
			}},
		},
		NamespaceLabels: map[string]string{"team": "blue"},
		Referenced:      []exposure.Object{newGateway(nil)},
	}}
	if change != nil {
		change(l)
	}
	return l
}

// newGateway returns a Gateway with an address, and with listeners of all protocols that allow all namespaces: three
// for TCP, and one for each other protocol.
func newGateway(change func(*gatewayv1.Gateway)) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: edge},
		Status: gatewayv1.GatewayStatus{
			Addresses:  []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}},
			Conditions: []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue}},
		},
	}
	for _, l := range []struct {
		name     gatewayv1.SectionName
		protocol gatewayv1.ProtocolType
		port     gatewayv1.PortNumber
	}{
		{"tls", gatewayv1.TLSProtocolType, 443}, {"web", gatewayv1.HTTPProtocolType, 80}, {"secure", gatewayv1.HTTPSProtocolType, 8443},
		{"tcp-1", gatewayv1.TCPProtocolType, 9001}, {"tcp-2", gatewayv1.TCPProtocolType, 9002}, {"tcp-3", gatewayv1.TCPProtocolType, 9003},
		{"udp-1", gatewayv1.UDPProtocolType, 53},
	} {
		g.Spec.Listeners = append(g.Spec.Listeners, gatewayv1.Listener{
			Name: l.name, Protocol: l.protocol, Port: l.port,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
		})
	}
	if change != nil {
		change(g)
	}
	return g
}

// listenerOf returns a listener of a Gateway.
func listenerOf(g *gatewayv1.Gateway, name gatewayv1.SectionName) *gatewayv1.Listener {
	for i := range g.Spec.Listeners {
		if g.Spec.Listeners[i].Name == name {
			return &g.Spec.Listeners[i]
		}
	}
	return nil
}

func parentOf(section gatewayv1.SectionName) gatewayv1.ParentReference {
	parent := gatewayv1.ParentReference{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: edge}
	if section != "" {
		parent.SectionName = &section
	}
	return parent
}

// tcpRoute returns a route with a listener of the Gateway. It was created at a second.
func tcpRoute(namespace, name string, section gatewayv1.SectionName, created int64) *gatewayv1.TCPRoute {
	return &gatewayv1.TCPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       gatewayv1.TCPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{parentOf(section)}}},
	}
}

// controlled makes a Listener the controller of an object.
func controlled[T exposure.Object](o T) T {
	exposure.SetOwner(o, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}})
	return o
}

// publishing returns another Listener that publishes a port of an address.
func publishing(address string, protocol corev1.Protocol, port int32) listenersv1alpha1.Listener {
	return listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a"},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "x", Protocol: &protocol}}},
		Status:     &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: address, Ports: map[string]int32{"x": port}}}},
	}
}

func TestRoutesGolden(t *testing.T) {
	for name, l := range map[string]*input{
		"tls": newListener(listenersv1alpha1.GatewayRouteKindTLS, nil),
		"tls-of-a-pod": newListener(listenersv1alpha1.GatewayRouteKindTLS, func(l *input) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: l.Name}}
			l.Pods, l.Class.Spec.Ports, l.Class.Spec.Gateway.HostTemplate = []string{"web-1"}, []string{"http"}, "{podName}.{namespace}.example.com"
			l.Class.Spec.Gateway.ParentRefs = []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: edge, SectionName: "tls", Port: 443}, {Namespace: "infra", Name: "other"}}
		}),
		"http":           newListener(listenersv1alpha1.GatewayRouteKindHTTP, func(l *input) { l.Class.Spec.Ports = []string{"http"} }),
		"tcp":            newListener(listenersv1alpha1.GatewayRouteKindTCP, nil),
		"udp":            newListener(listenersv1alpha1.GatewayRouteKindUDP, nil),
		"tcp-of-a-range": withRange(nil),
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := l.desired(gateway.Backend(l.Class.Spec.Gateway.Kind))
			if err != nil {
				t.Fatal(err)
			}
			objects := make([]any, len(desired))
			for i := range desired {
				objects[i] = desired[i].Object
			}
			golden.Compare(t, name, objects)
		})
	}
}

// sections returns the listeners of Gateways that the desired TCPRoutes have, by the names of the routes.
func sections(t *testing.T, l *input) map[string]string {
	t.Helper()
	desired, err := l.desired(gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range desired {
		var route gatewayv1.TCPRoute
		check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &route))
		got[d.GetName()] = string(route.Spec.ParentRefs[0].Name) + "/" + string(*route.Spec.ParentRefs[0].SectionName)
	}
	return got
}

func TestEachPortHasAListenerOfTheGatewayForItself(t *testing.T) {
	type routes = map[string]string
	for name, tc := range map[string]struct {
		change func(*input)
		want   routes
	}{
		"first ones": {nil, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-2"}},
		"not those of other routes": {func(l *input) {
			l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1)}
		}, routes{"web-admin": "edge/tcp-2", "web-http": "edge/tcp-3"}},
		"not those of a port that a route of another client names": {func(l *input) {
			other := tcpRoute("other", "a", "", 1)
			other.Spec.ParentRefs[0].Port = ptr.To[gatewayv1.PortNumber](9002)
			l.Others = []exposure.Object{other}
		}, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-3"}},
		"existing ones, also if others want them": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-1", 1)}
			l.Others = []exposure.Object{tcpRoute("other", "a", "", 2)}
			l.Class.Spec.Ports = []string{"http"}
		}, routes{"web-http": "edge/tcp-1"}},
		"another one if an older route has it": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-admin", "tcp-1", 2), tcpRoute("shop", "web-http", "tcp-3", 2)}
			l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1)}
		}, routes{"web-admin": "edge/tcp-2", "web-http": "edge/tcp-3"}},
		"the first one, if that of another route does not allow its namespace": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-2", 2)}
			l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1), tcpRoute("other", "b", "tcp-2", 1)}
			l.OtherNamespaces = map[string]map[string]string{"other": {"team": "red"}}
			gateway := newGateway(nil)
			for _, name := range []gatewayv1.SectionName{"tcp-1", "tcp-2"} {
				listenerOf(gateway, name).AllowedRoutes.Namespaces = &gatewayv1.RouteNamespaces{
					From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
				}
			}
			l.Referenced = []exposure.Object{gateway}
		}, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-2"}},
		"another one, if that of another route selects its namespace": {func(l *input) {
			l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1)}
			l.OtherNamespaces = map[string]map[string]string{"other": {"team": "blue"}}
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				listenerOf(g, "tcp-1").AllowedRoutes.Namespaces = &gatewayv1.RouteNamespaces{
					From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
				}
			})}
		}, routes{"web-admin": "edge/tcp-2", "web-http": "edge/tcp-3"}},
		"the first one by name of routes of the same time": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-admin", "tcp-1", 1), tcpRoute("shop", "web-http", "tcp-3", 1)}
			l.Others = []exposure.Object{tcpRoute("zoo", "a", "tcp-1", 1)}
		}, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-3"}},
		"one that is published": {func(l *input) {
			l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Ports: map[string]int32{"http": 9001, "admin": 9003}}}}
		}, routes{"web-admin": "edge/tcp-3", "web-http": "edge/tcp-1"}},
		"one that the Gateway lacks for now": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-9", 1)}
		}, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-9"}},
		"one of a Gateway that does not exist for now": {func(l *input) {
			l.Objects, l.Referenced = []exposure.Object{tcpRoute("shop", "web-http", "tcp-1", 1)}, nil
			l.Class.Spec.Ports = []string{"http"}
		}, routes{"web-http": "edge/tcp-1"}},
		"not those whose ports other Listeners publish": {func(l *input) {
			l.OtherListeners = []listenersv1alpha1.Listener{
				publishing("192.0.2.1", corev1.ProtocolTCP, 9001), publishing("192.0.2.1", corev1.ProtocolUDP, 9002), publishing("192.0.2.9", corev1.ProtocolTCP, 9003),
			}
		}, routes{"web-admin": "edge/tcp-2", "web-http": "edge/tcp-3"}},
		"not existing ones whose ports other Listeners publish": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-1", 1)}
			l.OtherListeners = []listenersv1alpha1.Listener{publishing("192.0.2.1", corev1.ProtocolTCP, 9001)}
			l.Class.Spec.Ports = []string{"http"}
		}, routes{"web-http": "edge/tcp-2"}},
		"published ones, also if an older route of another Listener names them": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-2", 2)}
			l.Others = []exposure.Object{controlled(tcpRoute("other", "a", "tcp-2", 1))}
			l.Class.Spec.Ports = []string{"http"}
			publish(map[string]int32{"http": 9002})(l)
		}, routes{"web-http": "edge/tcp-2"}},
		"not those of another Listener, also if a previous exposure has the number": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-2", 2)}
			l.Others = []exposure.Object{controlled(tcpRoute("other", "a", "tcp-2", 1))}
			l.Class.Spec.Ports = []string{"http"}
			publish(map[string]int32{"http": 9002})(l)
			l.Status.IngressAddresses[0].Address = "192.0.2.9"
		}, routes{"web-http": "edge/tcp-1"}},
		"another one if it has another protocol now": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tls", 1)}
		}, routes{"web-admin": "edge/tcp-1", "web-http": "edge/tcp-2"}},
		"another one if the class names another Gateway": {func(l *input) {
			l.Objects = []exposure.Object{tcpRoute("shop", "web-http", "tcp-1", 1)}
			l.Class.Spec.Gateway.ParentRefs[0].Name = "next"
			l.Referenced = []exposure.Object{newGateway(nil), newGateway(func(g *gatewayv1.Gateway) { g.Name = "next" })}
		}, routes{"web-admin": "next/tcp-1", "web-http": "next/tcp-2"}},
		"of several Gateways": {func(l *input) {
			l.Class.Spec.Gateway.ParentRefs = []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: edge, Port: 9003}, {Namespace: "infra", Name: "next", SectionName: "tcp-2"}}
			l.Referenced = []exposure.Object{newGateway(nil), newGateway(func(g *gatewayv1.Gateway) { g.Name = "next" })}
		}, routes{"web-admin": "edge/tcp-3", "web-http": "next/tcp-2"}},
		"only where the namespace is allowed": {func(l *input) {
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				listenerOf(g, "tcp-1").AllowedRoutes = nil // only the namespace of the Gateway
				listenerOf(g, "tcp-2").AllowedRoutes.Namespaces = &gatewayv1.RouteNamespaces{
					From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
				}
				listenerOf(g, "tcp-3").AllowedRoutes.Namespaces = &gatewayv1.RouteNamespaces{
					From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
				}
			})}
			l.Class.Spec.Ports = []string{"http"}
		}, routes{"web-http": "edge/tcp-3"}},
		"only where the kind is allowed": {func(l *input) {
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				listenerOf(g, "tcp-1").AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: "TLSRoute"}}
				listenerOf(g, "tcp-2").AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: "TCPRoute"}}
			})}
		}, routes{"web-admin": "edge/tcp-2", "web-http": "edge/tcp-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "listeners of Gateways", tc.want, sections(t, newListener(listenersv1alpha1.GatewayRouteKindTCP, tc.change)))
		})
	}
}

func TestRouteIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    listenersv1alpha1.GatewayRouteKind
		change  func(*input)
		reason  string
		message string
		waiting listenersv1alpha1.WaitingFor // empty if it waits for nothing that others have
	}{
		"no port with the protocol": {
			listenersv1alpha1.GatewayRouteKindUDP, func(l *input) { l.Class.Spec.Ports = []string{"http"} },
			listenersv1alpha1.ReasonNoRoutablePorts, "UDPRoutes support only UDP, and ListenerClass class lists the ports http", listenersv1alpha1.WaitingFor{},
		},
		"same host for two ports": {
			listenersv1alpha1.GatewayRouteKindTLS, func(l *input) { l.Class.Spec.Gateway.HostTemplate = "{listener}.{namespace}" },
			listenersv1alpha1.ReasonInvalidHost, "add {port} to spec.gateway.hostTemplate of ListenerClass class", listenersv1alpha1.WaitingFor{},
		},
		"none free": {
			listenersv1alpha1.GatewayRouteKindTCP, func(l *input) {
				l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1)}
				l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) { listenerOf(g, "tcp-3").AllowedRoutes = nil })}
			},
			listenersv1alpha1.ReasonNoGatewayListener, "port http needs a listener of a Gateway with protocol TCP for itself, and none is free: Gateway infra/edge " +
				"(tcp-1: TCPRoute other/a has it, tcp-2: another port of this Listener has it, tcp-3: its allowedRoutes do not allow namespace shop)",
			listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindGatewayListener, NamespaceLimit: true},
		},
		"none free, which a Listener of another namespace would not get either": {
			listenersv1alpha1.GatewayRouteKindTCP, func(l *input) {
				l.Others = []exposure.Object{tcpRoute("other", "a", "tcp-1", 1), tcpRoute("other", "b", "tcp-2", 1), tcpRoute("other", "c", "tcp-3", 1)}
			},
			listenersv1alpha1.ReasonNoGatewayListener, "tcp-1: TCPRoute other/a has it", listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindGatewayListener},
		},
		"none allows the namespace": {
			listenersv1alpha1.GatewayRouteKindTCP, func(l *input) {
				l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
					for i := range g.Spec.Listeners {
						g.Spec.Listeners[i].AllowedRoutes = nil
					}
				})}
			},
			listenersv1alpha1.ReasonNoGatewayListener, "tcp-1: its allowedRoutes do not allow namespace shop", listenersv1alpha1.WaitingFor{},
		},
		"no Gateway": {
			listenersv1alpha1.GatewayRouteKindTCP, func(l *input) { l.Referenced = nil },
			listenersv1alpha1.ReasonNoGatewayListener, "none is free: Gateway infra/edge does not exist; add a listener", listenersv1alpha1.WaitingFor{},
		},
		"none with the protocol": {
			listenersv1alpha1.GatewayRouteKindTCP, func(l *input) { l.Class.Spec.Gateway.ParentRefs[0].SectionName = "tls" },
			listenersv1alpha1.ReasonNoGatewayListener, "Gateway infra/edge has none that the class refers to", listenersv1alpha1.WaitingFor{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := newListener(tc.kind, tc.change).desired(gateway.Backend(tc.kind))
			if refusal == nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
				t.Errorf("got %v, want the refusal %s with %q", refusal, tc.reason, tc.message)
			}
			if waiting := ptr.Deref(refusal.WaitingFor, listenersv1alpha1.WaitingFor{}); waiting != tc.waiting {
				t.Errorf("waits for %+v, want %+v", waiting, tc.waiting)
			}
		})
	}
}

// accepted returns the status of a route that a controller has accepted for these parents.
func accepted(parents ...gatewayv1.ParentReference) gatewayv1.RouteStatus {
	var status gatewayv1.RouteStatus
	for _, parent := range parents {
		status.Parents = append(status.Parents, gatewayv1.RouteParentStatus{ParentRef: parent, ControllerName: "example.com/c", Conditions: []metav1.Condition{
			{Type: "Accepted", Status: metav1.ConditionTrue}, {Type: "ResolvedRefs", Status: metav1.ConditionTrue},
		}})
	}
	return status
}

// observed returns a port's route for a host, as its controller has accepted it.
func observed(kind listenersv1alpha1.GatewayRouteKind, port string, host gatewayv1.Hostname, parents ...gatewayv1.ParentReference) exposure.Object {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-" + port}
	common, status := gatewayv1.CommonRouteSpec{ParentRefs: parents}, accepted(parents...)
	switch kind {
	case listenersv1alpha1.GatewayRouteKindTLS:
		return &gatewayv1.TLSRoute{ObjectMeta: meta, Spec: gatewayv1.TLSRouteSpec{CommonRouteSpec: common, Hostnames: []gatewayv1.Hostname{host}}, Status: gatewayv1.TLSRouteStatus{RouteStatus: status}}
	case listenersv1alpha1.GatewayRouteKindHTTP:
		return &gatewayv1.HTTPRoute{ObjectMeta: meta, Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: common, Hostnames: []gatewayv1.Hostname{host}}, Status: gatewayv1.HTTPRouteStatus{RouteStatus: status}}
	case listenersv1alpha1.GatewayRouteKindTCP:
		return &gatewayv1.TCPRoute{ObjectMeta: meta, Spec: gatewayv1.TCPRouteSpec{CommonRouteSpec: common}, Status: gatewayv1.TCPRouteStatus{RouteStatus: status}}
	default:
		return &gatewayv1.UDPRoute{ObjectMeta: meta, Spec: gatewayv1.UDPRouteSpec{CommonRouteSpec: common}, Status: gatewayv1.UDPRouteStatus{RouteStatus: status}}
	}
}

// withStatus returns a TLSRoute of port http with these conditions.
func withConditions(conditions ...metav1.Condition) func(*input) {
	return func(l *input) {
		route := observed(listenersv1alpha1.GatewayRouteKindTLS, "http", "a.example.com", parentOf("")).(*gatewayv1.TLSRoute)
		route.Status.Parents[0].Conditions = conditions
		l.Objects, l.Class.Spec.Ports = []exposure.Object{route}, []string{"http"}
	}
}

// withGateway returns a TLSRoute of port http that is accepted, and a Gateway with a change.
func withGateway(change func(*gatewayv1.Gateway)) func(*input) {
	return func(l *input) {
		l.Objects, l.Class.Spec.Ports = []exposure.Object{observed(listenersv1alpha1.GatewayRouteKindTLS, "http", "a.example.com", parentOf(""))}, []string{"http"}
		l.Referenced = []exposure.Object{newGateway(change)}
	}
}

func TestAddressesAreThoseThatGatewaysServe(t *testing.T) {
	const (
		tls, http, tcp, udp = listenersv1alpha1.GatewayRouteKindTLS, listenersv1alpha1.GatewayRouteKindHTTP, listenersv1alpha1.GatewayRouteKindTCP, listenersv1alpha1.GatewayRouteKindUDP
		hostname, ip        = listenersv1alpha1.AddressTypeHostname, listenersv1alpha1.AddressTypeIP
		waiting, rejected   = listenersv1alpha1.ReasonWaitingForGateway, listenersv1alpha1.ReasonGatewayRouteNotAccepted
		unusable            = listenersv1alpha1.ReasonUnusableAddress
	)
	inside := func(g *gatewayv1.Gateway) {
		g.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.HostnameAddressType), Value: "gw.infra.svc.cluster.local"}, {Value: "127.0.0.1"}}
	}
	type (
		addresses = []listenersv1alpha1.IngressAddress
		ports     = map[string]int32
	)
	condition := func(t, reason string) metav1.Condition {
		return metav1.Condition{Type: t, Status: metav1.ConditionFalse, Reason: reason, Message: "because"}
	}
	ok := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue}
	host := addresses{{Address: "a.example.com", AddressType: hostname, Ports: ports{"http": 443}}}
	for name, tc := range map[string]struct {
		kind    listenersv1alpha1.GatewayRouteKind
		change  func(*input)
		want    addresses
		reason  string
		message string
	}{
		"host of a TLSRoute": {tls, withGateway(nil), host, "", ""},
		"hosts in the order of preference, and what is left out": {tls, func(l *input) {
			l.Objects = []exposure.Object{observed(tls, "admin", "b.example.com", parentOf("")), observed(tls, "http", "a.example.com", parentOf(""))}
			l.Class.Spec.Ports = []string{"http", "admin", "dns"}
		}, append(host[:1:1], listenersv1alpha1.IngressAddress{Address: "b.example.com", AddressType: hostname, Ports: ports{"admin": 443}}), "", "port dns (TLSRoutes do not support UDP)"},
		"host of an HTTPRoute at each port of the Gateway": {http, func(l *input) {
			l.Objects, l.Class.Spec.Ports = []exposure.Object{observed(http, "http", "a.example.com", parentOf(""))}, []string{"http"}
		}, addresses{{Address: "a.example.com", AddressType: hostname, Ports: ports{"http": 80}}, {Address: "a.example.com", AddressType: hostname, Ports: ports{"http": 8443}}}, "", ""},
		"host at the named listener of the Gateway": {http, func(l *input) {
			l.Objects, l.Class.Spec.Ports = []exposure.Object{observed(http, "http", "a.example.com", parentOf("secure"))}, []string{"http"}
		}, addresses{{Address: "a.example.com", AddressType: hostname, Ports: ports{"http": 8443}}}, "", ""},
		"address of the Gateway with the ports of TCPRoutes": {tcp, func(l *input) {
			l.Objects = []exposure.Object{observed(tcp, "admin", "", parentOf("tcp-2")), observed(tcp, "http", "", parentOf("tcp-1"))}
		}, addresses{{Address: "192.0.2.1", AddressType: ip, Ports: ports{"admin": 9002, "http": 9001}}}, "", "port dns"},
		"several addresses, host names first": {udp, func(l *input) {
			l.Objects = []exposure.Object{observed(udp, "dns", "", parentOf("udp-1"))}
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				g.Status.Addresses = append(g.Status.Addresses,
					gatewayv1.GatewayStatusAddress{Type: ptr.To[gatewayv1.AddressType]("example.com/name"), Value: "x"},
					gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.HostnameAddressType), Value: "lb.example.com"})
			})}
		}, addresses{{Address: "lb.example.com", AddressType: hostname, Ports: ports{"dns": 53}}, {Address: "192.0.2.1", AddressType: ip, Ports: ports{"dns": 53}}}, "",
			"is served by Gateway infra/edge: clients outside the cluster cannot use all of its addresses: x (not a valid address of type example.com/name)"},
		"only addresses that lead nobody outside to the Gateway": {udp, func(l *input) {
			l.Objects = []exposure.Object{observed(udp, "dns", "", parentOf("udp-1"))}
			l.Referenced = []exposure.Object{newGateway(inside)}
		}, nil, unusable, "UDPRoute shop/web-dns is not served by Gateway infra/edge: the Gateway has no address that clients outside the cluster can use; its controller " +
			"reports gw.infra.svc.cluster.local (a name in the DNS of the cluster), 127.0.0.1 (a loopback address)"},
		"which may be behind a proxy that the hosts lead to": {tls, withGateway(inside), host, "",
			"TLSRoute shop/web-http is served by Gateway infra/edge: clients outside the cluster cannot use all of its addresses: gw.infra.svc.cluster.local"},
		"several addresses, IP addresses first": {udp, func(l *input) {
			l.Class.Spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
			l.Objects = []exposure.Object{observed(udp, "dns", "", parentOf("udp-1"))}
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				g.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.HostnameAddressType), Value: "lb.example.com"}, {Value: "192.0.2.1"}}
			})}
		}, addresses{{Address: "192.0.2.1", AddressType: ip, Ports: ports{"dns": 53}}, {Address: "lb.example.com", AddressType: hostname, Ports: ports{"dns": 53}}}, "", ""},
		"of two Gateways, one of which does not serve": {tls, func(l *input) {
			other := parentOf("")
			other.Name = "other"
			l.Objects, l.Class.Spec.Ports = []exposure.Object{observed(tls, "http", "a.example.com", other, parentOf(""))}, []string{"http"}
		}, host, "", "TLSRoute shop/web-http is not served by Gateway infra/other: the Gateway does not exist"},
		"former class": {tls, func(l *input) {
			withGateway(nil)(l)
			l.Class.Spec.Gateway, l.Class.Spec.Ports = nil, nil
		}, host, "", ""},

		"no route":    {tls, func(l *input) { l.Class.Spec.Ports = []string{"http"} }, nil, waiting, "TLSRoute shop/web-http does not exist yet"},
		"no Gateway":  {tls, func(l *input) { withGateway(nil)(l); l.Referenced = nil }, nil, waiting, "is not served by Gateway infra/edge: the Gateway does not exist"},
		"not decided": {tls, withConditions(), nil, waiting, "its controller has not accepted the route yet"},
		"not decided, because the listener of the Gateway is not valid": {tls, func(l *input) {
			withConditions()(l)
			l.Referenced = []exposure.Object{newGateway(func(g *gatewayv1.Gateway) {
				g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "tls", Conditions: []metav1.Condition{condition("Accepted", "UnsupportedProtocol")}}}
			})}
		}, nil, waiting, "Accepted of its listener tls is false: UnsupportedProtocol"},
		"decided for another parent": {tls, func(l *input) {
			withGateway(nil)(l)
			l.Objects[0].(*gatewayv1.TLSRoute).Status.Parents[0].ParentRef.Name = "other"
		}, nil, waiting, "has not accepted the route yet"},
		"decided for another listener of the Gateway": {tls, func(l *input) {
			withGateway(nil)(l)
			l.Objects[0].(*gatewayv1.TLSRoute).Spec.ParentRefs = []gatewayv1.ParentReference{parentOf("tls")}
		}, nil, waiting, "has not accepted the route yet"},
		"not allowed":         {tls, withConditions(condition("Accepted", "NotAllowedByListeners")), nil, rejected, "Accepted is false: NotAllowedByListeners: because; an administrator of the Gateway has to allow the namespace"},
		"no ReferenceGrant":   {tls, withConditions(ok, condition("ResolvedRefs", "RefNotPermitted")), nil, rejected, "ResolvedRefs is false: RefNotPermitted: because; a ReferenceGrant in the namespace"},
		"no ready Pods yet":   {tls, withConditions(ok, condition("ResolvedRefs", "EndpointsNotFound")), host, "", ""},
		"accepted by another": {tls, withConditions(ok), host, "", ""},
		"not programmed": {tls, withGateway(func(g *gatewayv1.Gateway) {
			g.Status.Conditions = []metav1.Condition{condition("Programmed", "AddressNotAssigned")}
		}), nil, waiting, "Programmed of the Gateway is false: AddressNotAssigned: because"},
		"not accepted": {tls, withGateway(func(g *gatewayv1.Gateway) {
			g.Status.Conditions = []metav1.Condition{condition("Accepted", "InvalidParameters"), {Type: "Programmed", Status: metav1.ConditionUnknown}}
		}), nil, waiting, "Accepted of the Gateway is false: InvalidParameters: because"},
		"no controller": {tls, withGateway(func(g *gatewayv1.Gateway) { g.Status.Conditions = nil }), nil, waiting, "the Gateway is not programmed yet; if this lasts"},
		"another listener of the Gateway is not valid": {tls, withGateway(func(g *gatewayv1.Gateway) {
			g.Status.Conditions = []metav1.Condition{condition("Programmed", "Invalid")}
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "tls", Conditions: []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue}}}}
		}), host, "", ""},
		"the listener of the Gateway is not valid": {tls, withGateway(func(g *gatewayv1.Gateway) {
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "tls", Conditions: []metav1.Condition{condition("ResolvedRefs", "RefNotPermitted")}}}
		}), nil, waiting, "ResolvedRefs of its listener tls is false: RefNotPermitted: because; a ReferenceGrant"},
		"no address": {tls, withGateway(func(g *gatewayv1.Gateway) { g.Status.Addresses = nil }), nil, waiting, "the Gateway has no address in its status yet"},
		"host that the Gateway does not serve": {tls, withGateway(func(g *gatewayv1.Gateway) {
			listenerOf(g, "tls").Hostname = ptr.To[gatewayv1.Hostname]("*.example.org")
		}), nil, rejected, "has no listener that the class refers to, with a protocol of TLSRoutes, for host a.example.com, and that allows namespace shop"},
		"host that the Gateway serves": {tls, withGateway(func(g *gatewayv1.Gateway) {
			listenerOf(g, "tls").Hostname = ptr.To[gatewayv1.Hostname]("*.example.com")
		}), host, "", ""},
		"listener of the Gateway was removed": {tcp, func(l *input) {
			l.Objects, l.Class.Spec.Ports = []exposure.Object{observed(tcp, "http", "", parentOf("tcp-9"))}, []string{"http"}
		}, nil, rejected, "it has no listener tcp-9 with protocol TCP that allows namespace shop; add it again, or delete the route"},
	} {
		t.Run(name, func(t *testing.T) {
			got := gateway.Backend(tc.kind).Addresses(newListener(tc.kind, tc.change).Listener, exposure.Placement{})
			if tc.want == nil {
				tc.want = addresses{}
			}
			check.Equal(t, "addresses", tc.want, got.Addresses)
			if got.Complete != (tc.reason == "") || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("complete %t, reason %q, message %q; want reason %q with %q", got.Complete, got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}

// A cluster may have many routes of others, and the status of a Gateway changes with each route.
func TestObjectsOfOthersAreTrimmed(t *testing.T) {
	kinds := gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP).Kinds()
	route := observed(listenersv1alpha1.GatewayRouteKindTCP, "http", "", parentOf("tcp-1")).(*gatewayv1.TCPRoute)
	route.Annotations, route.Spec.Rules = map[string]string{"a": "b"}, []gatewayv1.TCPRouteRule{{}}
	kinds[1].Trim(route)
	if diff := cmp.Diff(tcpRoute("shop", "web-http", "tcp-1", 0).Spec, route.Spec); diff != "" || route.Annotations != nil || len(route.Status.Parents) > 0 {
		t.Errorf("a trimmed route has %v, %v (-want +got):\n%s", route.Annotations, route.Status, diff)
	}
	with := func(routes int32, now time.Time) *gatewayv1.Gateway {
		g := newGateway(func(g *gatewayv1.Gateway) {
			g.Status.AttachedListenerSets = &routes
			g.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "tcp-1", AttachedRoutes: routes, Conditions: []metav1.Condition{{Type: "Programmed", LastTransitionTime: metav1.NewTime(now)}}}}
		})
		kinds[2].Trim(g)
		return g
	}
	if diff := cmp.Diff(with(1, time.Unix(1, 0)), with(2, time.Unix(2, 0))); diff != "" {
		t.Errorf("Gateways differ by their number of routes:\n%s", diff)
	}
	set := listenerSet("other", "a", 1, map[string]gatewayv1.PortNumber{"x": 9000})
	want := set.DeepCopy()
	set.Labels, set.Spec.Listeners[0].AllowedRoutes, set.Status.Listeners = map[string]string{"a": "b"}, &gatewayv1.AllowedRoutes{}, []gatewayv1.ListenerEntryStatus{{}}
	kinds[0].Trim(set)
	want.Spec.Listeners[0].Protocol = ""
	check.Equal(t, "a trimmed ListenerSet", want, set)
}
