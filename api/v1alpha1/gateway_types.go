package v1alpha1

// GatewayRouteKind is a kind of routes of the Gateway API.
//
// +kubebuilder:validation:Enum=TLSRoute;HTTPRoute;TCPRoute;UDPRoute
type GatewayRouteKind string

const (
	// GatewayRouteKindTLS routes TLS connections by the host name in them (SNI).
	GatewayRouteKindTLS GatewayRouteKind = "TLSRoute"
	// GatewayRouteKindHTTP routes HTTP requests by their host.
	GatewayRouteKindHTTP GatewayRouteKind = "HTTPRoute"
	// GatewayRouteKindTCP routes all TCP connections at a port of the Gateway.
	GatewayRouteKindTCP GatewayRouteKind = "TCPRoute"
	// GatewayRouteKindUDP routes all UDP datagrams at a port of the Gateway.
	GatewayRouteKindUDP GatewayRouteKind = "UDPRoute"
)

// GatewayParent refers to a Gateway, or to some of its listeners.
type GatewayParent struct {
	// namespace is the namespace of the Gateway. Its listeners must allow routes from the namespaces of Listeners.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the name of the Gateway.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// sectionName is the name of the only listener of the Gateway to use. Defaults to all listeners with a protocol of
	// the routes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SectionName string `json:"sectionName,omitempty"`

	// port is the port of the listeners of the Gateway to use. Defaults to any port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// GatewayExposure configures the routes of the Gateway API of a class. A Listener has one route for each port, named
// after the Listener and the port.
//
// +kubebuilder:validation:XValidation:rule="!has(self.portRange) || self.kind in ['TCPRoute', 'UDPRoute']",message="portRange needs kind TCPRoute or UDPRoute: all other routes share the ports of the Gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.portRange) || self.parentRefs.all(p, !has(p.sectionName) && !has(p.port))",message="with portRange, parentRefs name whole Gateways: remove sectionName and port"
// +kubebuilder:validation:XValidation:rule="self.kind in ['TLSRoute', 'HTTPRoute'] ? has(self.hostTemplate) : !has(self.hostTemplate)",message="TLSRoute and HTTPRoute need a hostTemplate, by which the Gateway selects the Pod; TCPRoute and UDPRoute have none: there it is the port of the Gateway"
type GatewayExposure struct {
	// kind is the kind of the routes. With TLSRoute and HTTPRoute, each route has a host, and all share the ports of
	// the Gateway: clients send the host name in the TLS connection (SNI), or in the HTTP request. With TCPRoute and
	// UDPRoute, each route has its own listener of the Gateway, and the address is the Gateway's, with the port of this
	// listener.
	Kind GatewayRouteKind `json:"kind"`

	// parentRefs are the Gateways that serve the routes. With TLSRoute and HTTPRoute, each of them serves every route.
	// With TCPRoute and UDPRoute, each route gets one listener of one of them that no other route has, and keeps it.
	// With portRange, a Listener gets all its ports from the first Gateway that has enough.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ParentRefs []GatewayParent `json:"parentRefs"`

	// hostTemplate is the template of the host name of each TLSRoute or HTTPRoute, with the placeholders {listener},
	// {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}, which stands for 16 digits that depend on the
	// namespace and the names of Listener and port. {podName} and {podIndex} require a Listener of a
	// PersistentVolumeClaim that belongs to a single Pod. No two Listeners may get the same host, whatever their names:
	// the template contains {namespace}, and {listener} or {podName}, each as the only placeholder between two dots; or
	// a part between two dots ends with {hash}. A DNS label that gets too long is shortened and ends with a hash.
	// +optional
	HostTemplate HostTemplate `json:"hostTemplate,omitempty"`

	// portRange is the first and the last port of the Gateway that the operator allocates, with a hyphen in between,
	// such as 20000-20999. Each TCPRoute or UDPRoute has a number of its own there, and keeps it, in a ListenerSet of
	// its Listener, which the Gateway must allow. No other listener of the Gateway has this number, whatever the class.
	// A Listener keeps the numbers that it has, also outside of the range. If no number is free, the Listener is not
	// accepted. If absent, the routes get listeners that administrators have added to the Gateways.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="must be two port numbers, the lower one first, such as 20000-20999"
	PortRange string `json:"portRange,omitempty"`
}
