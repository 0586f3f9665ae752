package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceType is the type of the Services of a class. The set of values is closed: consumers fail to decode a class
// with any other value.
//
// +kubebuilder:validation:Enum=NodePort;LoadBalancer;ClusterIP
type ServiceType string

const (
	// ServiceTypeNodePort exposes Pods at a port of the nodes that they run on.
	ServiceTypeNodePort ServiceType = "NodePort"
	// ServiceTypeLoadBalancer exposes Pods through a load balancer outside the cluster.
	ServiceTypeLoadBalancer ServiceType = "LoadBalancer"
	// ServiceTypeClusterIP exposes Pods inside the cluster only.
	ServiceTypeClusterIP ServiceType = "ClusterIP"
)

// PreferredAddressType is the type of address to publish where both a host name and an IP address exist.
//
// +kubebuilder:validation:Enum=Hostname;IP;HostnameConservative
type PreferredAddressType string

const (
	// PreferredAddressTypeHostname prefers host names and falls back to IP addresses.
	PreferredAddressTypeHostname PreferredAddressType = "Hostname"
	// PreferredAddressTypeIP prefers IP addresses and falls back to host names.
	PreferredAddressTypeIP PreferredAddressType = "IP"
	// PreferredAddressTypeHostnameConservative is IP for NodePort, because clients can often not resolve the names of
	// nodes, and Hostname otherwise.
	PreferredAddressTypeHostnameConservative PreferredAddressType = "HostnameConservative"
)

// ServiceField is the path of a field of a Service that spec.objectOverrides of a Listener may change. spec.ports
// stands for adding, removing and renaming ports. There is no value for spec.externalIPs: it redirects the traffic of
// addresses of others (CVE-2020-8554).
//
// +kubebuilder:validation:Enum=metadata.annotations;metadata.labels;spec.allocateLoadBalancerNodePorts;spec.clusterIP;spec.clusterIPs;spec.externalName;spec.externalTrafficPolicy;spec.healthCheckNodePort;spec.internalTrafficPolicy;spec.ipFamilies;spec.ipFamilyPolicy;spec.loadBalancerClass;spec.loadBalancerIP;spec.loadBalancerSourceRanges;spec.ports;spec.ports.appProtocol;spec.ports.nodePort;spec.ports.targetPort;spec.publishNotReadyAddresses;spec.selector;spec.sessionAffinity;spec.sessionAffinityConfig;spec.trafficDistribution;spec.type
type ServiceField string

// ListenerOverrides restricts spec.objectOverrides of Listeners.
type ListenerOverrides struct {
	// allowed are the fields of the Service that objectOverrides of a Listener may change. A Listener that changes
	// another one is not accepted, and its Service stays as it is. An empty list allows none. Defaults to
	// metadata.annotations, metadata.labels, spec.externalTrafficPolicy, spec.internalTrafficPolicy, spec.ipFamilies,
	// spec.ipFamilyPolicy, spec.ports.appProtocol, spec.publishNotReadyAddresses, spec.sessionAffinity,
	// spec.sessionAffinityConfig and spec.trafficDistribution, but without metadata.annotations for a load balancer
	// with allowedClients. With spec.selector, authors of Listeners may expose Pods of their namespace that do not
	// mount the Listener.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Allowed []ServiceField `json:"allowed,omitzero"`
}

// AllowedNamespaces selects namespaces by name or by label.
type AllowedNamespaces struct {
	// names are names of namespaces that are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`

	// selector selects the labels of namespaces that are allowed in addition. An empty selector allows all. If absent,
	// only names are allowed.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// InlineVolumePolicy states whether inline volumes may get Listeners of a class.
//
// +kubebuilder:validation:Enum=Allowed;Forbidden
type InlineVolumePolicy string

const (
	// InlineVolumePolicyAllowed gives each inline volume that names the class a Listener.
	InlineVolumePolicyAllowed InlineVolumePolicy = "Allowed"
	// InlineVolumePolicyForbidden leaves Listeners of the class to claims and users.
	InlineVolumePolicyForbidden InlineVolumePolicy = "Forbidden"
)

// PinningPolicy is how strictly a volume ties its Pod to a node.
//
// +kubebuilder:validation:Enum=Required;Preferred
type PinningPolicy string

const (
	// PinningPolicyRequired keeps the Pod on the node. While the node cannot take the Pod, it waits.
	PinningPolicyRequired PinningPolicy = "Required"
	// PinningPolicyPreferred keeps the Pod on the node while the node exists and takes the Pod.
	PinningPolicyPreferred PinningPolicy = "Preferred"
)

// Pinning describes how the volumes of a class tie their Pods to nodes, and when they release them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.releaseAfter) || self.policy == 'Required'",message="releaseAfter needs policy Required: a volume with policy Preferred is released as soon as its node is lost"
type Pinning struct {
	// policy is Required or Preferred. With Required, the Pod waits while its node cannot take it, and the volume is
	// released only as releaseAfter states. With Preferred, the volume is released when its node is lost, and when the
	// Pod cannot be scheduled because of the pin although another node would take it, for example after the node was
	// cordoned; the volume is then pinned to the node where the Pod starts.
	Policy PinningPolicy `json:"policy"`

	// releaseAfter is how long the node must have been lost before the volume is released, for example 10m: its Node
	// object does not exist, or has the taint node.kubernetes.io/out-of-service. At least 10s, at most 8760h. If
	// absent, the volume is never released automatically. Applies only to policy Required.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('8760h')",message="releaseAfter must be a duration from 10s to 8760h, such as 90s, 10m or 1h30m: a node that is only created again takes a moment"
	ReleaseAfter *metav1.Duration `json:"releaseAfter,omitempty"`
}

// NodePortTarget states which ports of the containers node ports lead to.
//
// +kubebuilder:validation:Enum=Same
type NodePortTarget string

// NodePortTargetSame leads each node port to the container port of the same number.
const NodePortTargetSame NodePortTarget = "Same"

// NodePorts states which node ports Services get, and where they lead. At least one field must be set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxPortsPerNamespace) || has(self.range)",message="maxPortsPerNamespace has no effect without range: set a range, or remove maxPortsPerNamespace"
type NodePorts struct {
	// range is the first and the last number that the operator allocates, with a hyphen in between, such as
	// 31000-31999. It must be in the range of node ports of the cluster, by default 30000-32767. A Listener keeps the
	// numbers that it has, also outside of the range. If no number is free, the Listener is not accepted. If absent,
	// Kubernetes allocates the numbers.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="must be two port numbers, the lower one first, such as 31000-31999"
	Range string `json:"range,omitempty"`

	// maxPortsPerNamespace is how many numbers of the range the Listeners of a namespace may have together, so that
	// one namespace cannot use them up. Those that they have already are not taken away. If absent, it is not limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPortsPerNamespace *int32 `json:"maxPortsPerNamespace,omitempty"`

	// target states which ports of the containers the node ports lead to. With Same, each leads to the container port
	// of the same number: programs have to listen on the number that they read from their volume, and so listen on the
	// port that they advertise. The cluster IP of the Service leads there, too, at the ports of the Listener. A
	// targetPort that overrides set takes precedence. If absent, node ports lead to the ports of the Listener.
	// +optional
	Target NodePortTarget `json:"target,omitempty"`
}

// OnAddressChange is what happens to running Pods when their addresses change.
//
// +kubebuilder:validation:Enum=Rewrite;Restart
type OnAddressChange string

const (
	// OnAddressChangeRewrite rewrites the files in the volumes of the Pods, which keep running.
	OnAddressChangeRewrite OnAddressChange = "Rewrite"
	// OnAddressChangeRestart rewrites the files, and then evicts the Pods, one of a controller at a time.
	OnAddressChangeRestart OnAddressChange = "Restart"
)

// NotReadyAddressPolicy states which Listeners may send clients to Pods that are not ready.
//
// +kubebuilder:validation:Enum=AsRequested;PerPodOnly
type NotReadyAddressPolicy string

const (
	// NotReadyAddressPolicyAsRequested leaves it to each Listener.
	NotReadyAddressPolicyAsRequested NotReadyAddressPolicy = "AsRequested"
	// NotReadyAddressPolicyPerPodOnly permits it only to Listeners of class-based claims, because each has a Pod of its
	// own. Several Pods can share any other Listener.
	NotReadyAddressPolicyPerPodOnly NotReadyAddressPolicy = "PerPodOnly"
)

// LoadBalancer configures the load balancers of a class.
type LoadBalancer struct {
	// sharing lets the Listeners of the class share an address, with ports of their own.
	Sharing LoadBalancerSharing `json:"sharing"`
}

// LoadBalancerSharing lets the Listeners of a class share an address of a load balancer. That the Services share the
// address is up to the implementation, which serviceAnnotations configure.
type LoadBalancerSharing struct {
	// portRange is the first and the last port of the shared address that the operator allocates, with a hyphen in
	// between, such as 9000-9999. Each port of a Listener has a number of its own there, which leads to the port of the
	// Listener, and keeps it. No two Listeners of the cluster get the same number, whatever their classes. If no number
	// is free, the Listener is not accepted. A number is reserved as long as there is a Service that has it.
	//
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="must be two port numbers, the lower one first, such as 9000-9999"
	PortRange string `json:"portRange"`

	// maxPortsPerNamespace is how many numbers of the range the Listeners of a namespace may have together, so that
	// one namespace cannot use them up. Those that they have already are not taken away. If absent, it is not limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPortsPerNamespace *int32 `json:"maxPortsPerNamespace,omitempty"`
}

// ListenerClassSpec describes how Listeners of the class are exposed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.serviceType == 'ClusterIP'",message="route needs serviceType ClusterIP: the router reaches the Pods from inside the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.hostPort) || self.serviceType == 'ClusterIP'",message="hostPort needs serviceType ClusterIP: the Pods open the ports of their nodes, and the Service none"
// +kubebuilder:validation:XValidation:rule="!has(self.ingress) || self.serviceType == 'ClusterIP'",message="ingress needs serviceType ClusterIP: the Ingress controller reaches the Pods from inside the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.serviceType == 'ClusterIP'",message="gateway needs serviceType ClusterIP: the Gateway reaches the Pods from inside the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || self.serviceType == 'ClusterIP'",message="pod needs serviceType ClusterIP: clients connect to the Pods themselves"
// +kubebuilder:validation:XValidation:rule="[has(self.route), has(self.ingress), has(self.gateway), has(self.hostPort), has(self.pod)].filter(set, set).size() < 2",message="at most one of route, ingress, gateway, hostPort and pod may be set"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !has(self.advertise)",message="pod publishes what leads to the Pods themselves, and advertise publishes other addresses: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !has(self.preferredAddressType) || self.preferredAddressType != 'IP'",message="pod contradicts preferredAddressType IP: a Pod has its files before it has an IP address; remove preferredAddressType"
// +kubebuilder:validation:XValidation:rule="!has(self.pinning) || self.serviceType == 'NodePort' || has(self.hostPort)",message="pinning needs serviceType NodePort, or hostPort: other addresses do not depend on a node"
// +kubebuilder:validation:XValidation:rule="!has(self.pinning) || !has(self.pinnedNodePorts) || !self.pinnedNodePorts || self.pinning.policy == 'Required'",message="pinnedNodePorts: true means pinning.policy Required, which contradicts the policy Preferred: remove pinnedNodePorts"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeAddresses) || self.serviceType == 'NodePort' || has(self.hostPort)",message="nodeAddresses needs serviceType NodePort, or hostPort: other addresses do not belong to nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeAddresses) || !has(self.nodeAddresses.types) || !has(self.preferredAddressType) || self.preferredAddressType == 'HostnameConservative'",message="nodeAddresses.types and preferredAddressType both decide which address of a node is published: remove preferredAddressType"
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack'",message="two ipFamilies need ipFamilyPolicy PreferDualStack or RequireDualStack"
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || !has(self.route) || !has(self.route.ports)",message="ports and route.ports both list the ports that are exposed: remove route.ports"
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || !has(self.ingress) || !has(self.ingress.ports)",message="ports and ingress.ports both list the ports that are exposed: remove ingress.ports"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterIPs) || self.serviceType == 'ClusterIP' && !(has(self.route) || has(self.ingress) || has(self.gateway) || has(self.hostPort) || has(self.pod))",message="clusterIPs needs serviceType ClusterIP, without route, ingress, gateway, hostPort and pod: clients connect to the cluster IPs themselves"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterIPs) || has(self.preferredAddressType) && self.preferredAddressType == 'IP'",message="clusterIPs needs preferredAddressType IP: otherwise the name of the Service is published, which only clients in the cluster can resolve"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterIPs) || !has(self.ipFamilies) || self.ipFamilies.all(f, self.clusterIPs.cidrs.exists(c, c.contains(':') == (f == 'IPv6')))",message="clusterIPs.cidrs needs a range of each of ipFamilies"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterIPs) || !has(self.ipFamilyPolicy) || self.ipFamilyPolicy == 'SingleStack' || self.clusterIPs.cidrs.exists(c, c.contains(':')) && self.clusterIPs.cidrs.exists(c, !c.contains(':'))",message="with two IP families, clusterIPs.cidrs needs a range of each"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePorts) || self.serviceType == 'NodePort'",message="nodePorts needs serviceType NodePort: other Services are not reached at node ports"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePorts) || has(self.nodePorts.range) || has(self.nodePorts.target)",message="nodePorts has no effect without range or target: set one of them, or remove nodePorts"
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || self.hostname.records != 'Annotation' || self.serviceType != 'NodePort' && !has(self.hostPort)",message="hostname needs hostname.records DNSEndpoint or None with serviceType NodePort and with hostPort: by an annotation, external-dns lets a name lead to all nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || !(has(self.route) || has(self.ingress) || has(self.gateway))",message="hostname names the addresses of the Service or of nodes, which are not published with route, ingress or gateway: remove hostname"
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || self.hostname.records == 'Annotation' || !has(self.advertise)",message="hostname.records DNSEndpoint and None publish a name in place of the addresses, and advertise publishes other addresses: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || self.hostname.records == 'Annotation' || !has(self.pod)",message="hostname.records DNSEndpoint and None record the addresses in the status, which has none of Pods: use hostname.records Annotation with pod"
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || !has(self.serviceAnnotationTemplates) || !('external-dns.alpha.kubernetes.io/hostname' in self.serviceAnnotationTemplates || 'external-dns.kubernetes.io/hostname' in self.serviceAnnotationTemplates)",message="hostname and serviceAnnotationTemplates both set an annotation of external-dns for the host name: remove it from serviceAnnotationTemplates"
// +kubebuilder:validation:XValidation:rule="!has(self.advertise) || !has(self.advertise.addressTemplate) || !self.advertise.addressTemplate.contains('{nodeName}') || self.serviceType == 'NodePort' || has(self.hostPort)",message="{nodeName} in advertise.addressTemplate needs serviceType NodePort, or hostPort: other addresses do not belong to nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.advertise) || !has(self.advertise.portTemplate) || !self.advertise.portTemplate.contains('{nodePort}') || self.serviceType != 'ClusterIP'",message="{nodePort} in advertise.portTemplate needs serviceType NodePort or LoadBalancer: other Services have no node ports"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancer) || self.serviceType == 'LoadBalancer'",message="loadBalancer needs serviceType LoadBalancer: other Services have none"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancer) || !has(self.serviceExternalTrafficPolicy) || self.serviceExternalTrafficPolicy != 'Local'",message="loadBalancer.sharing contradicts serviceExternalTrafficPolicy Local: the nodes that receive the traffic of the shared address have to forward it to Pods on other nodes; remove serviceExternalTrafficPolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedClients) || has(self.route) || has(self.hostPort) || has(self.pod) || self.serviceType == 'LoadBalancer' || self.serviceType == 'NodePort' && has(self.serviceExternalTrafficPolicy) && self.serviceExternalTrafficPolicy == 'Local'",message="allowedClients can be enforced only with serviceType LoadBalancer, with NodePort and serviceExternalTrafficPolicy Local, and with hostPort, pod or route: otherwise the Pods do not see the addresses of clients, and proxies have to be configured to filter them"
type ListenerClassSpec struct {
	// serviceType is the type of the Services of this class: NodePort, LoadBalancer or ClusterIP.
	ServiceType ServiceType `json:"serviceType"`

	// loadBalancerAllocateNodePorts states whether the Services also allocate node ports. Applies only to serviceType
	// LoadBalancer. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	LoadBalancerAllocateNodePorts *bool `json:"loadBalancerAllocateNodePorts,omitempty"`

	// loadBalancerClass is the load balancer implementation of the Services. Applies only to serviceType LoadBalancer.
	// Defaults to the default implementation of the cluster.
	// +optional
	// +nullable
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// loadBalancer configures the load balancers. Requires serviceType LoadBalancer. If absent, each Listener has a
	// load balancer of its own, with the ports of the Listener.
	// +optional
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty"`

	// serviceAnnotations are annotations of the Services. Defaults to none.
	// +optional
	// +kubebuilder:default={}
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`

	// serviceAnnotationTemplates are annotations of the Services whose values have placeholders: {listener},
	// {namespace}, {className}, {podName}, {podIndex} and {hash}, which stands for 16 digits that depend on the
	// namespace and the name of the Listener. {podName} and {podIndex} require a Listener of a PersistentVolumeClaim
	// that belongs to a single Pod. They take precedence over serviceAnnotations and overrides. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ServiceAnnotationTemplates map[string]AnnotationTemplate `json:"serviceAnnotationTemplates,omitempty"`

	// hostname publishes a name for each Listener: before the addresses of its Service, which has the name in the
	// annotations external-dns.kubernetes.io/hostname and external-dns.alpha.kubernetes.io/hostname, or in place of
	// all addresses, see hostname.records. With pod, it is published instead of the name that the Service has. Cannot
	// be combined with route, ingress and gateway. With serviceType NodePort and with hostPort, it requires
	// hostname.records DNSEndpoint or None. If absent, no name is published.
	// +optional
	Hostname *Hostname `json:"hostname,omitempty"`

	// This is a pattern because an enum rejects null even where a field is nullable, and no marker adds null to the
	// values of an enum.

	// serviceExternalTrafficPolicy states whether nodes forward external traffic to Pods on other nodes (Cluster) or
	// only to Pods of their own (Local). Applies only to serviceType NodePort and LoadBalancer. Defaults to the default
	// of Kubernetes.
	// +optional
	// +nullable
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(Cluster|Local)$`
	ServiceExternalTrafficPolicy *corev1.ServiceExternalTrafficPolicy `json:"serviceExternalTrafficPolicy,omitempty"`

	// preferredAddressType is the type of address to publish where both exist: Hostname, IP or HostnameConservative.
	// The other type is the fallback. HostnameConservative means IP for serviceType NodePort, and Hostname otherwise.
	// Defaults to HostnameConservative.
	// +optional
	// +kubebuilder:default=HostnameConservative
	PreferredAddressType PreferredAddressType `json:"preferredAddressType,omitempty"`

	// ports are the names of the ports that are exposed, the preferred one first, as far as a Listener has them. Where
	// each port has addresses of its own, as with Routes, the addresses are in this order. A claim may restrict the
	// ports further, by the annotation listener-operator.dev/ports. Defaults to all ports, in the order of the
	// Listener.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Ports []string `json:"ports,omitempty"`

	// nodePorts states which node ports the Services get, and which ports of the containers they lead to. Requires
	// serviceType NodePort. If absent, Kubernetes allocates them, and they lead to the ports of the Listener.
	// +optional
	NodePorts *NodePorts `json:"nodePorts,omitempty"`

	// clusterIPs states which cluster IPs the Services get, so that the network outside has to route only these.
	// Requires serviceType ClusterIP and preferredAddressType IP, without route, ingress, gateway, hostPort and pod. A
	// Listener whose Service has another cluster IP is not accepted, and keeps it until you delete the Service. A
	// cluster IP that overrides set takes precedence. If absent, Kubernetes allocates the cluster IPs.
	// +optional
	ClusterIPs *ClusterIPs `json:"clusterIPs,omitempty"`

	// nodeAddresses selects which of the addresses of a node are published. Requires serviceType NodePort, or hostPort.
	// If absent, preferredAddressType decides.
	// +optional
	NodeAddresses *NodeAddresses `json:"nodeAddresses,omitempty"`

	// ipFamilies are the IP families of the Services, the preferred one first: IPv4, IPv6 or both, which requires an
	// ipFamilyPolicy for two. A Service cannot change its first family. If ipFamilies or ipFamilyPolicy is set,
	// addresses are published in the order of the families of the Service, and of a node one IP address for each
	// family. Defaults to what the cluster chooses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] != self[1]",message="must list each family once"
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// ipFamilyPolicy states whether the Services have one IP family (SingleStack), two if the cluster has two
	// (PreferDualStack), or always two (RequireDualStack). Defaults to SingleStack.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// pinnedNodePorts states whether a volume of this class ties its Pod to the node that the Pod was first scheduled
	// to, so that the address of the Pod survives rescheduling. True is short for pinning with policy Required and no
	// releaseAfter: if the node is removed, the Pod stays Pending until its volume is released by hand. Applies only to
	// serviceType NodePort and to hostPort. Defaults to false.
	// +optional
	// +kubebuilder:default=false
	PinnedNodePorts bool `json:"pinnedNodePorts,omitempty"`

	// pinning states how a volume of this class ties its Pod to the node that the Pod was first scheduled to, so that
	// the address of the Pod survives rescheduling, and when it is released from a node that is lost. Requires
	// serviceType NodePort, or hostPort. If absent, pinnedNodePorts decides.
	// +optional
	Pinning *Pinning `json:"pinning,omitempty"`

	// onAddressChange states what happens to running Pods when the addresses in their volumes change. With Rewrite,
	// their files are rewritten, and the Pods keep running. With Restart, the files are rewritten, and the operator
	// then evicts the Pods, as PodDisruptionBudgets permit, one Pod of a controller at a time: the next one when the
	// one before is replaced and ready. Only Pods of a StatefulSet, a ReplicaSet or a DaemonSet are evicted. A Pod that
	// runs when the class gets Restart is evicted at the next change. Defaults to Rewrite.
	// +optional
	OnAddressChange OnAddressChange `json:"onAddressChange,omitempty"`

	// keepFor is how long a Listener that is kept for the next Pod of the same name stays without a Pod, for example
	// 24h. Meanwhile it holds its node ports, its load balancer, and what else the class exposes it by. At least 1m, at
	// most 87600h. If absent, it stays as long as the controller of its Pods, or what controls that, exists, also
	// without replicas, and for ten minutes if they were deleted without their Pods.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="keepFor must be a duration from 1m to 87600h, such as 10m or 24h: a Pod that is replaced takes a moment"
	KeepFor *metav1.Duration `json:"keepFor,omitempty"`

	// notReadyAddressPolicy states which Listeners may send clients to Pods that are not ready. With AsRequested, that
	// is up to publishNotReadyAddresses of each Listener, whose default is true. With PerPodOnly, only Listeners that
	// the operator has created for claims that name the class do so; any other one, which several Pods can share, sends
	// clients to ready Pods only, also if it has publishNotReadyAddresses: true. Overrides take precedence. Defaults to
	// AsRequested.
	// +optional
	NotReadyAddressPolicy NotReadyAddressPolicy `json:"notReadyAddressPolicy,omitempty"`

	// serviceOverrides is a partial Service that is merged over the generated Services. Labels, annotations and ports
	// are merged, ports by number and protocol; any other field is replaced, as spec.selector is. Of the metadata, only
	// labels, annotations and finalizers may be set. Fields that a Service does not have are ignored, and named in the
	// condition Accepted of the Listeners. Defaults to none.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:default={apiVersion: v1, kind: Service, metadata: {}}
	ServiceOverrides runtime.RawExtension `json:"serviceOverrides,omitzero"`

	// listenerOverrides restricts what the authors of Listeners of this class may override. If absent, the default of
	// its field applies.
	// +optional
	ListenerOverrides *ListenerOverrides `json:"listenerOverrides,omitempty"`

	// allowedNamespaces are the namespaces whose Listeners and PersistentVolumeClaims may use the class. Elsewhere, no
	// Listener is created for a claim, and no Service for a Listener. Listeners that used the class when their
	// namespace was still allowed keep it, and report that in their condition Accepted. An empty object allows none. If
	// absent, all namespaces are allowed.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// inlineVolumes states whether an inline volume of a Pod may name the class, and so get a Listener, which no quota
	// of claims counts. With Forbidden, such a Pod does not start; Pods that have their Listener keep it, and inline
	// volumes may still name a Listener of the class. Defaults to Allowed.
	// +optional
	InlineVolumes InlineVolumePolicy `json:"inlineVolumes,omitempty"`

	// allowedClients are the ranges of addresses whose clients may reach Listeners of the class from outside the
	// cluster. The load balancer, a NetworkPolicy for the Pods, or the router refuses others. A Listener may restrict
	// them further. Requires serviceType LoadBalancer, NodePort with serviceExternalTrafficPolicy Local, hostPort, pod
	// or route. If they cannot be enforced for a Listener, for example because of an override, it is not accepted. If
	// absent, all clients are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	AllowedClients []CIDR `json:"allowedClients,omitempty"`

	// maxPorts is the maximum number of ports of a Listener. A Listener with more is not accepted, and its Service
	// stays as it is. Defaults to 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	MaxPorts *int32 `json:"maxPorts,omitempty"`

	// advertise publishes other addresses, for a NAT, a proxy or a load balancer in front of the cluster that the
	// operator does not configure. The Services and all else that exposes the Listeners stay as they are. If absent,
	// the addresses in the cluster are published.
	// +optional
	Advertise *Advertise `json:"advertise,omitempty"`

	// route exposes each port through an OpenShift Route of its own. The addresses are then the host names that a
	// router has admitted. Requires serviceType ClusterIP, and a cluster that serves Routes.
	// +optional
	Route *RouteExposure `json:"route,omitempty"`

	// ingress exposes each port through an Ingress of its own. The addresses are then the hosts of the Ingresses, once
	// the Ingress controller has taken them. Requires serviceType ClusterIP.
	// +optional
	Ingress *IngressExposure `json:"ingress,omitempty"`

	// gateway exposes each port through a route of the Gateway API of its own. The addresses are then the hosts of the
	// routes or the addresses of the Gateway, once its controller has accepted the routes. Requires serviceType
	// ClusterIP, and a cluster that serves the Gateway API.
	// +optional
	Gateway *GatewayExposure `json:"gateway,omitempty"`

	// hostPort publishes the addresses of the nodes that the Pods run on, with the ports that the Pods declare as
	// hostPort or, if they use the network of the node, all their ports. Programs then listen on the ports that they
	// advertise. The operator changes no Pod, and the Services have no node ports. Requires serviceType ClusterIP.
	// pinnedNodePorts applies as for serviceType NodePort.
	// +optional
	HostPort *HostPortExposure `json:"hostPort,omitempty"`

	// pod publishes a name that leads to the Pods themselves, for clients in a network that routes the addresses of
	// Pods: without a hop, another port or a translation of addresses. The Services are headless. The name comes from
	// hostname or, without one, is the DNS name of the Service, and the ports are the ones that the Pods listen on. A
	// Service can neither become headless nor stop being so: a Listener whose Service would have to is not accepted
	// until its Service is deleted. Requires serviceType ClusterIP, without advertise and preferredAddressType IP.
	// +optional
	Pod *PodExposure `json:"pod,omitempty"`

	// certificates lets Listeners have certificates of cert-manager for their addresses. Listeners of a namespace with
	// the same value NAME of the label listener-operator.dev/certificate share one Certificate, named NAME-listener-tls
	// like its Secret. The label of a claim counts as its Listener's. Requires a cluster that serves Certificates. If
	// absent, the label has no effect.
	// +optional
	Certificates *Certificates `json:"certificates,omitempty"`
}

// HostPortExposure exposes Pods at ports of their nodes that the Pods themselves declare. It has no fields yet: write
// {}.
type HostPortExposure struct{}

// PodExposure exposes Pods at addresses of their own. It has no fields yet: write {}.
type PodExposure struct{}

// ListenerClass is a policy of the cluster administrator for how Listeners are exposed. Listeners refer to it by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=lsnclass,categories=listener-operator
// +kubebuilder:printcolumn:name="Service Type",type=string,JSONPath=`.spec.serviceType`
// +kubebuilder:printcolumn:name="Pinned",type=boolean,JSONPath=`.spec.pinnedNodePorts`
// +kubebuilder:printcolumn:name="Pinning",type=string,JSONPath=`.spec.pinning.policy`
// +kubebuilder:printcolumn:name="Address Type",type=string,JSONPath=`.spec.preferredAddressType`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ListenerClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec ListenerClassSpec `json:"spec"`
}

// ListenerClassList is a list of ListenerClasses.
//
// +kubebuilder:object:root=true
type ListenerClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ListenerClass `json:"items"`
}

// AddressPreference returns the type of address that the class prefers for Services of the given type, which differs
// from the type of the class while a change of the class is in progress. It resolves HostnameConservative and an absent
// value.
func (c *ListenerClass) AddressPreference(serviceType ServiceType) AddressType {
	switch c.Spec.PreferredAddressType {
	case PreferredAddressTypeIP:
		return AddressTypeIP
	case PreferredAddressTypeHostname:
		return AddressTypeHostname
	default:
		if serviceType == ServiceTypeNodePort {
			return AddressTypeIP
		}
		return AddressTypeHostname
	}
}

// ListedPorts returns the names of the ports that the class lists, in its order, or nothing if it does not choose
// ports.
func (c *ListenerClass) ListedPorts() []string {
	switch {
	case len(c.Spec.Ports) > 0:
		return slices.Clone(c.Spec.Ports)
	case c.Spec.Route != nil:
		return slices.Clone(c.Spec.Route.Ports)
	case c.Spec.Ingress != nil:
		return slices.Clone(c.Spec.Ingress.Ports)
	default:
		return nil
	}
}

// ChoosesIPFamilies reports whether the class sets IP families of its Services, which then also decide which addresses
// of a node are published.
func (c *ListenerClass) ChoosesIPFamilies() bool {
	return len(c.Spec.IPFamilies) > 0 || c.Spec.IPFamilyPolicy != nil
}

// NodePortRange returns the range of node ports that the operator allocates, or "" if Kubernetes allocates them.
func (c *ListenerClass) NodePortRange() string {
	if c.Spec.NodePorts == nil {
		return ""
	}
	return c.Spec.NodePorts.Range
}

// SharedPortRange returns the range of ports of a shared address that the operator allocates, or "" if each Listener
// has an address of its own.
func (c *ListenerClass) SharedPortRange() string {
	if c.Spec.LoadBalancer == nil {
		return ""
	}
	return c.Spec.LoadBalancer.Sharing.PortRange
}

// GatewayPortRange returns the range of ports of Gateways that the operator allocates, or "" if it allocates none.
func (c *ListenerClass) GatewayPortRange() string {
	if c.Spec.Gateway == nil {
		return ""
	}
	return c.Spec.Gateway.PortRange
}

// TargetsNodePorts reports whether each node port leads to the container port of the same number.
func (c *ListenerClass) TargetsNodePorts() bool {
	return c.Spec.NodePorts != nil && c.Spec.NodePorts.Target == NodePortTargetSame
}

// RestartsPods reports whether Pods are evicted after their addresses have changed.
func (c *ListenerClass) RestartsPods() bool { return c.Spec.OnAddressChange == OnAddressChangeRestart }

// defaultMaxPorts applies to classes without spec.maxPorts.
const defaultMaxPorts = 64

// MaxPorts returns the maximum number of ports of a Listener of the class.
func (c *ListenerClass) MaxPorts() int {
	if c.Spec.MaxPorts == nil {
		return defaultMaxPorts
	}
	return int(*c.Spec.MaxPorts)
}

// OverridableFields returns the fields of a Service that authors of Listeners of the class may change.
func (c *ListenerClass) OverridableFields() []ServiceField {
	if c.Spec.ListenerOverrides != nil && c.Spec.ListenerOverrides.Allowed != nil {
		return c.Spec.ListenerOverrides.Allowed
	}
	return []ServiceField{
		"metadata.annotations", "metadata.labels", "spec.externalTrafficPolicy", "spec.internalTrafficPolicy",
		"spec.ipFamilies", "spec.ipFamilyPolicy",
		"spec.ports.appProtocol", "spec.publishNotReadyAddresses", "spec.sessionAffinity", "spec.sessionAffinityConfig",
		"spec.trafficDistribution",
	}
}

// Pinning returns how volumes of this class tie their Pods to a node, or nil if they do not.
func (c *ListenerClass) Pinning() *Pinning {
	switch {
	case c.Spec.ServiceType != ServiceTypeNodePort && c.Spec.HostPort == nil:
		return nil
	case c.Spec.Pinning != nil:
		return c.Spec.Pinning
	case c.Spec.PinnedNodePorts:
		return &Pinning{Policy: PinningPolicyRequired}
	default:
		return nil
	}
}
