package listener

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// newGateway returns a Gateway with an address and a listener that is programmed and allows all namespaces.
func newGateway(protocol gatewayv1.ProtocolType) *gatewayv1.Gateway {
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}}
	gateway.Spec.Listeners = []gatewayv1.Listener{{
		Name: "first", Port: 9000, Protocol: protocol,
		AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
	}}
	gateway.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}}
	gateway.Status.Conditions = []metav1.Condition{{Type: string(gatewayv1.GatewayConditionProgrammed), Status: metav1.ConditionTrue}}
	return gateway
}

// toGateway are references to the listener of newGateway.
var toGateway = []gatewayv1.ParentReference{{
	Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "edge", SectionName: ptr.To[gatewayv1.SectionName]("first"),
}}

// Whoever knows the UID of a Listener can name it as the controller of a route in another namespace, which the garbage
// collector deletes, but not while the route has a finalizer.
func TestARouteOfAnotherNamespaceCannotHide(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "theirs", Name: "theirs", UID: "theirs", Finalizers: []string{"example.com/stay"},
		OwnerReferences: ofListener(),
	}
	tcp, udp := &gatewayv1.TCPRoute{ObjectMeta: meta}, &gatewayv1.UDPRoute{ObjectMeta: meta}
	tcp.Spec.ParentRefs, udp.Spec.ParentRefs = toGateway, toGateway
	for kind, theirs := range map[listenersv1alpha1.GatewayRouteKind]client.Object{
		listenersv1alpha1.GatewayRouteKindTCP: tcp, listenersv1alpha1.GatewayRouteKindUDP: udp,
	} {
		protocol := strings.TrimSuffix(string(kind), "Route")
		s := newState(clusterIP).with(theirs, newGateway(gatewayv1.ProtocolType(protocol)))
		s.listener.Spec.Ports[0].Protocol = ptr.To(corev1.Protocol(protocol))
		s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{Kind: kind, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}}
		o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
		if accepted := o.condition(listenersv1alpha1.ListenerAccepted); o.err != nil || !strings.Contains(accepted.Message, string(kind)+" theirs/theirs has it") {
			t.Errorf("%s: error %v, condition %v", kind, o.err, accepted)
		}
	}
}

// It names the Listener as its controller, and a Gateway or an Ingress controller serves it, while the Listener has no
// address by its class.
func TestAnObjectOfATenantPublishesNoHost(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-http", OwnerReferences: ofListener()}
	hosts := []gatewayv1.Hostname{"db.theirs.svc.cluster.local"}
	status := gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{
		ParentRef: toGateway[0], Conditions: []metav1.Condition{{Type: string(gatewayv1.RouteConditionAccepted), Status: metav1.ConditionTrue}},
	}}}
	tls, http := &gatewayv1.TLSRoute{ObjectMeta: meta}, &gatewayv1.HTTPRoute{ObjectMeta: meta}
	tls.Spec.ParentRefs, tls.Spec.Hostnames, tls.Status.RouteStatus = toGateway, hosts, status
	http.Spec.ParentRefs, http.Spec.Hostnames, http.Status.RouteStatus = toGateway, hosts, status
	ingress := &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: string(hosts[0])}}}}
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	for protocol, theirs := range map[gatewayv1.ProtocolType]client.Object{gatewayv1.TLSProtocolType: tls, gatewayv1.HTTPProtocolType: http, "": ingress} {
		o := newState(loadBalancer).with(theirs, newGateway(protocol)).reconcile(t, 1, interceptor.Funcs{}, nil)
		if o.err != nil || len(o.addresses()) != 0 {
			t.Errorf("%T: error %v, addresses %v", theirs, o.err, o.addresses())
		}
	}
}

// Everybody can create objects of these kinds, also some that seem to be those of a Listener.
func TestObjectsOfBackendsCostLittleMemory(t *testing.T) {
	scheme := runtime.NewScheme()
	check.Must(t, backends.All().AddToScheme(scheme))
	k := &observe.Kinds{Scheme: scheme}
	all := map[string]*exposure.Kind{}
	for _, backend := range backends.All() {
		for _, kind := range backend.Kinds() {
			all[kind.Kind] = kind
		}
	}
	for _, kind := range all {
		keep := func(o client.Object) any {
			kept, err := trimForeign(kind)(o)
			check.Must(t, err)
			return kept
		}
		for _, owner := range []string{"Listener", "Other"} {
			t.Run(fmt.Sprint(kind.Kind, " of ", owner), func(t *testing.T) {
				growth.CheckMemory(t, 1<<20, keep, func() client.Object {
					o := k.NewObject(kind)
					o.SetOwnerReferences([]metav1.OwnerReference{{Kind: owner, Name: "web", Controller: ptr.To(true)}})
					return o
				})
			})
		}
	}
}

// disguises make an object one of a Listener, by what every user of its namespace can write.
var disguises = map[string]func(client.Object, *listenersv1alpha1.Listener){
	"restored": func(o client.Object, l *listenersv1alpha1.Listener) {
		o.SetLabels(map[string]string{
			"app.kubernetes.io/name": "listener", "app.kubernetes.io/instance": l.Name,
			"app.kubernetes.io/managed-by": "listeners.stackable.tech_listener",
		})
	},
	"controlled": func(o client.Object, l *listenersv1alpha1.Listener) {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(l, listenersv1alpha1.GroupVersion.WithKind("Listener"))})
	},
}

// newTenant returns a Listener of the same class in another namespace.
func newTenant(s *state) *listenersv1alpha1.Listener {
	l := second(s.listener)
	l.Namespace, l.Name = "theirs", "web"
	return l
}

// status reconciles a Listener, and returns its status.
func (o *operator) status(l client.ObjectKey) *listenersv1alpha1.ListenerStatus {
	o.t.Helper()
	_, err := o.try(l)
	listener := &listenersv1alpha1.Listener{}
	check.Must(o.t, errors.Join(err, o.api.Get(o.t.Context(), l, listener)))
	return listener.Status
}

// scarce is something that only one Listener can have.
type scarce struct {
	given *state
	// served makes the addresses of the Listener complete, as other controllers do.
	served func(*operator)
	// object is the name of the object of the Listener that has it, and object of none.
	object string
	empty  client.Object
	// forge gives an object of the tenant what the victim has.
	forge func(client.Object, *listenersv1alpha1.ListenerStatus)
	// tenantFirst means that a victim whose object is lost may get something else if it is reconciled first: the object
	// of the tenant counts as one of an unknown owner until then.
	tenantFirst bool
}

func scarceThings() map[string]scarce {
	acceptedBy := func(parents []gatewayv1.ParentReference) gatewayv1.RouteStatus {
		return gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{
			ParentRef: parents[0], Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue}},
		}}}
	}
	acceptTCP := func(o *operator) {
		change(o, "web-http", func(r *gatewayv1.TCPRoute) { r.Status.RouteStatus = acceptedBy(r.Spec.ParentRefs) })
	}
	tcp := func(portRange string) *state {
		s := newRoutedState(listenersv1alpha1.GatewayRouteKindTCP, gatewayv1.TCPProtocolType, 9000)
		s.class.Spec.Gateway.PortRange = portRange
		return s
	}
	ports := func(status *listenersv1alpha1.ListenerStatus) int32 { return status.IngressAddresses[0].Ports["http"] }
	return map[string]scarce{
		"port of a shared address": {
			given: newSharingState("9000-9009"), served: balancedAt("192.0.2.1"), object: "web", empty: &corev1.Service{},
			forge: func(o client.Object, victim *listenersv1alpha1.ListenerStatus) {
				o.(*corev1.Service).Spec.Type = corev1.ServiceTypeLoadBalancer
				o.(*corev1.Service).Spec.Ports = []corev1.ServicePort{{Name: "http", Port: victim.SharedPorts["http"]}}
			},
		},
		"host": {
			given: restoredStates(9000)["Ingress"], object: "web-http", empty: &networkingv1.Ingress{},
			served: func(o *operator) {
				change(o, "web-http", func(i *networkingv1.Ingress) {
					i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
				})
			},
			forge: func(o client.Object, victim *listenersv1alpha1.ListenerStatus) {
				o.(*networkingv1.Ingress).Spec.Rules = []networkingv1.IngressRule{{Host: victim.IngressAddresses[0].Address}}
			},
		},
		"host of a Gateway": {
			given: newRoutedState(listenersv1alpha1.GatewayRouteKindTLS, gatewayv1.TLSProtocolType, 9000).change(withOneListener), object: "web-http", empty: &gatewayv1.TLSRoute{},
			served: func(o *operator) {
				change(o, "web-http", func(r *gatewayv1.TLSRoute) { r.Status.RouteStatus = acceptedBy(r.Spec.ParentRefs) })
			},
			forge: func(o client.Object, victim *listenersv1alpha1.ListenerStatus) {
				route := o.(*gatewayv1.TLSRoute)
				route.Spec.ParentRefs, route.Spec.Hostnames = toGateway, []gatewayv1.Hostname{gatewayv1.Hostname(victim.IngressAddresses[0].Address)}
			},
		},
		"listener of a Gateway": {
			given: tcp(""), served: acceptTCP, object: "web-http", empty: &gatewayv1.TCPRoute{}, tenantFirst: true,
			forge: func(o client.Object, victim *listenersv1alpha1.ListenerStatus) {
				section := map[int32]gatewayv1.SectionName{9000: "first", 9001: "other"}[ports(victim)]
				o.(*gatewayv1.TCPRoute).Spec.ParentRefs = slices.Clone(toGateway)
				o.(*gatewayv1.TCPRoute).Spec.ParentRefs[0].SectionName = &section
			},
		},
		"port of a Gateway": {
			given: tcp("9005-9009"), object: "web-tcp", empty: &gatewayv1.ListenerSet{},
			served: func(o *operator) {
				acceptTCP(o)
				change(o, "web-tcp", func(set *gatewayv1.ListenerSet) {
					set.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue}, {Type: "Programmed", Status: metav1.ConditionTrue}}
				})
			},
			forge: func(o client.Object, victim *listenersv1alpha1.ListenerStatus) {
				set := o.(*gatewayv1.ListenerSet)
				set.Spec.ParentRef = gatewayv1.ParentGatewayReference{Namespace: toGateway[0].Namespace, Name: toGateway[0].Name}
				set.Spec.Listeners = []gatewayv1.ListenerEntry{{Name: "http", Port: ports(victim), Protocol: gatewayv1.TCPProtocolType}}
			},
		},
	}
}

// TestForgedObjectsTakeNothing that a Listener has: neither while the operator runs, nor while it is away and the
// object of the Listener is lost, too, whichever Listener is reconciled first.
func TestForgedObjectsTakeNothing(t *testing.T) {
	for name, thing := range scarceThings() {
		for disguise, disguised := range disguises {
			for i := range 4 {
				away, victimFirst := i%2 > 0, i/2 > 0
				if thing.tenantFirst && away && victimFirst {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, the operator is away: %t, the victim is first: %t", name, disguise, away, victimFirst), func(t *testing.T) {
					thing := scarceThings()[name]
					tenant := newTenant(thing.given)
					o := thing.given.with(tenant).operator(t, interceptor.Funcs{})
					o.reconcile(key.Name)
					thing.served(o)
					before := o.reconcile(key.Name).Status
					if len(before.IngressAddresses) != 1 {
						t.Fatalf("status %+v", before)
					}

					forged := thing.empty
					if away {
						lost := forged.DeepCopyObject().(client.Object)
						lost.SetNamespace(key.Namespace)
						lost.SetName(thing.object)
						o.delete(lost)
					}
					forged.SetNamespace(tenant.Namespace)
					forged.SetName(thing.object)
					thing.forge(forged, before)
					disguised(forged, tenant)
					o.create(forged)
					if away {
						o.restart()
					}
					observePorts(t, o.Reconciler)
					order := []client.ObjectKey{client.ObjectKeyFromObject(tenant), key}
					if victimFirst {
						slices.Reverse(order)
					}
					o.status(order[0])
					o.status(order[1])
					if away {
						thing.served(o) // the new object
					}
					got, now := o.status(client.ObjectKeyFromObject(tenant)), o.status(key)
					check.Equal(t, "addresses of the victim", before.IngressAddresses, now.IngressAddresses)
					check.Equal(t, "ports of the victim", before.SharedPorts, now.SharedPorts)
					if number := before.SharedPorts["http"]; number != 0 && got.SharedPorts["http"] == number {
						t.Errorf("the tenant has port %d, too", number)
					}
					if len(got.IngressAddresses) > 0 && cmp.Equal(got.IngressAddresses, before.IngressAddresses) {
						t.Errorf("the tenant has %v, too", got.IngressAddresses)
					}
				})
			}
		}
	}
}

// TestAForgedServiceChoosesNoPortAtASharedAddress which is free, or which another Listener waits for.
func TestAForgedServiceChoosesNoPortAtASharedAddress(t *testing.T) {
	forge := func(o *operator, tenant *listenersv1alpha1.Listener, disguise string, number int32) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name}}
		service.Spec.Type, service.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: number}}
		disguises[disguise](service, tenant)
		o.create(service)
		observePorts(t, o.Reconciler)
	}
	for disguise := range disguises {
		t.Run(disguise+", a free one", func(t *testing.T) {
			numbers := map[int32]bool{}
			for _, forged := range []int32{0, 9000, 9001} {
				s := newSharingState("9000-9001")
				tenant := newTenant(s)
				o := s.with(tenant).operator(t, interceptor.Funcs{})
				if forged != 0 {
					forge(o, tenant, disguise, forged)
				}
				numbers[o.status(client.ObjectKeyFromObject(tenant)).SharedPorts["http"]] = true
			}
			if len(numbers) != 1 || numbers[0] {
				t.Errorf("the tenant gets other numbers by forged Services: %v", numbers)
			}
		})
		t.Run(disguise+", one that others wait for", func(t *testing.T) {
			s := newSharingState("9000-9000")
			tenant := newTenant(s)
			o := s.with(second(s.listener), tenant).operator(t, interceptor.Funcs{})
			const refused = listenersv1alpha1.ReasonSharedPortsExhausted
			if holder, waiting := accepted(o.reconcile(key.Name)), accepted(o.reconcile("second")); holder != listenersv1alpha1.ReasonAccepted || waiting != refused {
				t.Fatalf("the first Listener is %s, the second %s", holder, waiting)
			}
			forge(o, tenant, disguise, 9000)
			tenantHasNone := func() {
				t.Helper()
				if status := o.status(client.ObjectKeyFromObject(tenant)); len(status.SharedPorts) > 0 || status.Summary.Reason != refused {
					t.Errorf("the tenant has %v, and is %s", status.SharedPorts, status.Summary.Reason)
				}
			}
			tenantHasNone()
			holder := o.listener()
			o.delete(holder, get[corev1.Service](o, key.Name))
			o.listenerToListeners().Delete(t.Context(), event.DeleteEvent{Object: holder}, nil)
			for _, request := range o.held.Waiting.FreedRequests(t.Context(), nil) {
				o.status(request.NamespacedName)
			}
			if got := get[listenersv1alpha1.Listener](o, "second").Status.SharedPorts; got["http"] != 9000 {
				t.Errorf("the Listener that waits has %v", got)
			}
			tenantHasNone()
		})
	}
}
