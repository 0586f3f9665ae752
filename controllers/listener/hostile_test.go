package listener

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
