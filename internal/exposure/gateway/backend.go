// Package gateway has the backends that expose Listeners through routes of the Gateway API, one for each kind of
// routes. Each port has a route of its own. The addresses are the hosts of the routes that a Gateway serves, or the
// addresses of the Gateway with the port of the listener that the route has for itself.
//
// "Listener" is the operator's in this package; that of a Gateway is always called a listener of the Gateway.
package gateway

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// routes are what the backends of all kinds of routes have in common.
type routes struct {
	kind     listenersv1alpha1.GatewayRouteKind
	resource string
	// otherVersions are those of releases of the Gateway API in which the kind was experimental.
	otherVersions []string
	// protocols are the protocols of the listeners of a Gateway that the routes attach to.
	protocols []gatewayv1.ProtocolType
	// transport is the protocol of the ports that can have a route.
	transport corev1.Protocol
	// ownPort states that a route has a listener of the Gateway for itself, rather than a host.
	ownPort bool
	// empty and emptyList are the Go types. They are those of v1alpha2 for kinds that have none in the release of the
	// Go module: the fields that the operator uses are the same.
	empty, emptyList runtime.Object
}

// TLSRoutes returns the backend for TLSRoutes.
func TLSRoutes() *exposure.Backend {
	return routes{
		kind: listenersv1alpha1.GatewayRouteKindTLS, resource: "tlsroutes", otherVersions: []string{"v1alpha3", "v1alpha2"},
		protocols: []gatewayv1.ProtocolType{gatewayv1.TLSProtocolType}, transport: corev1.ProtocolTCP,
		empty: &gatewayv1alpha2.TLSRoute{}, emptyList: &gatewayv1alpha2.TLSRouteList{},
	}.backend()
}

// HTTPRoutes returns the backend for HTTPRoutes.
func HTTPRoutes() *exposure.Backend {
	return routes{
		kind: listenersv1alpha1.GatewayRouteKindHTTP, resource: "httproutes",
		protocols: []gatewayv1.ProtocolType{gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType}, transport: corev1.ProtocolTCP,
		empty: &gatewayv1.HTTPRoute{}, emptyList: &gatewayv1.HTTPRouteList{},
	}.backend()
}

// TCPRoutes returns the backend for TCPRoutes.
func TCPRoutes() *exposure.Backend {
	return routes{
		kind: listenersv1alpha1.GatewayRouteKindTCP, resource: "tcproutes", otherVersions: []string{"v1alpha2"},
		protocols: []gatewayv1.ProtocolType{gatewayv1.TCPProtocolType}, transport: corev1.ProtocolTCP, ownPort: true,
		empty: &gatewayv1alpha2.TCPRoute{}, emptyList: &gatewayv1alpha2.TCPRouteList{},
	}.backend()
}

// UDPRoutes returns the backend for UDPRoutes.
func UDPRoutes() *exposure.Backend {
	return routes{
		kind: listenersv1alpha1.GatewayRouteKindUDP, resource: "udproutes", otherVersions: []string{"v1alpha2"},
		protocols: []gatewayv1.ProtocolType{gatewayv1.UDPProtocolType}, transport: corev1.ProtocolUDP, ownPort: true,
		empty: &gatewayv1alpha2.UDPRoute{}, emptyList: &gatewayv1alpha2.UDPRouteList{},
	}.backend()
}

var gatewayKind = gatewayv1.SchemeGroupVersion.WithKind("Gateway")

// backend returns the backend of the routes. A class that changes from one kind of routes to another one changes its
// backend, so that the former routes stay until the new ones serve.
func (b routes) backend() *exposure.Backend {
	return &exposure.Backend{
		Name:       string(b.kind),
		Exposes:    b.exposes,
		Kind:       b.generated(),
		Objects:    b.objects,
		Reads:      gateways(),
		References: b.references,
		Addresses:  b.addresses,
	}
}

func (b routes) exposes(class *listenersv1alpha1.ListenerClass) bool {
	return class.Spec.Gateway != nil && class.Spec.Gateway.Kind == b.kind
}

// gvk returns the kind of the routes in the version that is preferred.
func (b routes) gvk() schema.GroupVersionKind {
	return gatewayv1.SchemeGroupVersion.WithKind(string(b.kind))
}

// plural returns how messages call the routes.
func (b routes) plural() string { return string(b.kind) + "s" }

// references returns the Gateways that the class and the existing routes name.
func (b routes) references(class *listenersv1alpha1.ListenerClass, objects []exposure.Object) []gatewayName {
	var references []gatewayName
	add := func(gateway gatewayName) {
		if !slices.Contains(references, gateway) {
			references = append(references, gateway)
		}
	}
	if b.exposes(class) {
		for _, parent := range class.Spec.Gateway.ParentRefs {
			add(gatewayName{Namespace: parent.Namespace, Name: parent.Name})
		}
	}
	for _, object := range objects {
		for _, parent := range routeOf(object).parents {
			if gateway, ok := gatewayOf(object.GetNamespace(), parent); ok {
				add(gateway)
			}
		}
	}
	return references
}

func (b routes) generated() *exposure.Kind {
	kind := &exposure.Kind{
		GroupVersionKind: b.gvk(),
		OtherVersions:    b.otherVersions,
		Resource:         b.resource,
		Exclusive:        b.ownPort,
		AddToScheme: func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypeWithName(b.gvk(), b.empty)
			scheme.AddKnownTypeWithName(gatewayv1.SchemeGroupVersion.WithKind(string(b.kind)+"List"), b.emptyList)
			metav1.AddToGroupVersion(scheme, gatewayv1.SchemeGroupVersion)
			return nil
		},
		ForeignReason:  listenersv1alpha1.ReasonForeignGatewayRoute,
		RejectedReason: listenersv1alpha1.ReasonGatewayRouteRejected,
	}
	if b.ownPort {
		kind.Trim = trimRoute
	} else {
		kind.Hosts = hostsOf
	}
	return kind
}

func gateways() *exposure.Kind {
	return &exposure.Kind{
		GroupVersionKind: gatewayKind,
		Resource:         "gateways",
		Trim:             trimGateway,
		AddToScheme: func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypes(gatewayv1.SchemeGroupVersion, &gatewayv1.Gateway{}, &gatewayv1.GatewayList{})
			metav1.AddToGroupVersion(scheme, gatewayv1.SchemeGroupVersion)
			return nil
		},
	}
}

// trimGateway removes what the backends do not need, such as the number of routes, which changes with each of them.
func trimGateway(o exposure.Object) {
	gateway, ok := o.(*gatewayv1.Gateway)
	if !ok {
		return
	}
	gateway.Annotations, gateway.Labels = nil, nil
	gateway.Spec.Addresses, gateway.Spec.Infrastructure, gateway.Spec.BackendTLS = nil, nil, nil
	for i := range gateway.Spec.Listeners {
		gateway.Spec.Listeners[i].TLS = nil
	}
	for _, conditions := range append(listenerConditions(gateway), gateway.Status.Conditions) {
		for i := range conditions {
			conditions[i].LastTransitionTime, conditions[i].ObservedGeneration = metav1.Time{}, 0
		}
	}
	for i := range gateway.Status.Listeners {
		gateway.Status.Listeners[i].AttachedRoutes = 0
	}
}

func listenerConditions(gateway *gatewayv1.Gateway) [][]metav1.Condition {
	var all [][]metav1.Condition
	for i := range gateway.Status.Listeners {
		all = append(all, gateway.Status.Listeners[i].Conditions)
	}
	return all
}

// trimRoute keeps which listeners of Gateways a route of another client has.
func trimRoute(o exposure.Object) {
	o.SetAnnotations(nil)
	o.SetLabels(nil)
	switch route := o.(type) {
	case *gatewayv1alpha2.TCPRoute:
		route.Spec.Rules, route.Status = nil, gatewayv1alpha2.TCPRouteStatus{}
	case *gatewayv1alpha2.UDPRoute:
		route.Spec.Rules, route.Status = nil, gatewayv1alpha2.UDPRouteStatus{}
	}
}
