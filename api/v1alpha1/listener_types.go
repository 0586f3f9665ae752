package v1alpha1

import (
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
)

// Reasons of ListenerAccepted.
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
	ReasonDuplicatePortName = "DuplicatePortName"
	ReasonNotServed         = "NotServed"
	ReasonForeignRoute      = "ForeignRoute"
	ReasonRouteRejected     = "RouteRejected"
	ReasonNoRoutablePorts   = "NoRoutablePorts"
	ReasonNoSinglePod       = "NoSinglePod"
	ReasonInvalidHost       = "InvalidHost"

	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
)

// Reasons of ListenerReady.
const (
	ReasonAddressesAssigned      = "AddressesAssigned"
	ReasonNotAccepted            = "NotAccepted"
	ReasonWaitingForLoadBalancer = "WaitingForLoadBalancer"
	ReasonWaitingForPods         = "WaitingForPods"
	ReasonWaitingForNodePorts    = "WaitingForNodePorts"
	ReasonWaitingForClusterIP    = "WaitingForClusterIP"
	ReasonNoHostPorts            = "NoHostPorts"
	ReasonNodesMissing           = "NodesMissing"
	ReasonServiceTerminating     = "ServiceTerminating"
	ReasonWaitingForRouter       = "WaitingForRouter"
	ReasonRouteNotAdmitted       = "RouteNotAdmitted"
)

// Reasons of ListenerNodesAvailable, and of events on the claims and Pods of pinned volumes.
const (
	ReasonNodeLost       = "NodeLost"
	ReasonNodeReturned   = "NodeReturned"
	ReasonVolumeReleased = "VolumeReleased"
	ReasonVolumeMoved    = "VolumeMoved"
)

// Reasons of events on claims whose volumes are replaced, or cannot be.
const (
	ReasonVolumeRestored    = "VolumeRestored"
	ReasonVolumeNotRestored = "VolumeNotRestored"
	ReasonReleaseRefused    = "ReleaseRefused"
	ReasonInvalidRelease    = "InvalidRelease"
)

// Reasons of events on PersistentVolumeClaims that cannot be provisioned yet, in addition to those of ListenerAccepted.
const (
	ReasonInvalidClaim         = "InvalidClaim"
	ReasonListenerNotFound     = "ListenerNotFound"
	ReasonForeignListener      = "ForeignListener"
	ReasonListenerTerminating  = "ListenerTerminating"
	ReasonWaitForFirstConsumer = "WaitForFirstConsumer"
)

// Reasons of events on Pods whose volumes cannot be mounted yet.
const (
	ReasonWaitingForAddress = "WaitingForAddress"
)

// Reasons of events on Listeners, in addition to those of the conditions.
const (
	ReasonNodePortsChanged = "NodePortsChanged"
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
	// port is the port number, which the Service and the Pods share.
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

// ListenerSpec describes which Pods a Listener exposes, and by which class.
type ListenerSpec struct {
	// className is the name of the ListenerClass that determines how the Listener is exposed.
	// +optional
	// +nullable
	ClassName *string `json:"className,omitempty"`

	// extraPodSelectorLabels are labels that a Pod must have to be exposed, in addition to mounting a volume of this
	// Listener.
	// +optional
	// +kubebuilder:default={}
	ExtraPodSelectorLabels map[string]string `json:"extraPodSelectorLabels,omitempty"`

	// ports are the ports to expose. The list is atomic. Of several ports with the same name and protocol, the last one
	// applies.
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

	// objectOverrides are partial objects that are merged over the generated ones, as spec.serviceOverrides of the
	// ListenerClass. Each entry applies to the object of the same apiVersion, kind, namespace and name, after the
	// overrides of the ListenerClass, which also determines which fields may be changed.
	// +optional
	// +kubebuilder:default={}
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	ObjectOverrides []runtime.RawExtension `json:"objectOverrides,omitempty"`
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

	// nodePorts are the node ports of the Service, by the names of the Listener's ports. Set only if the addresses are
	// those of nodes.
	// +optional
	// +nullable
	NodePorts map[string]int32 `json:"nodePorts,omitempty"`

	// lastNodePorts are the last node ports of the Service, by the names of the Listener's ports. Set only while
	// nodePorts is not. When the Service has node ports again, it gets these, unless other Services have them.
	// +optional
	LastNodePorts map[string]int32 `json:"lastNodePorts,omitempty"`

	// keptClassName is the name of the class that the Listener keeps although the class no longer allows its namespace.
	// Set only in this case.
	// +optional
	KeptClassName string `json:"keptClassName,omitempty"`

	// observedGeneration is the generation of the Listener that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions of the Listener. Accepted: class, ports, name and overrides result in valid
	// objects. Ready: the Listener has at least one address. NodesAvailable: no volume is pinned to a node that is
	// lost.
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
// +kubebuilder:resource:shortName=lsn
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.className`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.ingressAddresses[0].address`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
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
// only for an explicit null, means false (contract 1.1, rule 2).
func (l *Listener) PublishesNotReady() bool {
	return l.Spec.PublishNotReadyAddresses != nil && *l.Spec.PublishNotReadyAddresses
}

// Class returns the name of the ListenerClass, or "" if the Listener names none.
func (l *Listener) Class() string {
	if l.Spec.ClassName == nil {
		return ""
	}
	return *l.Spec.ClassName
}
