package gateway

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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

// host returns the host of a route, or "".
func (r route) host() string {
	if len(r.hosts) == 0 {
		return ""
	}
	return string(r.hosts[0])
}

func routeOf(o exposure.Object) route {
	switch r := o.(type) {
	case *gatewayv1.TLSRoute:
		return route{r, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents}
	case *gatewayv1.HTTPRoute:
		return route{r, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents}
	case *gatewayv1.TCPRoute:
		return route{r, r.Spec.ParentRefs, nil, r.Status.Parents}
	case *gatewayv1.UDPRoute:
		return route{r, r.Spec.ParentRefs, nil, r.Status.Parents}
	default:
		return route{Object: o}
	}
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

// isListenerSet reports whether a parent reference of a route is to a ListenerSet.
func isListenerSet(parent gatewayv1.ParentReference) bool {
	return ptr.Deref(parent.Group, gatewayv1.GroupName) == gatewayv1.GroupName && ptr.Deref(parent.Kind, "") == listenerSetKind
}

func selects(parent gatewayv1.ParentReference, listener *gatewayv1.Listener) bool {
	return ptr.Deref(parent.SectionName, listener.Name) == listener.Name && ptr.Deref(parent.Port, listener.Port) == listener.Port
}

// speaks reports whether routes of the backend can attach to a listener of a Gateway.
func (b routes) speaks(listener *gatewayv1.Listener) bool {
	kinds := ptr.Deref(listener.AllowedRoutes, gatewayv1.AllowedRoutes{}).Kinds
	return slices.Contains(b.protocols, listener.Protocol) && (len(kinds) == 0 || slices.ContainsFunc(kinds, func(k gatewayv1.RouteGroupKind) bool {
		return string(k.Kind) == b.Kind && ptr.Deref(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName
	}))
}

// allows reports whether a listener of a Gateway allows routes from a namespace with these labels.
func allows(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, namespace string, namespaceLabels labels.Set) bool {
	namespaces := ptr.Deref(ptr.Deref(listener.AllowedRoutes, gatewayv1.AllowedRoutes{}).Namespaces, gatewayv1.RouteNamespaces{})
	return isFrom(ptr.Deref(namespaces.From, gatewayv1.NamespacesFromSame), namespaces.Selector, gateway, namespace, namespaceLabels)
}

// allowsListenerSets reports whether a Gateway allows ListenerSets of a namespace with these labels.
func allowsListenerSets(gateway *gatewayv1.Gateway, namespace string, namespaceLabels labels.Set) bool {
	namespaces := ptr.Deref(ptr.Deref(gateway.Spec.AllowedListeners, gatewayv1.AllowedListeners{}).Namespaces, gatewayv1.ListenerNamespaces{})
	return isFrom(ptr.Deref(namespaces.From, gatewayv1.NamespacesFromNone), namespaces.Selector, gateway, namespace, namespaceLabels)
}

// isFrom reports whether a namespace is one of those that a Gateway allows something from.
func isFrom(from gatewayv1.FromNamespaces, s *metav1.LabelSelector, gateway *gatewayv1.Gateway, namespace string, namespaceLabels labels.Set) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(s)
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
