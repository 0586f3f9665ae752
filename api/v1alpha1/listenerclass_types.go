package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceType is the kind of Service that a class puts in front of Pods. The set is closed for ever: consumers
// fail to read a class with any other value.
//
// +kubebuilder:validation:Enum=NodePort;LoadBalancer;ClusterIP
type ServiceType string

const (
	// ServiceTypeNodePort reaches Pods through a port of the nodes that they run on.
	ServiceTypeNodePort ServiceType = "NodePort"
	// ServiceTypeLoadBalancer reaches Pods through a load balancer outside the cluster.
	ServiceTypeLoadBalancer ServiceType = "LoadBalancer"
	// ServiceTypeClusterIP reaches Pods from inside the cluster only.
	ServiceTypeClusterIP ServiceType = "ClusterIP"
)

// PreferredAddressType says which kind of address to publish where both exist.
//
// +kubebuilder:validation:Enum=Hostname;IP;HostnameConservative
type PreferredAddressType string

const (
	// PreferredAddressTypeHostname prefers host names and falls back to IP addresses.
	PreferredAddressTypeHostname PreferredAddressType = "Hostname"
	// PreferredAddressTypeIP prefers IP addresses and falls back to host names.
	PreferredAddressTypeIP PreferredAddressType = "IP"
	// PreferredAddressTypeHostnameConservative is IP for NodePort, whose node names often resolve nowhere, and Hostname
	// otherwise.
	PreferredAddressTypeHostnameConservative PreferredAddressType = "HostnameConservative"
)

// ListenerClassSpec is the policy that a cluster administrator writes once, and that Listeners ask for by name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.serviceType == 'ClusterIP'",message="route needs serviceType ClusterIP: the router reaches the Pods from inside the cluster"
type ListenerClassSpec struct {
	// The method used to access the Services of Listeners of this class.
	ServiceType ServiceType `json:"serviceType"`

	// Whether a load balancer Service should also allocate node ports. Only for serviceType LoadBalancer.
	// +optional
	// +kubebuilder:default=true
	LoadBalancerAllocateNodePorts *bool `json:"loadBalancerAllocateNodePorts,omitempty"`

	// The load balancer implementation that should serve the Services; unset means the cluster's default.
	// Only for serviceType LoadBalancer.
	// +optional
	// +nullable
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// Annotations of the Services.
	// +optional
	// +kubebuilder:default={}
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`

	// A pattern, since an enum refuses null even where a field is nullable, and there is no marker for a null among its
	// values.

	// Whether traffic from outside may hop between nodes (Cluster) or stays on the node that it arrived at (Local);
	// unset means the default of Kubernetes. Only for serviceType NodePort and LoadBalancer.
	// +optional
	// +nullable
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(Cluster|Local)$`
	ServiceExternalTrafficPolicy *corev1.ServiceExternalTrafficPolicy `json:"serviceExternalTrafficPolicy,omitempty"`

	// Whether to publish IP addresses or host names where both exist. The other kind is the fallback.
	// HostnameConservative means IP for serviceType NodePort, and Hostname otherwise.
	// +optional
	// +kubebuilder:default=HostnameConservative
	PreferredAddressType PreferredAddressType `json:"preferredAddressType,omitempty"`

	// Whether a Pod with a volume of this class stays on the node that it was first scheduled to, so that its address
	// survives rescheduling. Choose it where nodes live long: a Pod pinned to a node that is gone stays Pending until
	// its claim is deleted. Only for serviceType NodePort.
	// +optional
	// +kubebuilder:default=false
	PinnedNodePorts bool `json:"pinnedNodePorts,omitempty"`

	// A partial Service that is merged over the generated one, by the rules of a strategic merge patch.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:default={apiVersion: v1, kind: Service, metadata: {}}
	ServiceOverrides runtime.RawExtension `json:"serviceOverrides,omitzero"`

	// Exposes each port through an OpenShift Route of its own. Addresses are then the host names that a router has
	// admitted. Only for serviceType ClusterIP, and on clusters that serve Routes.
	// +optional
	Route *RouteExposure `json:"route,omitempty"`
}

// ListenerClass is a policy for how Listeners are exposed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=lsnclass
// +kubebuilder:printcolumn:name="Service Type",type=string,JSONPath=`.spec.serviceType`
// +kubebuilder:printcolumn:name="Pinned",type=boolean,JSONPath=`.spec.pinnedNodePorts`
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

// AddressPreference resolves HostnameConservative, and an absent value, to the kind of address that the class means for
// Services of the type, which while a class changes need not be its own.
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

// Pinned tells whether volumes of this class tie their Pods to a node.
func (c *ListenerClass) Pinned() bool {
	return c.Spec.ServiceType == ServiceTypeNodePort && c.Spec.PinnedNodePorts
}
