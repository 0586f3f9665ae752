package listener_test

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// disguises make an object one of a Listener, by what every user of its namespace can write.
var disguises = map[string]func(client.Object, *listenersv1alpha1.Listener){
	"restored": func(o client.Object, l *listenersv1alpha1.Listener) {
		o.SetLabels(map[string]string{
			"app.kubernetes.io/name": "listener", "app.kubernetes.io/instance": l.Name,
			"app.kubernetes.io/managed-by": "listeners.stackable.tech_listener",
		})
	},
	"controlled": func(o client.Object, l *listenersv1alpha1.Listener) {
		owner := metav1.NewControllerRef(l, listenersv1alpha1.GroupVersion.WithKind("Listener"))
		owner.BlockOwnerDeletion = nil
		o.SetOwnerReferences([]metav1.OwnerReference{*owner})
	},
}

// has is what only one Listener can have, as the status shows it.
type has struct {
	addresses              []listenersv1alpha1.IngressAddress
	sharedPorts, nodePorts map[string]int32
}

func (f *fixture) has() has {
	f.Helper()
	status := ptr.Deref(f.listener().Status, listenersv1alpha1.ListenerStatus{})
	return has{status.IngressAddresses, status.SharedPorts, status.NodePorts}
}

// forge creates a Listener of a tenant in another namespace, and before it, as far as the API server admits that, an
// object in disguise. A Listener that is to control the object exists without a class before.
func (f *fixture) forge(disguise string, forged client.Object) {
	f.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	f.Expect(f.Create(f.Context(), l)).To(Succeed())
	disguises[disguise](forged, l)
	err := f.Create(f.Context(), forged)
	f.Expect(apierrors.IsInvalid(err) || err == nil).To(BeTrue(), "%v", err)
	f.change(l, func() { l.Spec.ClassName = &f.class.Name })
}

// decided waits until the operator has decided on the Listener, and nothing else happens.
func (f *fixture) decided() {
	f.Helper()
	f.Eventually(f.reason(listenersv1alpha1.ListenerAccepted)).ShouldNot(BeElementOf("", listenersv1alpha1.ReasonClassNotSet))
	f.Eventually(f.idle).Should(BeTrue())
}

// scarce is something that only one Listener can have.
type scarce struct {
	class listenersv1alpha1.ListenerClassSpec
	// serve makes the addresses of the Listener complete, as other controllers do.
	serve func(*gateways)
	// forged returns an object for the tenant's Listener that has what the victim has.
	forged func(g *gateways, victim has, tenant client.ObjectKey) client.Object
	// lose deletes the victim's object, as another client may do while the operator is away. It may be nil.
	lose func(*gateways)
}

func scarceThings() map[string]scarce {
	service := func(change func(*corev1.Service, has)) func(*gateways, has, client.ObjectKey) client.Object {
		return func(_ *gateways, victim has, tenant client.ObjectKey) client.Object {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name}}
			s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
			change(s, victim)
			return s
		}
	}
	nodePorts := listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort,
		NodePorts:   &listenersv1alpha1.NodePorts{Range: "30026-30039"}, // Kubernetes allocates such low numbers last
	}
	ingress := ingressClass("some")
	ingress.Ingress.HostTemplate = "{listener}.{namespace}.example.com"
	gateway := func(kind listenersv1alpha1.GatewayRouteKind, numbers string) listenersv1alpha1.ListenerClassSpec {
		spec := gatewayClass(kind, "")
		spec.Gateway.PortRange = numbers
		return spec
	}
	serveTCP := func(g *gateways) { g.acceptTCP("web-http") }
	return map[string]scarce{
		"port of a shared address": {
			class: sharing(9300, 50),
			serve: func(g *gateways) { g.assign(corev1.LoadBalancerIngress{IP: "192.0.2.1"}) },
			forged: service(func(s *corev1.Service, victim has) {
				s.Spec.Type, s.Spec.Ports[0].Port = corev1.ServiceTypeLoadBalancer, victim.sharedPorts["http"]
			}),
			lose: func(g *gateways) { g.Expect(g.Delete(g.Context(), g.service())).To(Succeed()) },
		},
		"node port": {
			class: nodePorts,
			serve: func(g *gateways) { g.createVolume(g.createNode("192.0.2.1").Name) },
			forged: service(func(s *corev1.Service, victim has) {
				s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, victim.nodePorts["http"]
			}),
		},
		"host": {
			class: ingress,
			serve: func(g *gateways) { g.take(g.ingress("web-http", ""), "192.0.2.1") },
			forged: func(_ *gateways, victim has, tenant client.ObjectKey) client.Object {
				i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name + "-http"}}
				i.Spec.Rules = []networkingv1.IngressRule{{Host: victim.addresses[0].Address}}
				return i
			},
			lose: func(g *gateways) { g.Expect(g.Delete(g.Context(), g.ingress("web-http", ""))).To(Succeed()) },
		},
		"host of a Gateway": {
			class: gateway(listenersv1alpha1.GatewayRouteKindTLS, ""),
			serve: func(g *gateways) { g.decideTLS("web-http", metav1.ConditionTrue, "Accepted") },
			forged: func(g *gateways, victim has, tenant client.ObjectKey) client.Object {
				route := &gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name + "-http"}}
				route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(victim.addresses[0].Address)}
				route.Spec.ParentRefs = []gatewayv1.ParentReference{{
					Namespace: ptr.To[gatewayv1.Namespace](metav1.NamespaceDefault), Name: gatewayv1.ObjectName(g.edge),
				}}
				route.Spec.Rules = []gatewayv1.TLSRouteRule{{BackendRefs: []gatewayv1.BackendRef{{BackendObjectReference: gatewayv1.BackendObjectReference{
					Name: gatewayv1.ObjectName(tenant.Name), Port: ptr.To[gatewayv1.PortNumber](80),
				}}}}}
				return route
			},
			lose: func(g *gateways) { g.Expect(g.api.Delete(g.Context(), g.tlsRoute("web-http"))).To(Succeed()) },
		},
		"listener of a Gateway": {
			class: gateway(listenersv1alpha1.GatewayRouteKindTCP, ""), serve: serveTCP,
			forged: func(g *gateways, victim has, tenant client.ObjectKey) client.Object {
				section := "first"
				if victim.addresses[0].Ports["http"] == 20001 {
					section = "second"
				}
				route := &gatewayv1.TCPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name + "-http"}}
				route.Spec.ParentRefs = []gatewayv1.ParentReference{{
					Namespace: ptr.To[gatewayv1.Namespace](metav1.NamespaceDefault), Name: gatewayv1.ObjectName(g.edge),
					SectionName: ptr.To(gatewayv1.SectionName(section)),
				}}
				route.Spec.Rules = []gatewayv1.TCPRouteRule{{BackendRefs: []gatewayv1.BackendRef{{BackendObjectReference: gatewayv1.BackendObjectReference{
					Name: gatewayv1.ObjectName(tenant.Name), Port: ptr.To[gatewayv1.PortNumber](80),
				}}}}}
				return route
			},
			lose: func(g *gateways) {
				route := &gatewayv1.TCPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "web-http"}}
				g.Expect(g.api.Delete(g.Context(), route)).To(Succeed())
			},
		},
		"port of a Gateway": {
			class: gateway(listenersv1alpha1.GatewayRouteKindTCP, "20005-20009"),
			serve: func(g *gateways) { serveTCP(g); g.program("web-tcp") },
			forged: func(g *gateways, victim has, tenant client.ObjectKey) client.Object {
				set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name + "-tcp"}}
				set.Spec.ParentRef = gatewayv1.ParentGatewayReference{
					Namespace: ptr.To[gatewayv1.Namespace](metav1.NamespaceDefault), Name: gatewayv1.ObjectName(g.edge),
				}
				set.Spec.Listeners = []gatewayv1.ListenerEntry{{
					Name: "http", Port: victim.addresses[0].Ports["http"], Protocol: gatewayv1.TCPProtocolType,
				}}
				return set
			},
			lose: func(g *gateways) { g.Expect(g.api.Delete(g.Context(), g.listenerSet("web-tcp"))).To(Succeed()) },
		},
	}
}

// newVictim returns a fixture in which a Listener has something that only one Listener can have.
func newVictim(t *testing.T, s scarce) (*gateways, has) {
	t.Helper()
	g := newGateways(t, listenersv1alpha1.GatewayRouteKindTCP)
	crds.Install(t, g.Client, append(gatewayKinds(), crds.ListenerSets)...)
	gateway := g.createGateway(gatewayListener("first", gatewayv1.TCPProtocolType, 20000), gatewayListener("second", gatewayv1.TCPProtocolType, 20001),
		gatewayListener("tls", gatewayv1.TLSProtocolType, 8443))
	g.allowListenerSets(gateway, gatewayv1.NamespacesFromAll)
	g.change(g.class, func() {
		g.class.Spec = s.class
		if g.class.Spec.Gateway != nil {
			g.class.Spec.Gateway = g.class.Spec.Gateway.DeepCopy()
			g.class.Spec.Gateway.ParentRefs[0].Name = g.edge
		}
	})
	g.createListener(nil)
	s.serve(g)
	g.Eventually(func() []listenersv1alpha1.IngressAddress { return g.has().addresses }).Should(HaveLen(1))
	return g, g.has()
}

// TestForgedObjectsTakeNothing that a Listener has: neither while the operator runs, nor while it is away and the
// object of the Listener is lost, too.
func TestForgedObjectsTakeNothing(t *testing.T) {
	for name, s := range scarceThings() {
		for _, disguise := range slices.Sorted(maps.Keys(disguises)) {
			for moment, away := range map[string]bool{"while the operator runs": false, "while the operator is away": true} {
				t.Run(name+", "+disguise+", "+moment, func(t *testing.T) {
					g, before := newVictim(t, s)
					victim, tenant := g.key, client.ObjectKey{Namespace: apiserver.Namespace(t), Name: "web"}
					if away {
						stopProcess(t)
					}
					if away && s.lose != nil {
						s.lose(g)
					}
					g.key = tenant
					g.forge(disguise, s.forged(g, before, tenant))
					if away {
						g.start(settings{})
					}
					g.decided()
					got := g.has()
					g.key = victim
					g.decided()
					if away && s.lose != nil && len(g.has().addresses) == 0 { // until other controllers serve its object again
						s.serve(g)
					}
					g.Eventually(g.has).Should(Equal(before))
					if len(before.sharedPorts) > 0 {
						g.Expect(got.sharedPorts["http"]).NotTo(Equal(before.sharedPorts["http"]))
					}
					for _, a := range got.addresses {
						g.Expect(before.addresses).NotTo(ContainElement(a))
					}
				})
			}
		}
	}
}

// TestAForgedServiceChoosesNoPortAtASharedAddress which is free, or which another Listener waits for.
func TestAForgedServiceChoosesNoPortAtASharedAddress(t *testing.T) {
	for _, disguise := range slices.Sorted(maps.Keys(disguises)) {
		t.Run(disguise+", a free one", func(t *testing.T) {
			f := newFixture(t, sharing(9400, 100))
			l := f.createListener(nil)
			number := f.eventuallySharedPorts()["http"]
			f.Expect(f.Delete(t.Context(), l)).To(Succeed())
			f.Expect(f.Delete(t.Context(), f.service())).To(Succeed())
			f.Eventually(f.idle).Should(BeTrue())

			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}}
			service.Spec.Type = corev1.ServiceTypeLoadBalancer
			forged := 9400 + (number-9400+50)%100
			service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: forged}}
			f.forge(disguise, service)
			f.decided()
			f.Expect(f.has().sharedPorts["http"]).NotTo(Equal(forged))
		})
		t.Run(disguise+", one that others wait for", func(t *testing.T) {
			f := newFixture(t, sharing(9550, 1))
			holder := f.createListener(nil)
			f.eventuallySharedPorts()
			held := f.key
			f.key.Name = "victim"
			victim := f.key
			f.createListener(nil)
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonSharedPortsExhausted)

			f.key = client.ObjectKey{Namespace: apiserver.Namespace(t), Name: "web"}
			tenant := f.key
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: tenant.Name}}
			service.Spec.Type, service.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: 9550}}
			f.forge(disguise, service)
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonSharedPortsExhausted)
			f.Expect(f.has().sharedPorts).To(BeEmpty())

			f.key = held
			f.Expect(f.Delete(t.Context(), holder)).To(Succeed())
			f.key = victim
			f.Expect(f.eventuallySharedPorts()).To(Equal(map[string]int32{"http": 9550}))
			f.key = tenant
			f.decided()
			f.Expect(f.has().sharedPorts).To(BeEmpty())
		})
	}
}
