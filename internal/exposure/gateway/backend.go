// Package gateway has the backends that expose Listeners through routes of the Gateway API, one for each kind of
// routes. Each port has a route of its own. The addresses are the hosts of the routes that a Gateway serves, or the
// addresses of the Gateway with the port of the listener that the route has for itself. That is one of the Gateway, or
// of a ListenerSet that the backend generates.
//
// "Listener" is the operator's in this package; that of a Gateway is always called a listener of the Gateway.
package gateway

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
)

var groupVersion = schema.GroupVersion(gatewayv1.GroupVersion)

// routes are the routes of a backend, which are of one kind.
type routes struct {
	perport.Objects[exposure.Object]
	// otherVersions are those of releases of the Gateway API in which the kind was experimental.
	otherVersions []string
	// protocols are the protocols of the listeners of a Gateway that the routes attach to.
	protocols []gatewayv1.ProtocolType
	// ownPort states that a route has a listener of the Gateway for itself, rather than a host.
	ownPort bool
}

// kinds are the routes of each kind, without what follows from the kind.
var kinds = map[listenersv1alpha1.GatewayRouteKind]routes{
	listenersv1alpha1.GatewayRouteKindTLS: {
		protocols: []gatewayv1.ProtocolType{gatewayv1.TLSProtocolType}, otherVersions: []string{"v1alpha3", "v1alpha2"},
	},
	listenersv1alpha1.GatewayRouteKindHTTP: {
		protocols: []gatewayv1.ProtocolType{gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType},
	},
	listenersv1alpha1.GatewayRouteKindTCP: {
		protocols: []gatewayv1.ProtocolType{gatewayv1.TCPProtocolType}, otherVersions: []string{"v1alpha2"}, ownPort: true,
	},
	listenersv1alpha1.GatewayRouteKindUDP: {
		protocols: []gatewayv1.ProtocolType{gatewayv1.UDPProtocolType}, otherVersions: []string{"v1alpha2"}, ownPort: true,
	},
}

// Backend returns the backend for classes with spec.gateway and a kind of routes. A class that changes from one kind to
// another one changes its backend, so that the former routes stay until the new ones serve.
func Backend(kind listenersv1alpha1.GatewayRouteKind) *exposure.Backend {
	b := kinds[kind]
	protocol := corev1.ProtocolTCP
	if b.protocols[0] == gatewayv1.UDPProtocolType {
		protocol = corev1.ProtocolUDP
	}
	b.Objects = perport.Objects[exposure.Object]{
		Kind: string(kind), Plural: string(kind) + "s", Protocol: protocol,
		Exposes: func(class *listenersv1alpha1.ListenerClass) bool {
			return class.Spec.Gateway != nil && class.Spec.Gateway.Kind == kind
		},
		Waiting: listenersv1alpha1.ReasonWaitingForGateway,
	}
	backend := &exposure.Backend{
		Name:      b.Kind,
		Exposes:   b.Exposes,
		Generates: b.generates(),
		Objects:   b.objects,
		Reads: &exposure.Kind{
			GroupVersionKind: groupVersion.WithKind("Gateway"),
			Resource:         "gateways",
			Trim:             trimGateway,
			AddToScheme:      gatewayv1.Install,
		},
		References: b.references,
		Addresses:  b.addresses,
	}
	if b.ownPort {
		backend.Scarce = "GatewayPort"
		backend.TakenReasons = []string{
			listenersv1alpha1.ReasonNoGatewayListener, listenersv1alpha1.ReasonGatewayPortsExhausted, listenersv1alpha1.ReasonListenerSetNotAllowed,
		}
	}
	return backend
}

// gvk returns the kind of the routes in the version that is preferred.
func (b routes) gvk() schema.GroupVersionKind { return groupVersion.WithKind(b.Kind) }

// references returns the Gateways that the class, the existing routes and the existing ListenerSets name.
func (b routes) references(class *listenersv1alpha1.ListenerClass, objects []exposure.Object) []gatewayName {
	var references []gatewayName
	add := func(gateway gatewayName) {
		if !slices.Contains(references, gateway) {
			references = append(references, gateway)
		}
	}
	if b.Exposes(class) {
		for _, parent := range class.Spec.Gateway.ParentRefs {
			add(gatewayName{Namespace: parent.Namespace, Name: parent.Name})
		}
	}
	for _, object := range objects {
		if set, ok := object.(*gatewayv1.ListenerSet); ok {
			add(gatewayOfSet(set))
		}
		for _, parent := range routeOf(object).parents {
			if gateway, ok := gatewayOf(object.GetNamespace(), parent); ok {
				add(gateway)
			}
		}
	}
	return references
}

func (b routes) generates() []*exposure.Kind {
	kind := &exposure.Kind{
		GroupVersionKind: b.gvk(),
		OtherVersions:    b.otherVersions,
		Resource:         strings.ToLower(b.Plural),
		Exclusive:        b.ownPort,
		AddToScheme:      gatewayv1.Install,
		ForeignReason:    listenersv1alpha1.ReasonForeignGatewayRoute,
		RejectedReason:   listenersv1alpha1.ReasonGatewayRouteRejected,
	}
	if !b.ownPort {
		kind.Hosts = hostsOf
		return []*exposure.Kind{kind}
	}
	kind.Trim = trimRoute
	return []*exposure.Kind{b.listenerSets(), kind}
}

// trimGateway removes what the backends do not need, such as the number of routes, which changes with each of them.
func trimGateway(o exposure.Object) {
	gateway := o.(*gatewayv1.Gateway)
	gateway.Annotations, gateway.Labels = nil, nil
	gateway.Spec.Addresses, gateway.Spec.Infrastructure, gateway.Spec.TLS = nil, nil, nil
	for i := range gateway.Spec.Listeners {
		gateway.Spec.Listeners[i].TLS = nil
	}
	trim := func(conditions []metav1.Condition) {
		for i := range conditions {
			conditions[i].LastTransitionTime, conditions[i].ObservedGeneration = metav1.Time{}, 0
		}
	}
	trim(gateway.Status.Conditions)
	gateway.Status.AttachedListenerSets = nil
	for i := range gateway.Status.Listeners {
		gateway.Status.Listeners[i].AttachedRoutes = 0
		trim(gateway.Status.Listeners[i].Conditions)
	}
}

// trimRoute keeps which listeners of Gateways a route of another client has.
func trimRoute(o exposure.Object) {
	o.SetAnnotations(nil)
	o.SetLabels(nil)
	switch route := o.(type) {
	case *gatewayv1.TCPRoute:
		route.Spec.Rules, route.Status = nil, gatewayv1.TCPRouteStatus{}
	case *gatewayv1.UDPRoute:
		route.Spec.Rules, route.Status = nil, gatewayv1.UDPRouteStatus{}
	}
}
