package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/gateway"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// openGateway returns a Gateway that allows ListenerSets of all namespaces, with a listener at port 9001 of its own.
func openGateway(name string) *gatewayv1.Gateway {
	return newGateway(func(g *gatewayv1.Gateway) {
		g.Name, g.Spec.Listeners = name, g.Spec.Listeners[3:4]
		g.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	})
}

// withRange returns a Listener of a class with a range of four ports, of which the Gateway has one.
func withRange(change func(*input)) *input {
	return newListener(listenersv1alpha1.GatewayRouteKindTCP, func(l *input) {
		l.Class.Spec.Gateway.PortRange = "9000-9003"
		l.Referenced = []exposure.Object{openGateway(edge)}
		if change != nil {
			change(l)
		}
	})
}

// listenerSet returns a ListenerSet of the Gateway with these ports, by name. It was created at a second.
func listenerSet(namespace, name string, created int64, ports map[string]gatewayv1.PortNumber) *gatewayv1.ListenerSet {
	set := &gatewayv1.ListenerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: edge}},
	}
	for port, number := range ports {
		set.Spec.Listeners = append(set.Spec.Listeners, gatewayv1.ListenerEntry{Name: gatewayv1.SectionName(port), Port: number, Protocol: gatewayv1.TCPProtocolType})
	}
	return set
}

// allocated returns the ports of the desired ListenerSet, each with the Gateway.
func allocated(t *testing.T, l *input) map[string]string {
	t.Helper()
	desired, refusal := l.desired(gateway.Backend(l.Class.Spec.Gateway.Kind))
	if refusal != nil {
		t.Fatal(refusal)
	}
	var set gatewayv1.ListenerSet
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(desired[0].Object, &set))
	got := map[string]string{}
	for _, entry := range set.Spec.Listeners {
		got[string(entry.Name)] = fmt.Sprintf("%s:%d", set.Spec.ParentRef.Name, entry.Port)
	}
	return got
}

func publish(ports map[string]int32) func(*input) {
	return func(l *input) {
		l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", Ports: ports}}}
	}
}

func TestPortsOfAGatewayAreAllocated(t *testing.T) {
	type ports = map[string]gatewayv1.PortNumber
	const own = "web-tcp"
	only := func(l *input) { l.Class.Spec.Ports = []string{"http"} }
	next := func(l *input) {
		l.Class.Spec.Gateway.ParentRefs = append(l.Class.Spec.Gateway.ParentRefs, listenersv1alpha1.GatewayParent{Namespace: "infra", Name: "next"})
		l.Referenced = append(l.Referenced, openGateway("next"))
	}
	for name, tc := range map[string]struct {
		changes []func(*input)
		want    map[string]string
	}{
		"first ones, but not that of the Gateway": {nil, map[string]string{"admin": "edge:9000", "http": "edge:9002"}},
		"not those of other ListenerSets, whatever their protocol": {[]func(*input){only, func(l *input) {
			l.Others = []exposure.Object{listenerSet("other", "a-udp", 1, ports{"x": 9000}), listenerSet("other", "b", 1, ports{"y": 9002})}
		}}, map[string]string{"http": "edge:9003"}},
		"not those that other Listeners publish": {[]func(*input){only, func(l *input) {
			l.OtherListeners = []listenersv1alpha1.Listener{publishing("192.0.2.1", corev1.ProtocolUDP, 9000)}
		}}, map[string]string{"http": "edge:9002"}},
		"those that other Listeners publish at another address": {[]func(*input){only, func(l *input) {
			l.OtherListeners = []listenersv1alpha1.Listener{publishing("192.0.2.9", corev1.ProtocolTCP, 9000)}
		}}, map[string]string{"http": "edge:9000"}},
		"not those that the ListenerSet has, if other Listeners publish them": {[]func(*input){only, func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9002})}
			l.OtherListeners = []listenersv1alpha1.Listener{publishing("192.0.2.1", corev1.ProtocolTCP, 9002)}
		}}, map[string]string{"http": "edge:9000"}},
		"those that are published, also if an older ListenerSet of another Listener has them": {[]func(*input){only, publish(map[string]int32{"http": 9002}), func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 2, ports{"http": 9002})}
			l.Others = []exposure.Object{controlled(listenerSet("other", "a", 1, ports{"x": 9002}))}
		}}, map[string]string{"http": "edge:9002"}},
		"not those of another Listener, also if a previous exposure has the number": {[]func(*input){only, publish(map[string]int32{"http": 9002}), func(l *input) {
			l.Status.IngressAddresses[0].Address = "192.0.2.9"
			l.Others = []exposure.Object{controlled(listenerSet("other", "a", 1, ports{"x": 9002}))}
		}}, map[string]string{"http": "edge:9000"}},
		"those behind an advertised address, if there is no ListenerSet": {[]func(*input){only, func(l *input) {
			l.Status = &listenersv1alpha1.ListenerStatus{
				IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "proxy.example.com", Ports: map[string]int32{"http": 443}}},
				Targets:          []listenersv1alpha1.Target{{Address: "192.0.2.1", Ports: map[string]int32{"http": 9003}}},
			}
		}}, map[string]string{"http": "edge:9003"}},
		"those of ListenerSets of another Gateway": {[]func(*input){only, func(l *input) {
			other := listenerSet("infra", "a", 1, ports{"x": 9000})
			other.Spec.ParentRef = gatewayv1.ParentGatewayReference{Name: "next"}
			l.Others = []exposure.Object{other}
		}}, map[string]string{"http": "edge:9000"}},
		"those of ListenerSets that the Gateway does not allow": {[]func(*input){only, func(l *input) {
			l.Referenced[0].(*gatewayv1.Gateway).Spec.AllowedListeners.Namespaces = &gatewayv1.ListenerNamespaces{
				From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
			}
			l.Others = []exposure.Object{listenerSet("other", "a", 1, ports{"x": 9000}), listenerSet("third", "a", 1, ports{"x": 9002})}
			l.OtherNamespaces = map[string]map[string]string{"third": {"team": "blue"}}
		}}, map[string]string{"http": "edge:9000"}},
		"those that the ListenerSet has": {[]func(*input){func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9000})}
		}}, map[string]string{"admin": "edge:9002", "http": "edge:9000"}},
		"those that the ListenerSet has, each once": {[]func(*input){func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9002, "admin": 9002})} // others wrote it
		}}, map[string]string{"admin": "edge:9002", "http": "edge:9000"}},
		"those that the ListenerSet has and one of its addresses publishes": {[]func(*input){only, publish(map[string]int32{"http": 9002}), func(l *input) {
			l.Status.IngressAddresses = append(l.Status.IngressAddresses, listenersv1alpha1.IngressAddress{Address: "192.0.2.2", Ports: map[string]int32{"http": 9003}})
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9003})}
		}}, map[string]string{"http": "edge:9003"}},
		"those that the ListenerSet has, also if a younger one wants them": {[]func(*input){only, func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9002})}
			l.Others = []exposure.Object{listenerSet("other", "a", 2, ports{"x": 9002})}
		}}, map[string]string{"http": "edge:9002"}},
		"another one if an older ListenerSet has it": {[]func(*input){only, func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 2, ports{"http": 9002})}
			l.Others = []exposure.Object{listenerSet("other", "a", 1, ports{"x": 9002})}
		}}, map[string]string{"http": "edge:9000"}},
		"another one if an administrator adds it to the Gateway": {[]func(*input){only, func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 2, ports{"http": 9001})}
		}}, map[string]string{"http": "edge:9000"}},
		"those that are published, if there is no ListenerSet": {[]func(*input){publish(map[string]int32{"http": 9000, "admin": 9003})},
			map[string]string{"admin": "edge:9003", "http": "edge:9000"}},
		"those that are published, if another client has changed the ListenerSet": {[]func(*input){only, publish(map[string]int32{"http": 9003}), func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9002})}
		}}, map[string]string{"http": "edge:9003"}},
		"those that the ListenerSet has, also outside of the range": {[]func(*input){publish(map[string]int32{"http": 8000}), func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 8000, "admin": 8001})}
		}}, map[string]string{"admin": "edge:8001", "http": "edge:8000"}},
		"those that the ListenerSet has, also if a previous exposure has one of the range": {[]func(*input){only, publish(map[string]int32{"http": 9001}), func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9003})}
		}}, map[string]string{"http": "edge:9003"}},
		"not those of a previous exposure": {[]func(*input){only, publish(map[string]int32{"http": 31000})}, map[string]string{"http": "edge:9000"}},
		"of a Gateway that does not exist for now": {[]func(*input){only, func(l *input) {
			l.Objects, l.Referenced = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9003})}, nil
		}}, map[string]string{"http": "edge:9003"}},
		"of a Gateway that does not allow it for now": {[]func(*input){only, func(l *input) {
			l.Objects = []exposure.Object{listenerSet("shop", own, 1, ports{"http": 9003})}
			l.Referenced[0].(*gatewayv1.Gateway).Spec.AllowedListeners = nil
		}}, map[string]string{"http": "edge:9003"}},
		"of the next Gateway, if the first one has too few": {[]func(*input){next, func(l *input) { l.Class.Spec.Gateway.PortRange = "9000-9001" }, only, func(l *input) {
			l.Others = []exposure.Object{listenerSet("other", "a", 1, ports{"x": 9000})}
		}}, map[string]string{"http": "next:9000"}},
		"of the Gateway whose address is published": {[]func(*input){next, only, publish(map[string]int32{"http": 9002}), func(l *input) {
			l.Referenced[0].(*gatewayv1.Gateway).Status.Addresses = nil
		}}, map[string]string{"http": "next:9002"}},
		"of its Gateway, also if an earlier one of the class has some": {[]func(*input){next, only, func(l *input) {
			set := listenerSet("shop", own, 1, ports{"http": 9002})
			set.Spec.ParentRef.Name = "next"
			l.Objects = []exposure.Object{set}
		}}, map[string]string{"http": "next:9002"}},
		"of another Gateway, if the class no longer refers to its own": {[]func(*input){only, func(l *input) {
			set := listenerSet("shop", own, 1, ports{"http": 9002})
			set.Spec.ParentRef.Name = "former"
			l.Objects = []exposure.Object{set}
			l.Others = []exposure.Object{listenerSet("other", "a", 2, ports{"x": 9002})}
		}}, map[string]string{"http": "edge:9000"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := allocated(t, withRange(func(l *input) {
				for _, change := range tc.changes {
					change(l)
				}
			}))
			check.Equal(t, "ports of Gateways", tc.want, got)
		})
	}
}

func TestListenerSetIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change          func(*input)
		reason, message string
		waiting         listenersv1alpha1.WaitingFor // empty if it waits for nothing that others have
	}{
		"full": {
			func(l *input) { l.Class.Spec.Gateway.PortRange = "9000-9001" }, listenersv1alpha1.ReasonGatewayPortsExhausted,
			"no port of Gateway infra/edge is left for port http: its other listeners have all of 9000-9001; extend spec.gateway.portRange of ListenerClass class",
			listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindGatewayPort},
		},
		"full, and another one does not allow the namespace": {
			func(l *input) {
				l.Class.Spec.Gateway.PortRange = "9000-9001"
				l.Class.Spec.Gateway.ParentRefs = append(l.Class.Spec.Gateway.ParentRefs, listenersv1alpha1.GatewayParent{Namespace: "infra", Name: "closed"})
				closed := l.Referenced[0].(*gatewayv1.Gateway).DeepCopy()
				closed.Name, closed.Spec.AllowedListeners = "closed", nil
				l.Referenced = append(l.Referenced, closed)
			},
			listenersv1alpha1.ReasonGatewayPortsExhausted, "Gateway infra/closed does not allow ListenerSets of namespace shop",
			listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindGatewayPort, NamespaceLimit: true},
		},
		"not allowed": {
			func(l *input) { l.Referenced[0].(*gatewayv1.Gateway).Spec.AllowedListeners = nil }, listenersv1alpha1.ReasonListenerSetNotAllowed,
			"Gateway infra/edge does not allow ListenerSets of namespace shop; an administrator has to allow the namespace in spec.allowedListeners of the Gateway",
			listenersv1alpha1.WaitingFor{},
		},
		"no Gateway": {
			func(l *input) { l.Referenced = nil }, listenersv1alpha1.ReasonNoGatewayListener, "Gateway infra/edge does not exist; create it",
			listenersv1alpha1.WaitingFor{},
		},
		"no port": {
			func(l *input) { l.Class.Spec.Ports = []string{"dns"} }, listenersv1alpha1.ReasonNoRoutablePorts, "TCPRoutes support only TCP",
			listenersv1alpha1.WaitingFor{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := withRange(tc.change).desired(gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP))
			if refusal == nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
				t.Errorf("got %v, want the refusal %s with %q", refusal, tc.reason, tc.message)
			}
			if waiting := ptr.Deref(refusal.WaitingFor, listenersv1alpha1.WaitingFor{}); waiting != tc.waiting {
				t.Errorf("waits for %+v, want %+v", waiting, tc.waiting)
			}
		})
	}
}

func TestAddressesAreThoseOfListenerSetsThatAGatewayServes(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: "because"}
	}
	parent := gatewayv1.ParentReference{Kind: ptr.To[gatewayv1.Kind]("ListenerSet"), Namespace: ptr.To[gatewayv1.Namespace]("shop"), Name: "web-tcp", SectionName: ptr.To[gatewayv1.SectionName]("http")}
	programmed := []metav1.Condition{condition("Accepted", metav1.ConditionTrue, "Accepted"), condition("Programmed", metav1.ConditionTrue, "Programmed")}
	for name, tc := range map[string]struct {
		change          func(l *input, set *gatewayv1.ListenerSet)
		reason, message string
	}{
		"served": {},
		"served, although another listener of it is not": {change: func(_ *input, set *gatewayv1.ListenerSet) {
			set.Status.Conditions = []metav1.Condition{condition("Accepted", metav1.ConditionFalse, "ListenersNotValid")}
			set.Status.Listeners = []gatewayv1.ListenerEntryStatus{{Name: "http", Conditions: programmed}}
		}},
		"no ListenerSet":   {func(l *input, _ *gatewayv1.ListenerSet) { l.Objects = l.Objects[:1] }, listenersv1alpha1.ReasonWaitingForGateway, "TCPRoute shop/web-http refers to no Gateway"},
		"no Gateway":       {func(l *input, _ *gatewayv1.ListenerSet) { l.Referenced = nil }, listenersv1alpha1.ReasonWaitingForGateway, "the Gateway does not exist"},
		"no controller":    {func(_ *input, set *gatewayv1.ListenerSet) { set.Status.Conditions = nil }, listenersv1alpha1.ReasonWaitingForGateway, "ListenerSet shop/web-tcp is not programmed yet"},
		"no such listener": {func(_ *input, set *gatewayv1.ListenerSet) { set.Spec.Listeners[0].Name = "x" }, listenersv1alpha1.ReasonWaitingForGateway, "has no listener http"},
		"no longer allowed": {func(l *input, _ *gatewayv1.ListenerSet) {
			l.Referenced[0].(*gatewayv1.Gateway).Spec.AllowedListeners = nil
		},
			listenersv1alpha1.ReasonGatewayRouteNotAccepted, "does not allow ListenerSets of namespace shop"},
		"not accepted": {func(_ *input, set *gatewayv1.ListenerSet) {
			set.Status.Conditions = []metav1.Condition{condition("Accepted", metav1.ConditionFalse, "ParentNotAccepted")}
		}, listenersv1alpha1.ReasonWaitingForGateway, "Accepted of ListenerSet shop/web-tcp is false: ParentNotAccepted: because"},
		"not programmed": {func(_ *input, set *gatewayv1.ListenerSet) {
			set.Status.Conditions = []metav1.Condition{condition("Programmed", metav1.ConditionFalse, "Invalid")}
		}, listenersv1alpha1.ReasonWaitingForGateway, "Programmed of ListenerSet shop/web-tcp is false: Invalid: because"},
		"in conflict": {func(_ *input, set *gatewayv1.ListenerSet) {
			set.Status.Listeners = []gatewayv1.ListenerEntryStatus{{Name: "http", Conditions: []metav1.Condition{condition("Conflicted", metav1.ConditionTrue, "ListenerConflict")}}}
		}, listenersv1alpha1.ReasonWaitingForGateway, "in conflict with another listener of the Gateway at port 9002: ListenerConflict: because"},
		"the listener is not accepted": {func(_ *input, set *gatewayv1.ListenerSet) {
			set.Status.Listeners = []gatewayv1.ListenerEntryStatus{{Name: "http", Conditions: []metav1.Condition{condition("Accepted", metav1.ConditionFalse, "TooManyListeners")}}}
		}, listenersv1alpha1.ReasonWaitingForGateway, "Accepted of listener http of ListenerSet shop/web-tcp is false: TooManyListeners: because"},
		"the route is not decided": {func(l *input, _ *gatewayv1.ListenerSet) {
			l.Objects[0].(*gatewayv1.TCPRoute).Status.Parents[0].ParentRef.Name = "other"
		}, listenersv1alpha1.ReasonWaitingForGateway, "has not accepted the route yet"},
		"the route is decided for the Gateway": {func(l *input, _ *gatewayv1.ListenerSet) {
			l.Objects[0].(*gatewayv1.TCPRoute).Status.Parents[0].ParentRef.Kind = nil
		}, listenersv1alpha1.ReasonWaitingForGateway, "has not accepted the route yet"},
	} {
		t.Run(name, func(t *testing.T) {
			l := withRange(func(l *input) {
				set := listenerSet("shop", "web-tcp", 1, map[string]gatewayv1.PortNumber{"http": 9002})
				set.Status.Conditions = programmed
				l.Class.Spec.Ports = []string{"http"}
				l.Objects = []exposure.Object{observed(listenersv1alpha1.GatewayRouteKindTCP, "http", "", parent), set}
				if tc.change != nil {
					tc.change(l, set)
				}
			})
			want := []listenersv1alpha1.IngressAddress{}
			if tc.reason == "" {
				want = append(want, listenersv1alpha1.IngressAddress{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 9002}})
			}
			got := gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP).Addresses(l.Listener, exposure.Placement{})
			check.Equal(t, "addresses", want, got.Addresses)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("reason %q, message %q; want reason %q with %q", got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}

// Its route then has the name of the ListenerSet. Objects come in any order.
func TestAPortMayBeNamedAsTheProtocol(t *testing.T) {
	parent := gatewayv1.ParentReference{
		Kind: ptr.To[gatewayv1.Kind]("ListenerSet"), Namespace: ptr.To[gatewayv1.Namespace]("shop"), Name: "web-tcp",
		SectionName: ptr.To[gatewayv1.SectionName]("tcp"),
	}
	set := listenerSet("shop", "web-tcp", 1, map[string]gatewayv1.PortNumber{"tcp": 9002})
	set.Status.Conditions = []metav1.Condition{
		{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"},
		{Type: "Programmed", Status: metav1.ConditionTrue, Reason: "Programmed"},
	}
	route := observed(listenersv1alpha1.GatewayRouteKindTCP, "tcp", "", parent)
	for _, objects := range [][]exposure.Object{{route, set}, {set, route}} {
		l := withRange(func(l *input) {
			l.Service.Spec.Ports[0].Name = "tcp"
			l.Class.Spec.Ports, l.Objects = []string{"tcp"}, objects
		})
		got := gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP).Addresses(l.Listener, exposure.Placement{})
		if len(got.Addresses) != 1 || got.Addresses[0].Ports["tcp"] != 9002 {
			t.Errorf("addresses %v: %s", got.Addresses, got.Message)
		}
	}
}

// A class that changes from TCPRoute to UDPRoute keeps its ListenerSet until the other one serves.
func TestListenerSetsOfTheTwoKindsOfRoutesAreDifferentObjects(t *testing.T) {
	tcp, udp := gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP).Generates[0], gateway.Backend(listenersv1alpha1.GatewayRouteKindUDP).Generates[0]
	for _, tc := range []struct {
		name     string
		tcp, udp bool
	}{{"web-tcp", true, false}, {"web-udp", false, true}, {"web-udp-tcp", true, false}, {"web", false, false}} {
		set := listenerSet("shop", tc.name, 1, nil)
		if gotTCP, gotUDP := tcp.Owns(set), udp.Owns(set); gotTCP != tc.tcp || gotUDP != tc.udp {
			t.Errorf("ListenerSet %s is that of TCPRoutes: %t, of UDPRoutes: %t", tc.name, gotTCP, gotUDP)
		}
	}
}
