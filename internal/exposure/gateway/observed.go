package gateway

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

type gatewayName = types.NamespacedName

// route is what routes of all kinds have in common.
type route struct {
	metav1.Object
	parents  []gatewayv1.ParentReference
	hosts    []gatewayv1.Hostname
	statuses []gatewayv1.RouteParentStatus
}

func routeOf(o exposure.Object) route {
	switch r := o.(type) {
	case *gatewayv1alpha2.TLSRoute:
		return route{r, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents}
	case *gatewayv1.HTTPRoute:
		return route{r, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents}
	case *gatewayv1alpha2.TCPRoute:
		return route{r, r.Spec.ParentRefs, nil, r.Status.Parents}
	case *gatewayv1alpha2.UDPRoute:
		return route{r, r.Spec.ParentRefs, nil, r.Status.Parents}
	default:
		return route{Object: o}
	}
}

// find returns the Listener's route with the name, or nil.
func find(l *exposure.Listener, name string) *route {
	for _, o := range l.Objects {
		if o.GetName() == name {
			r := routeOf(o)
			return &r
		}
	}
	return nil
}

// hostsOf returns the hosts of a route.
func hostsOf(o exposure.Object) []string {
	var hosts []string
	for _, host := range routeOf(o).hosts {
		hosts = append(hosts, string(host))
	}
	return hosts
}

// findGateway returns a Gateway, or nil.
func findGateway(l *exposure.Listener, name gatewayName) *gatewayv1.Gateway {
	for _, o := range l.Referenced {
		if gateway, ok := o.(*gatewayv1.Gateway); ok && gateway.Namespace == name.Namespace && gateway.Name == name.Name {
			return gateway
		}
	}
	return nil
}

// gatewayOf returns the Gateway that a parent reference of a route in a namespace is to. ok is false if it is to
// something else.
func gatewayOf(namespace string, parent gatewayv1.ParentReference) (name gatewayName, ok bool) {
	isGateway := ptr.Deref(parent.Group, gatewayv1.GroupName) == gatewayv1.GroupName && ptr.Deref(parent.Kind, "Gateway") == "Gateway"
	return gatewayName{Namespace: string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(namespace))), Name: string(parent.Name)}, isGateway
}

func selects(parent gatewayv1.ParentReference, listener *gatewayv1.Listener) bool {
	return ptr.Deref(parent.SectionName, listener.Name) == listener.Name && ptr.Deref(parent.Port, listener.Port) == listener.Port
}

// speaks reports whether routes of the backend can attach to a listener of a Gateway.
func (b routes) speaks(listener *gatewayv1.Listener) bool {
	if !slices.Contains(b.protocols, listener.Protocol) {
		return false
	}
	return listener.AllowedRoutes == nil || len(listener.AllowedRoutes.Kinds) == 0 || slices.ContainsFunc(listener.AllowedRoutes.Kinds,
		func(k gatewayv1.RouteGroupKind) bool {
			return string(k.Kind) == string(b.kind) && ptr.Deref(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName
		})
}

// allows reports whether a listener of a Gateway allows routes from a namespace with these labels.
func allows(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, namespace string, namespaceLabels labels.Set) bool {
	namespaces := &gatewayv1.RouteNamespaces{}
	if listener.AllowedRoutes != nil && listener.AllowedRoutes.Namespaces != nil {
		namespaces = listener.AllowedRoutes.Namespaces
	}
	switch ptr.Deref(namespaces.From, gatewayv1.NamespacesFromSame) {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(namespaces.Selector)
		return err == nil && selector.Matches(namespaceLabels)
	case gatewayv1.NamespacesFromSame:
		return gateway.Namespace == namespace
	default:
		return false
	}
}

func servesHost(listener *gatewayv1.Listener, host string) bool {
	served := string(ptr.Deref(listener.Hostname, ""))
	domain, wildcard := strings.CutPrefix(served, "*")
	return served == "" || served == host || wildcard && strings.HasSuffix(host, domain) && host != domain
}

// condition returns the condition of a type, or nil.
func condition[T ~string](conditions []metav1.Condition, conditionType T) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == string(conditionType) {
			return &conditions[i]
		}
	}
	return nil
}
