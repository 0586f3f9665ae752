package v1alpha1

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Condition types of a Listener.
const (
	// ListenerAccepted is true when class, ports, name and overrides result in valid objects, and the API server has
	// accepted these.
	ListenerAccepted = "Accepted"
	// ListenerReady is true when the Listener has at least one address.
	ListenerReady = "Ready"
	// ListenerNodesAvailable is false while the node that a volume of the Listener is pinned to is lost, and after the
	// volume was released until its Pod is on another node. A Listener that this never happened to has no such
	// condition.
	ListenerNodesAvailable = "NodesAvailable"
	// ListenerDNSReady is true when external-dns has read where the name of the Listener leads. A Listener whose class
	// has no hostname with records DNSEndpoint has no such condition.
	ListenerDNSReady = "DNSReady"
)

// Reasons of ListenerAccepted. Those of reasons.Foreign and reasons.Rejected have the kind of an object in their name.
const (
	ReasonAccepted          = "Accepted"
	ReasonClassNotSet       = "ClassNotSet"
	ReasonClassNotFound     = "ClassNotFound"
	ReasonNoPorts           = "NoPorts"
	ReasonInvalidPorts      = "InvalidPorts"
	ReasonInvalidName       = "InvalidName"
	ReasonInvalidOverrides  = "InvalidOverrides"
	ReasonForeignService    = "ForeignService"
	ReasonServiceRejected   = "ServiceRejected"
	ReasonQuotaExceeded     = "QuotaExceeded"
	ReasonDuplicatePortName = "DuplicatePortName"
	ReasonNotServed         = "NotServed"
	ReasonNoRoutablePorts   = "NoRoutablePorts"
	ReasonNoSinglePod       = "NoSinglePod"
	ReasonInvalidHost       = "InvalidHost"

	ReasonInvalidAdvertisement = "InvalidAdvertisement"
	ReasonAddressTaken         = "AddressTaken"

	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	ReasonNodePortsExhausted  = "NodePortsExhausted"

	ReasonSharedPortsExhausted = "SharedPortsExhausted"
	ReasonPortLimitReached     = "PortLimitReached"
	ReasonNoGatewayListener    = "NoGatewayListener"

	ReasonListenerSetNotAllowed = "ListenerSetNotAllowed"
	ReasonGatewayPortsExhausted = "GatewayPortsExhausted"
	ReasonClusterIPsExhausted   = "ClusterIPsExhausted"

	ReasonInvalidAllowedClients        = "InvalidAllowedClients"
	ReasonAllowedClientsNotEnforceable = "AllowedClientsNotEnforceable"
	ReasonForeignNetworkPolicy         = "ForeignNetworkPolicy"
	ReasonNetworkPolicyRejected        = "NetworkPolicyRejected"
)

// Reasons of ListenerReady.
const (
	ReasonAddressesAssigned       = "AddressesAssigned"
	ReasonPodsOutdated            = "PodsOutdated"
	ReasonNodesWithoutPods        = "NodesWithoutPods"
	ReasonPreviousExposure        = "PreviousExposure"
	ReasonNotAccepted             = "NotAccepted"
	ReasonWaitingForLoadBalancer  = "WaitingForLoadBalancer"
	ReasonLoadBalancerPortsError  = "LoadBalancerPortsError"
	ReasonUnusableAddress         = "UnusableAddress"
	ReasonWaitingForPods          = "WaitingForPods"
	ReasonWaitingForNodePorts     = "WaitingForNodePorts"
	ReasonWaitingForClusterIP     = "WaitingForClusterIP"
	ReasonNoHostPorts             = "NoHostPorts"
	ReasonNodesMissing            = "NodesMissing"
	ReasonInvalidNodeAddress      = "InvalidNodeAddress"
	ReasonServiceTerminating      = "ServiceTerminating"
	ReasonObjectTerminating       = "ObjectTerminating"
	ReasonWaitingForRouter        = "WaitingForRouter"
	ReasonWaitingForIngress       = "WaitingForIngress"
	ReasonRouteNotAdmitted        = "RouteNotAdmitted"
	ReasonWaitingForGateway       = "WaitingForGateway"
	ReasonGatewayRouteNotAccepted = "GatewayRouteNotAccepted"
)

// Reasons of ListenerReady while the Listener has addresses at which nothing responds.
const (
	ReasonReserved        = "Reserved"
	ReasonNoMatchingPods  = "NoMatchingPods"
	ReasonPortNotDeclared = "PortNotDeclared"
	ReasonNodesNotReady   = "NodesNotReady"
)

// Reasons of ListenerNodesAvailable, and of events on the claims and Pods of pinned volumes.
const (
	ReasonNodeLost       = "NodeLost"
	ReasonNodeReturned   = "NodeReturned"
	ReasonVolumeReleased = "VolumeReleased"
	ReasonVolumeMoved    = "VolumeMoved"
)

// Reasons of ListenerDNSReady, in addition to ReasonNotServed.
const (
	ReasonRecordsRead           = "RecordsRead"
	ReasonWaitingForExternalDNS = "WaitingForExternalDNS"
	ReasonForeignDNSEndpoint    = "ForeignDNSEndpoint"
	ReasonDNSEndpointRejected   = "DNSEndpointRejected"
)

// Reasons of events on claims whose volumes are replaced, or cannot be.
const (
	ReasonVolumeRestored    = "VolumeRestored"
	ReasonVolumeNotRestored = "VolumeNotRestored"
	ReasonReleaseRefused    = "ReleaseRefused"
	ReasonInvalidRelease    = "InvalidRelease"
)

// Reasons of events on PersistentVolumeClaims that cannot be provisioned yet, in addition to the reasons of
// ListenerAccepted.
const (
	ReasonInvalidClaim         = "InvalidClaim"
	ReasonInvalidVolume        = "InvalidVolume"
	ReasonListenerNotFound     = "ListenerNotFound"
	ReasonForeignListener      = "ForeignListener"
	ReasonListenerTerminating  = "ListenerTerminating"
	ReasonWaitForFirstConsumer = "WaitForFirstConsumer"
	// ReasonWaitingForRestore means that a claim comes from a backup, and its Listener may be restored soon.
	ReasonWaitingForRestore = "WaitingForRestore"
)

// Reasons of events on Pods whose volumes cannot be mounted yet, or on Pods that wait for the node of a pinned volume.
const (
	ReasonWaitingForAddress = "WaitingForAddress"
	ReasonRequestRejected   = "RequestRejected"
	ReasonPinnedToNode      = "PinnedToNode"
)

// Reasons of events on Pods whose addresses have changed since they started, if their class restarts them.
const (
	ReasonAddressChanged  = "AddressChanged"
	ReasonEvictionRefused = "EvictionRefused"
	ReasonEvictionDelayed = "EvictionDelayed"
	ReasonNotEvicted      = "NotEvicted"
)

// Reasons of denials of certificates, and of events about certificates on Pods and ConfigMaps.
const (
	ReasonNoListenerVolumes  = "NoListenerVolumes"
	ReasonPodDeleted         = "PodDeleted"
	ReasonCertificateWaiting = "CertificateWaiting"
	ReasonForeignConfigMap   = "ForeignConfigMap"
)

// Reasons of events on claims that are bound.
const (
	ReasonSelectorChanged = "SelectorChanged"
)

// Reasons of events on Pods alone.
const (
	ReasonPodIsCopy     = "PodIsCopy"
	ReasonLabelsRemoved = "LabelsRemoved"
)

// Reasons of events on Listeners, in addition to the reasons of the conditions.
const (
	ReasonForeignPortsRemoved = "ForeignPortsRemoved"
	ReasonNodePortsChanged    = "NodePortsChanged"
	ReasonNumbersChanged      = "NumbersChanged"
	ReasonRestored            = "Restored"
	ReasonListenerUnused      = "ListenerUnused"
	// ReasonClassOfClaim means that the operator has set the class of the Listener of a claim to the one that the claim
	// names.
	ReasonClassOfClaim = "ClassOfClaim"
	// ReasonNotInCertificate means that a Listener has the label for a Certificate, and is not part of one.
	ReasonNotInCertificate = "NotInCertificate"
)

// Reasons of events on ListenerClasses.
const (
	ReasonSettingsIgnored = "SettingsIgnored"
)

// WaitingKind is a kind of what each Listener has for itself. A NodePort, SharedPort, ClusterIP or GatewayPort is in a
// range of the class. A GatewayListener is a listener of a Gateway that the class refers to. The class advertises an
// AdvertisedAddress, which has a port. A later version may add values.
//
// +kubebuilder:validation:Enum=NodePort;SharedPort;ClusterIP;Host;AdvertisedAddress;GatewayListener;GatewayPort
type WaitingKind string

const (
	WaitingKindNodePort          WaitingKind = "NodePort"
	WaitingKindSharedPort        WaitingKind = "SharedPort"
	WaitingKindClusterIP         WaitingKind = "ClusterIP"
	WaitingKindHost              WaitingKind = "Host"
	WaitingKindAdvertisedAddress WaitingKind = "AdvertisedAddress"
	WaitingKindGatewayListener   WaitingKind = "GatewayListener"
	WaitingKindGatewayPort       WaitingKind = "GatewayPort"
)

// AddressType is the type of an ingress address. The set of values is closed.
//
// +kubebuilder:validation:Enum=Hostname;IP
type AddressType string

const (
	// AddressTypeHostname is a DNS name.
	AddressTypeHostname AddressType = "Hostname"
	// AddressTypeIP is an IPv4 or IPv6 address, without brackets and without a zone.
	AddressTypeIP AddressType = "IP"
)

// ListenerPort is one port that a Listener exposes.
type ListenerPort struct {
	// name is the name of the port. It must be unique within the Listener.
	Name string `json:"name"`
	// port is the port number, which the Service and the Pods share, unless the class has the Pods listen on their node
	// ports, or share an address.
	Port int32 `json:"port"`
	// protocol is the protocol of the port: TCP, UDP or SCTP. Defaults to TCP.
	// +optional
	// +nullable
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
}

// IngressAddress is an address at which clients reach the Pods of a Listener.
type IngressAddress struct {
	// address is the host name or IP address.
	Address string `json:"address"`
	// addressType is the type of the address: Hostname or IP.
	AddressType AddressType `json:"addressType"`
	// ports are the port numbers at this address, by the names of the Listener's ports.
	Ports map[string]int32 `json:"ports"`
}

// HostPort returns host:port of one of the ports, with an IPv6 address in brackets.
func (a *IngressAddress) HostPort(port string) string {
	return net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports[port])))
}

// ListenerSpec describes which Pods a Listener exposes, and by which class.
type ListenerSpec struct {
	// className is the name of the ListenerClass that determines how the Listener is exposed.
	// +optional
	// +nullable
	ClassName *string `json:"className,omitempty"`

	// extraPodSelectorLabels are labels that a Pod must have to be exposed, in addition to mounting a volume of this
	// Listener. A Listener with more than 64 is not accepted. Defaults to none.
	// +optional
	// +kubebuilder:default={}
	ExtraPodSelectorLabels map[string]string `json:"extraPodSelectorLabels,omitempty"`

	// ports are the ports to expose. The list is atomic. Of several ports with the same name and protocol, the last one
	// applies. A Listener with more than 1,024 is not accepted, and the class may allow fewer.
	// +optional
	// +nullable
	// +listType=atomic
	Ports []ListenerPort `json:"ports,omitempty"`

	// publishNotReadyAddresses states whether Pods that are not ready also receive traffic. Defaults to true if absent;
	// an explicit null means false.
	// +optional
	// +nullable
	// +kubebuilder:default=true
	PublishNotReadyAddresses *bool `json:"publishNotReadyAddresses,omitempty"`

	// allowedClients are the ranges of addresses whose clients may reach the Listener from outside the cluster. Each
	// must be within a range of the ListenerClass, if that has any. If they cannot be enforced with the class, the
	// Listener is not accepted. If absent, the ranges of the ListenerClass apply.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	AllowedClients []CIDR `json:"allowedClients,omitempty"`

	// objectOverrides are partial objects that are merged over the generated ones, as spec.serviceOverrides of the
	// ListenerClass. Each entry applies to the object of the same apiVersion, kind, namespace and name, after the
	// overrides of the ListenerClass, which also determines which fields may be changed. A Listener is not accepted if
	// more than 16 of them, or 64 KiB, apply to its Service. Defaults to none.
	// +optional
	// +kubebuilder:default={}
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	ObjectOverrides []runtime.RawExtension `json:"objectOverrides,omitempty"`
}

// ListenerSummary is the status of a Listener in one line. It never changes alone: each of its fields follows from
// others that change at the same time.
type ListenerSummary struct {
	// address is the first address with one of its ports, and how many other pairs of address and port there are, for
	// example "203.0.113.7:30092 +2". Empty while there is no address.
	// +optional
	Address string `json:"address,omitempty"`

	// reason is why the Listener is in its state: the reason of the condition Accepted while that is false, and
	// otherwise the reason of the condition Ready.
	// +optional
	Reason string `json:"reason,omitempty"`

	// nodes are the names of the nodes whose addresses these are, for example "node-1,node-2 +3". Empty if the
	// addresses do not belong to nodes.
	// +optional
	Nodes string `json:"nodes,omitempty"`

	// waitingFor is the kind and the value of what the Listener waits for, for example "Host web.example.com". Empty if
	// the status has no waitingFor.
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`
}

// WaitingFor is what a Listener was refused because others have it.
type WaitingFor struct {
	// kind is what it is, for example Host, NodePort, or the listener of a Gateway. A later version may add values.
	Kind WaitingKind `json:"kind"`

	// value is the host, or the address with its port, and with its protocol unless that is TCP. Empty if any one of
	// several would do, such as those of a range.
	// +optional
	Value string `json:"value,omitempty"`

	// holder is the Listener that has the value, as namespace/name. Empty without a value: several have all.
	// +optional
	Holder string `json:"holder,omitempty"`

	// namespaceLimit states that Listeners of other namespaces may get what is free: those of this namespace have as
	// many ports as the class allows, or a Gateway does not allow the namespace.
	// +optional
	NamespaceLimit bool `json:"namespaceLimit,omitempty"`

	// since is when the Listener began to wait for this kind and value.
	Since metav1.Time `json:"since"`
}

// ListenerStatus reports the addresses of a Listener.
type ListenerStatus struct {
	// serviceName is the name of the Service of this Listener.
	// +optional
	// +nullable
	ServiceName *string `json:"serviceName,omitempty"`

	// ingressAddresses are the addresses at which clients reach the Listener, the preferred one first. The list is
	// empty while there are none; the operator never writes null.
	// +optional
	// +nullable
	// +listType=atomic
	IngressAddresses []IngressAddress `json:"ingressAddresses"`

	// endpoints are the first ten of ingressAddresses in the form in which most clients expect them: by the names of
	// the ports, host:port separated by commas, with IPv6 addresses in brackets. A port that no address has is left
	// out. Empty while there are no addresses.
	// +optional
	Endpoints map[string]string `json:"endpoints,omitempty"`

	// targets are the addresses that lead to the Pods, each with the address that is published in its place: whatever
	// is in front of the cluster has to forward from there. Set only if the class advertises other addresses.
	// +optional
	// +listType=atomic
	Targets []Target `json:"targets,omitempty"`

	// nodePorts are the node ports of the Service, by the names of the Listener's ports. Set only if the addresses
	// belong or lead to nodes.
	// +optional
	// +nullable
	NodePorts map[string]int32 `json:"nodePorts,omitempty"`

	// lastNodePorts are the last node ports of the Service, by the names of the Listener's ports. The node port of a
	// load balancer's health check is healthCheckNodePort. Set only while nodePorts is not. When the Service has node
	// ports again, it gets these, unless other Services have them.
	// +optional
	LastNodePorts map[string]int32 `json:"lastNodePorts,omitempty"`

	// sharedPorts are the ports that the Listener has at the address that it shares with others, by the names of the
	// Listener's ports. No other Listener gets them while serviceName is set. Without a Service, they are the last
	// ones, which the next Service gets if they are still free. Set only if the class has Listeners share an address.
	// +optional
	SharedPorts map[string]int32 `json:"sharedPorts,omitempty"`

	// unusedNodes are the nodes whose addresses are left out although volumes of the Listener are reserved on them: no
	// Pod has mounted the Listener there for half an hour, and a node does not forward to Pods on other nodes. An
	// address is added again with the next Pod on its node.
	// +optional
	// +listType=atomic
	UnusedNodes []string `json:"unusedNodes,omitempty"`

	// unusedSince is since when no Pod has mounted the Listener, about to the minute. Absent while one does. It changes
	// only with the condition Ready.
	// +optional
	UnusedSince *metav1.Time `json:"unusedSince,omitempty"`

	// ipFamilies are the IP families of the Service, in its order. Set only if the class chooses IP families.
	// +optional
	// +listType=atomic
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// keptClassName is the name of the class that the Listener keeps although the class no longer allows its namespace.
	// Set only in this case.
	// +optional
	KeptClassName string `json:"keptClassName,omitempty"`

	// waitingFor is what the Listener was refused because others have it, and gets by itself when that is free. Absent
	// unless the condition Accepted is false for this reason.
	// +optional
	WaitingFor *WaitingFor `json:"waitingFor,omitempty"`

	// observedGeneration is the generation of the Listener that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// summary has the other fields in the form in which `kubectl get` prints them. It is for people; programs read the
	// other fields.
	// +optional
	Summary ListenerSummary `json:"summary,omitzero"`

	// conditions are the current conditions of the Listener. Accepted: class, ports, name and overrides result in valid
	// objects. Ready: the Listener has at least one address. NodesAvailable: no volume is pinned to a node that is
	// lost. DNSReady: external-dns has read where the name of the Listener leads.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Listener exposes a set of Pods to clients outside or inside the cluster, as its ListenerClass determines, and reports
// the addresses at which clients reach them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lsn,categories=listener-operator
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.summary.address`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.summary.reason`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.className`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.metadata.labels['statefulset\.kubernetes\.io/pod-name']`
// +kubebuilder:printcolumn:name="Nodes",type=string,priority=1,JSONPath=`.status.summary.nodes`
// +kubebuilder:printcolumn:name="Waiting For",type=string,priority=1,JSONPath=`.status.summary.waitingFor`
type Listener struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec ListenerSpec `json:"spec"`

	// +optional
	// +nullable
	Status *ListenerStatus `json:"status,omitempty"`
}

// ListenerList is a list of Listeners.
//
// +kubebuilder:object:root=true
type ListenerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Listener `json:"items"`
}

// PublishesNotReady reports whether Pods that are not ready receive traffic. A nil pointer, which the API server keeps
// only for an explicit null, means false (contract: publishNotReadyAddresses).
func (l *Listener) PublishesNotReady() bool {
	return l.Spec.PublishNotReadyAddresses != nil && *l.Spec.PublishNotReadyAddresses
}

// Class returns the name of the ListenerClass, or "" if the Listener is nil or names none.
func (l *Listener) Class() string {
	if l == nil || l.Spec.ClassName == nil {
		return ""
	}
	return *l.Spec.ClassName
}
