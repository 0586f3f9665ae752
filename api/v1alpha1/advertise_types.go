package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// AdvertisedAddress is an IP address, or a template of host names with the placeholders {listener}, {namespace},
// {className}, {podName}, {podIndex}, {port}, {hash}, {nodeName} and {address}.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|namespace|className|podName|podIndex|port|hash|nodeName|address)[}])+$') || isIP(self)",message="must be an IP address, or lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {namespace}, {className}, {podName}, {podIndex}, {port}, {hash}, {nodeName} and {address}"
// +kubebuilder:validation:XValidation:rule="!self.matches('[{](listener|namespace|podName|port)[}]') || self.matches('[{]hash[}]([.]|$)') || self.matches('(^|[.])[^.{}]*[{]namespace[}][^.{}]*([.]|$)')",message="may give namespaces addresses of each other; use {namespace} as the only placeholder between two dots, as in {podName}.{namespace}, or end a part between two dots with {hash}, as in {podName}-{namespace}-{hash}"
type AdvertisedAddress string

// AdvertisedPort is a sum and difference of numbers and of the placeholders {podIndex}, {nodePort}, {servicePort} and
// {addressPort}.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}|[{](podIndex|nodePort|servicePort|addressPort)[}])([+-]([0-9]{1,5}|[{](podIndex|nodePort|servicePort|addressPort)[}]))*$')",message="must be numbers of up to five digits and the placeholders {podIndex}, {nodePort}, {servicePort} and {addressPort}, with + or - in between and without spaces, such as 443 or {podIndex}+9000"
type AdvertisedPort string

// Advertise publishes other addresses than those that lead to the Listeners in the cluster, for something in front of
// the cluster that the operator does not configure.
//
// +kubebuilder:validation:MinProperties=1
type Advertise struct {
	// addressTemplate is the address that is published: an IP address, or a template of a host name or IP address with
	// the placeholders {listener}, {namespace}, {className}, {podName}, {podIndex}, {port}, which is the name of the
	// port, and {hash}, which stands for 16 digits that depend on the namespace and the name of the Listener.
	// {nodeName} is the name of the node, if the address is a node's, and {address} is the address that would be
	// published otherwise. {podName} and {podIndex} require a Listener of a PersistentVolumeClaim that belongs to a
	// single Pod. Names that users choose must not lead to the address of another namespace: a template with
	// {listener}, {podName}, {port} or {namespace} contains {namespace} as the only placeholder between two dots, or a
	// part between two dots ends with {hash}. All namespaces that may use the class share any other address. Defaults
	// to {address}.
	// +optional
	AddressTemplate AdvertisedAddress `json:"addressTemplate,omitempty"`

	// portTemplate is the number of each port that is published: numbers and placeholders, with + and - in between,
	// such as "443" or "{podIndex}+9000". {podIndex} is the index of the Pod, {nodePort} the node port, {servicePort}
	// the port of the Service, and {addressPort} the number that would be published otherwise. The result must be from
	// 1 to 65535. No two ports with the same protocol, of one or of two Listeners, get the same number at the same
	// address: a Listener that would is not accepted. Defaults to {addressPort}.
	// +optional
	PortTemplate AdvertisedPort `json:"portTemplate,omitempty"`
}

// Advertised returns what the class publishes in place of the addresses that lead to its Listeners, with the path of
// the template of the address: advertise, or the name of hostname unless that is Annotated. Nil: nothing.
func (c *ListenerClass) Advertised() (templates *Advertise, path string) {
	if h := c.Spec.Hostname; c.Spec.Advertise == nil && h != nil && !h.Annotated() {
		return &Advertise{AddressTemplate: AdvertisedAddress(h.Template)}, "spec.hostname.template"
	}
	return c.Spec.Advertise, "spec.advertise.addressTemplate"
}

// Target is an address that leads to the Pods of a Listener in the cluster, and what is published in its place.
type Target struct {
	// address is the host name or IP address.
	Address string `json:"address"`
	// addressType is the type of the address: Hostname or IP.
	AddressType AddressType `json:"addressType"`
	// ports are the port numbers at this address, by the names of the Listener's ports.
	Ports map[string]int32 `json:"ports"`
	// nodeName is the name of the node that has the address. Empty if the address is not a node's.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// advertised is the address that is published, with the numbers of the same ports there.
	Advertised IngressAddress `json:"advertised"`
}

// TargetAddresses returns the addresses that lead to the Pods: targets, or else ingressAddresses. A nil status has
// none.
func (s *ListenerStatus) TargetAddresses() []IngressAddress {
	if s == nil {
		return nil
	}
	if len(s.Targets) == 0 {
		return s.IngressAddresses
	}
	addresses := make([]IngressAddress, 0, len(s.Targets))
	for _, t := range s.Targets {
		addresses = append(addresses, IngressAddress{Address: t.Address, AddressType: t.AddressType, Ports: t.Ports})
	}
	return addresses
}

// PortProtocol returns the protocol of the port with this name. Of several ports, the last one counts. A port that only
// overrides add has TCP.
func (l *Listener) PortProtocol(name string) corev1.Protocol {
	protocol := corev1.ProtocolTCP
	for _, p := range l.Spec.Ports {
		if p.Name == name {
			protocol = cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)
		}
	}
	return protocol
}
