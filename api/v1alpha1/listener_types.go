package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Condition types of a Listener.
const (
	// ListenerAccepted is true when class, ports, name and overrides make valid objects, and the API server has taken
	// them.
	ListenerAccepted = "Accepted"
	// ListenerReady is true when the Listener has at least one address.
	ListenerReady = "Ready"
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
)

// Reasons of ListenerReady.
const (
	ReasonAddressesAssigned      = "AddressesAssigned"
	ReasonNotAccepted            = "NotAccepted"
	ReasonWaitingForLoadBalancer = "WaitingForLoadBalancer"
	ReasonWaitingForPods         = "WaitingForPods"
	ReasonWaitingForNodePorts    = "WaitingForNodePorts"
	ReasonWaitingForClusterIP    = "WaitingForClusterIP"
	ReasonNodesMissing           = "NodesMissing"
	ReasonServiceTerminating     = "ServiceTerminating"
	ReasonWaitingForRouter       = "WaitingForRouter"
	ReasonRouteNotAdmitted       = "RouteNotAdmitted"
)

// Reasons of events on claims that cannot be provisioned yet, next to those of ListenerAccepted.
const (
	ReasonInvalidClaim        = "InvalidClaim"
	ReasonListenerNotFound    = "ListenerNotFound"
	ReasonForeignListener     = "ForeignListener"
	ReasonListenerTerminating = "ListenerTerminating"
	ReasonNoConsumer          = "NoConsumer"
)

// Reasons of events on Pods whose volumes wait.
const (
	ReasonWaitingForAddress = "WaitingForAddress"
)

// AddressType is the kind of an ingress address. The set is closed for ever.
//
// +kubebuilder:validation:Enum=Hostname;IP
type AddressType string

const (
	// AddressTypeHostname is a DNS name.
	AddressTypeHostname AddressType = "Hostname"
	// AddressTypeIP is an IPv4 or IPv6 address, without brackets and zone.
	AddressTypeIP AddressType = "IP"
)

// ListenerPort is one port that a Listener exposes.
type ListenerPort struct {
	// The name of the port, unique within the Listener.
	Name string `json:"name"`
	// The port number, the same on the Service and on the Pods.
	Port int32 `json:"port"`
	// The layer-4 protocol (TCP, UDP or SCTP); unset means TCP.
	// +optional
	// +nullable
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
}

// IngressAddress is one address that leads to Pods of a Listener.
type IngressAddress struct {
	// The host name or IP address.
	Address string `json:"address"`
	// Whether the address is a Hostname or an IP.
	AddressType AddressType `json:"addressType"`
	// The port to use at this address, for each port name of the Listener.
	Ports map[string]int32 `json:"ports"`
}

// ListenerSpec says which Pods to expose, and by which class.
type ListenerSpec struct {
	// The name of the ListenerClass.
	// +optional
	// +nullable
	ClassName *string `json:"className,omitempty"`

	// Labels that Pods must have to be exposed, in addition to mounting a volume of this Listener.
	// +optional
	// +kubebuilder:default={}
	ExtraPodSelectorLabels map[string]string `json:"extraPodSelectorLabels,omitempty"`

	// The ports to expose. The list is applied as a whole; of two ports with the same name and protocol the last one
	// counts.
	// +optional
	// +nullable
	// +listType=atomic
	Ports []ListenerPort `json:"ports,omitempty"`

	// Whether traffic is also sent to Pods that are not ready. Absent means true; an explicit null means false.
	// +optional
	// +nullable
	// +kubebuilder:default=true
	PublishNotReadyAddresses *bool `json:"publishNotReadyAddresses,omitempty"`

	// Partial objects that are merged over the generated ones of the same apiVersion, kind, namespace and name, by
	// the rules of a strategic merge patch, after the overrides of the class.
	// +optional
	// +kubebuilder:default={}
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	ObjectOverrides []runtime.RawExtension `json:"objectOverrides,omitempty"`
}

// ListenerStatus tells how to reach the Listener.
type ListenerStatus struct {
	// The Service behind this Listener.
	// +optional
	// +nullable
	ServiceName *string `json:"serviceName,omitempty"`

	// All addresses that the Listener can be reached at, the preferred one first. An empty list means that there are
	// none yet; the operator never writes null.
	// +optional
	// +nullable
	// +listType=atomic
	IngressAddresses []IngressAddress `json:"ingressAddresses"`

	// The port at each node, for each port name. Only for classes whose addresses belong to nodes.
	// +optional
	// +nullable
	NodePorts map[string]int32 `json:"nodePorts,omitempty"`

	// The generation of the Listener that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: class, ports, name and overrides make a valid Service. Ready: there is at least one address.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Listener exposes a set of Pods to clients outside the cluster (or inside, as its class says), and reports the
// addresses that lead there.
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

// PublishesNotReady tells whether Pods that are not ready receive traffic. nil, which the API server only keeps for
// an explicit null, means false (contract 1.1, rule 2).
func (l *Listener) PublishesNotReady() bool {
	return l.Spec.PublishNotReadyAddresses != nil && *l.Spec.PublishNotReadyAddresses
}

// Class returns the name of the class, or "" if there is none.
func (l *Listener) Class() string {
	if l.Spec.ClassName == nil {
		return ""
	}
	return *l.Spec.ClassName
}
