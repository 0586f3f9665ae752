package v1alpha1

// NodeAddressType is a type of address in status.addresses of a Node. The values are Kubernetes' own.
//
// +kubebuilder:validation:Enum=Hostname;InternalIP;ExternalIP;InternalDNS;ExternalDNS
type NodeAddressType string

// CIDR is a range of IP addresses, such as 192.0.2.0/24 or 2001:db8::/32.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a range of IP addresses, such as 192.0.2.0/24 or 2001:db8::/32"
type CIDR string

// NodeAddresses selects which of the addresses of a node are published. The annotation
// listener-operator.dev/advertised-address of a Node takes precedence.
//
// +kubebuilder:validation:MinProperties=1
type NodeAddresses struct {
	// types are types of addresses of the Node objects, the preferred one first: Hostname, InternalIP, ExternalIP,
	// InternalDNS or ExternalDNS. The address of the first type that the node has is published; a node with none of
	// them has no address. If absent, the IP address is the first ExternalIP, or else the first InternalIP, the host
	// name is the first Hostname, and preferredAddressType decides between the two.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	Types []NodeAddressType `json:"types,omitempty"`

	// cidrs are the ranges that a published IP address must be in, even if a Node advertises it by its annotation. Host
	// names are published only if types has a type of host names. If absent, all addresses may be published.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	CIDRs []CIDR `json:"cidrs,omitempty"`
}
