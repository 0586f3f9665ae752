package exposure

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
)

// NodeAddress returns the address to publish for a node (contract 1.4). The IP address is the first ExternalIP, or else
// the first InternalIP; the host name is the first Hostname; the type that is not preferred is the fallback.
// InternalDNS and ExternalDNS are ignored, and so is what is not a valid address of its type: Kubernetes does not
// validate it. ok is false for a node without an address.
func NodeAddress(node *corev1.Node, prefer listenersv1alpha1.AddressType) (published string, t listenersv1alpha1.AddressType, ok bool) {
	ip := firstOf(node, corev1.NodeExternalIP, address.IsIP)
	if ip == "" {
		ip = firstOf(node, corev1.NodeInternalIP, address.IsIP)
	}
	return PreferredAddress(prefer, firstOf(node, corev1.NodeHostName, address.IsHostname), ip)
}

// NoNodeAddress is why a node that NodeAddress returns no address for has none, after the name of the node and "has".
const NoNodeAddress = "neither a valid IP address nor a valid host name"

func firstOf(node *corev1.Node, addressType corev1.NodeAddressType, valid func(string) bool) string {
	for _, a := range node.Status.Addresses {
		if a.Type == addressType && valid(a.Address) {
			return a.Address
		}
	}
	return ""
}

// PreferredAddress returns the host name or the IP address, whichever is preferred, or else the other one. An empty
// string means that there is none. ok is false if there is neither.
func PreferredAddress(prefer listenersv1alpha1.AddressType, hostname, ip string) (preferred string, t listenersv1alpha1.AddressType, ok bool) {
	if ip != "" && (prefer == listenersv1alpha1.AddressTypeIP || hostname == "") {
		return ip, listenersv1alpha1.AddressTypeIP, true
	}
	return hostname, listenersv1alpha1.AddressTypeHostname, hostname != ""
}

// maxListed is the maximum number of nodes that a message lists.
const maxListed = 10

// NodesLeftOut lists the nodes with reservations that have no address, and why.
func NodesLeftOut(l *Listener, prefer listenersv1alpha1.AddressType) string {
	var nodes []string
	for _, name := range l.MissingNodes {
		nodes = append(nodes, name+" (Node does not exist)")
	}
	for _, node := range l.Nodes {
		if _, _, ok := NodeAddress(node, prefer); !ok {
			nodes = append(nodes, node.Name+" ("+NoNodeAddress+")")
		}
	}
	if more := len(nodes) - maxListed; more > 0 {
		nodes = append(nodes[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(nodes, ", ")
}
