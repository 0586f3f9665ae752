// Package gateway has the backends that expose Listeners through routes of the Gateway API, one for each kind of
// routes. Each port has a route of its own. The addresses are the hosts of the routes that a Gateway serves, or the
// addresses of the Gateway with the port of the listener that the route has for itself. That is one of the Gateway, or
// of a ListenerSet that the backend generates.
//
// "Listener" is the operator's in this package; that of a Gateway is always called a listener of the Gateway.
package gateway

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
	"github.com/listener-operator/listener-operator/internal/registry"
)

var groupVersion = schema.GroupVersion(gatewayv1.GroupVersion)

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
		protocols: []gatewayv1.ProtocolType{gatewayv1.TCPProtocolType}, otherVersions: []string{"v1alpha2"},
		ownPort: true,
	},
	listenersv1alpha1.GatewayRouteKindUDP: {
		Objects:   perport.Objects[exposure.Object]{Protocol: corev1.ProtocolUDP},
		protocols: []gatewayv1.ProtocolType{gatewayv1.UDPProtocolType}, otherVersions: []string{"v1alpha2"},
		ownPort: true,
	},
}

// Backend returns the backend for classes with spec.gateway and a kind of routes. A class that changes from one kind to
// another one changes its backend, so that the former routes stay until the new ones serve.
func Backend(kind listenersv1alpha1.GatewayRouteKind) *exposure.Backend {
	b := kinds[kind]
	b.Objects = perport.Objects[exposure.Object]{
		Kind: string(kind), Plural: string(kind) + "s", Protocol: cmp.Or(b.Protocol, corev1.ProtocolTCP),
		Exposes: func(class *listenersv1alpha1.ListenerClass) bool {
			return class.Spec.Gateway != nil && class.Spec.Gateway.Kind == kind
		},
		Is: func(o exposure.Object) bool { // a port may be named such that both have the same name
			_, isSet := o.(*gatewayv1.ListenerSet)
			return !isSet
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
		backend.Scarce, backend.Published = "GatewayPort", b.published
	}
	return backend
}

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
		AddToScheme:      gatewayv1.Install,
		InReasons:        "GatewayRoute",
	}
	if !b.ownPort {
		kind.Holds = func(o exposure.Object) []registry.Key {
			return registry.Keys(listenersv1alpha1.WaitingKindHost, hostsOf(o)...)
		}
		return []*exposure.Kind{kind}
	}
	kind.Holds, kind.Trim, kind.Exclusive = sectionsOf, trimRoute, listenersv1alpha1.WaitingKindGatewayListener
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
		parents = append(parents, parentRef("Gateway", gatewayName{Namespace: parent.Namespace, Name: parent.Name},
			parent.SectionName, parent.Port))
	}
	return b.desired(l, host.Template{Path: "spec.gateway.hostTemplate", Text: string(class.HostTemplate)},
		func(string) []any { return parents })
}

// parentRef returns a reference to a Gateway or a ListenerSet. An empty section and port 0 are none.
func parentRef(kind string, name types.NamespacedName, section string, port int32) map[string]any {
	reference := map[string]any{"group": gatewayv1.GroupName, "kind": kind, "namespace": name.Namespace,
		"name": name.Name}
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
func (b routes) desired(l *exposure.Listener, template host.Template,
	parents func(port string) []any) ([]exposure.Desired, *exposure.Refusal) {
	return b.Desired(l, template, func(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired,
		*exposure.Refusal) {
		i := slices.IndexFunc(l.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port })
		rule := map[string]any{"backendRefs": []any{map[string]any{
			"group": "", "kind": "Service", "name": l.Service.Name, "port": int64(l.Service.Spec.Ports[i].Port),
			"weight": int64(1),
		}}}
		if b.Kind == "HTTPRoute" {
			rule["matches"] = []any{map[string]any{"path": map[string]any{"type": string(gatewayv1.PathMatchPathPrefix),
				"value": "/"}}}
		}
		spec := map[string]any{"parentRefs": parents(port), "rules": []any{rule}}
		if name := hosts.ByPort[port]; name != "" {
			spec["hostnames"] = []any{name}
		}
		return exposure.Desired{Unstructured: exposure.NewObject(l, b.gvk(), b.Name(l, port), nil,
			hosts.Annotations(nil), spec)}, nil
	})
}

type gatewayName = types.NamespacedName

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
	}
	return route{Object: o}
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

func find[T exposure.Object](objects []exposure.Object, name types.NamespacedName) (found T) {
	for _, o := range objects {
		if object, ok := o.(T); ok && o.GetNamespace() == name.Namespace && o.GetName() == name.Name {
			return object
		}
	}
	return found
}

// gatewayOf returns the Gateway that a parent reference of a route is to. ok is false if it is to something else.
func gatewayOf(namespace string, parent gatewayv1.ParentReference) (name gatewayName, ok bool) {
	return gatewayName{Namespace: string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(namespace))),
		Name: string(parent.Name)}, isA("Gateway", parent)
}

func isA(kind gatewayv1.Kind, parent gatewayv1.ParentReference) bool {
	return ptr.Deref(parent.Group, gatewayv1.GroupName) == gatewayv1.GroupName &&
		ptr.Deref(parent.Kind, "Gateway") == kind
}

func selects(parent gatewayv1.ParentReference, listener *gatewayv1.Listener) bool {
	return ptr.Deref(parent.SectionName, listener.Name) == listener.Name &&
		ptr.Deref(parent.Port, listener.Port) == listener.Port
}

// speaks reports whether routes of the backend can attach to a listener of a Gateway.
func (b routes) speaks(listener *gatewayv1.Listener) bool {
	kinds := ptr.Deref(listener.AllowedRoutes, gatewayv1.AllowedRoutes{}).Kinds
	return slices.Contains(b.protocols, listener.Protocol) &&
		(len(kinds) == 0 || slices.ContainsFunc(kinds, func(k gatewayv1.RouteGroupKind) bool {
			return string(k.Kind) == b.Kind && ptr.Deref(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName
		}))
}

// allows reports whether a listener of a Gateway allows routes from a namespace with these labels.
func allows(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, namespace string,
	namespaceLabels labels.Set) bool {
	namespaces := ptr.Deref(ptr.Deref(listener.AllowedRoutes, gatewayv1.AllowedRoutes{}).Namespaces,
		gatewayv1.RouteNamespaces{})
	return isFrom(ptr.Deref(namespaces.From, gatewayv1.NamespacesFromSame), namespaces.Selector, gateway, namespace,
		namespaceLabels)
}

// allowsListenerSets reports whether a Gateway allows ListenerSets of a namespace with these labels.
func allowsListenerSets(gateway *gatewayv1.Gateway, namespace string, namespaceLabels labels.Set) bool {
	namespaces := ptr.Deref(ptr.Deref(gateway.Spec.AllowedListeners, gatewayv1.AllowedListeners{}).Namespaces,
		gatewayv1.ListenerNamespaces{})
	return isFrom(ptr.Deref(namespaces.From, gatewayv1.NamespacesFromNone), namespaces.Selector, gateway, namespace,
		namespaceLabels)
}

// isFrom reports whether a namespace is one of those that a Gateway allows something from.
func isFrom(from gatewayv1.FromNamespaces, s *metav1.LabelSelector, gateway *gatewayv1.Gateway, namespace string,
	namespaceLabels labels.Set) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && selector.Matches(namespaceLabels)
	case gatewayv1.NamespacesFromSame:
		return gateway.Namespace == namespace
	}
	return false
}

// servesHost reports whether a listener of a Gateway serves the host of a route, if it has one.
func (b routes) servesHost(listener *gatewayv1.Listener, r route) bool {
	host, served := r.host(), string(ptr.Deref(listener.Hostname, ""))
	domain, wildcard := strings.CutPrefix(served, "*")
	return b.ownPort || served == "" || served == host || wildcard && strings.HasSuffix(host, domain) && host != domain
}
