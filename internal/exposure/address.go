package exposure

import (
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// NodeAddress chooses the address to publish for a node, by contract 1.4: an IP is the first ExternalIP, else the first
// InternalIP; a host name is the first Hostname; the kind that is not preferred is the fallback. ok is false for a node
// that has neither. InternalDNS and ExternalDNS are ignored.
func NodeAddress(node *corev1.Node, prefer listenersv1alpha1.AddressType) (address string, t listenersv1alpha1.AddressType, ok bool) {
	ip := firstOf(node, corev1.NodeExternalIP)
	if ip == "" {
		ip = firstOf(node, corev1.NodeInternalIP)
	}
	return PreferredAddress(prefer, firstOf(node, corev1.NodeHostName), ip)
}

func firstOf(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind && a.Address != "" {
			return a.Address
		}
	}
	return ""
}

// PreferredAddress returns the preferred one of a host name and an IP address, else the other; "" means that there is
// none.
func PreferredAddress(prefer listenersv1alpha1.AddressType, hostname, ip string) (address string, t listenersv1alpha1.AddressType, ok bool) {
	if ip != "" && (prefer == listenersv1alpha1.AddressTypeIP || hostname == "") {
		return ip, listenersv1alpha1.AddressTypeIP, true
	}
	return hostname, listenersv1alpha1.AddressTypeHostname, hostname != ""
}
