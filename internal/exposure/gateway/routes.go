package gateway

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// objects returns a route for each exposed port, and before them the ListenerSet, if the class has a range of ports.
func (b routes) objects(l *exposure.Listener, others exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	class := l.Class.Spec.Gateway
	switch ports, _ := b.Ports(l); {
	case l.Class.GatewayPortRange() != "":
		return b.withListenerSet(l, others, ports)
	case b.ownPort:
		chosen, refusal := b.choose(l, others, ports)
		if refusal != nil {
			return nil, refusal
		}
		return b.desired(l, host.Template{}, func(port string) []any {
			return []any{parentRef("Gateway", chosen[port].gateway, chosen[port].name, 0)}
		})
	}
	var parents []any
	for _, parent := range class.ParentRefs {
		parents = append(parents, parentRef("Gateway", gatewayName{Namespace: parent.Namespace, Name: parent.Name}, parent.SectionName, parent.Port))
	}
	return b.desired(l, host.Template{Path: "spec.gateway.hostTemplate", Text: string(class.HostTemplate)}, func(string) []any { return parents })
}

// parentRef returns a reference to a Gateway or a ListenerSet. An empty section and port 0 are none.
func parentRef(kind string, name types.NamespacedName, section string, port int32) map[string]any {
	reference := map[string]any{"group": gatewayv1.GroupName, "kind": kind, "namespace": name.Namespace, "name": name.Name}
	if section != "" {
		reference["sectionName"] = section
	}
	if port != 0 {
		reference["port"] = int64(port)
	}
	return reference
}

// desired returns the route of each port, with its parents. It sets the fields that have defaults, too: an item of a
// list without them would look as if another writer had changed it.
func (b routes) desired(l *exposure.Listener, template host.Template, parents func(port string) []any) ([]exposure.Desired, *exposure.Refusal) {
	return b.Desired(l, template, func(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
		i := slices.IndexFunc(l.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port })
		rule := map[string]any{"backendRefs": []any{map[string]any{
			"group": "", "kind": "Service", "name": l.Service.Name, "port": int64(l.Service.Spec.Ports[i].Port), "weight": int64(1),
		}}}
		if b.Kind == "HTTPRoute" {
			rule["matches"] = []any{map[string]any{"path": map[string]any{"type": string(gatewayv1.PathMatchPathPrefix), "value": "/"}}}
		}
		spec := map[string]any{"parentRefs": parents(port), "rules": []any{rule}}
		if name := hosts.ByPort[port]; name != "" {
			spec["hostnames"] = []any{name}
		}
		return exposure.Desired{Unstructured: exposure.NewObject(l, b.gvk(), b.Name(l, port), nil, hosts.Annotations(nil), spec)}, nil
	})
}

type gatewayName = types.NamespacedName

// route is what routes of all kinds have in common.
type route struct {
	metav1.Object
	parents  []gatewayv1.ParentReference
	hosts    []gatewayv1.Hostname
	statuses []gatewayv1.RouteParentStatus
}

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

func hostsOf(o exposure.Object) []string {
	var hosts []string
	for _, host := range routeOf(o).hosts {
		hosts = append(hosts, string(host))
	}
	return hosts
}

func findGateway(l *exposure.Listener, name gatewayName) *gatewayv1.Gateway {
	return find[*gatewayv1.Gateway](l.Referenced, name)
}

// find returns the object of a type with this name, or nil.
func find[T exposure.Object](objects []exposure.Object, name types.NamespacedName) (found T) {
	for _, o := range objects {
		if object, ok := o.(T); ok && o.GetNamespace() == name.Namespace && o.GetName() == name.Name {
			return object
		}
	}
	return found
}

// gatewayOf returns the Gateway that a parent reference of a route in a namespace is to. ok is false if it is to
// something else.
func gatewayOf(namespace string, parent gatewayv1.ParentReference) (name gatewayName, ok bool) {
	isGateway := ptr.Deref(parent.Group, gatewayv1.GroupName) == gatewayv1.GroupName && ptr.Deref(parent.Kind, "Gateway") == "Gateway"
	return gatewayName{Namespace: string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(namespace))), Name: string(parent.Name)}, isGateway
}

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
