// Package address decides which strings are addresses that clients can use. Kubernetes does not validate the addresses
// of nodes, and consumers parse addresses or use them as file names.
package address

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const loopback = "a loopback address"

// IsIP reports whether s is an IP address without a zone, which may have any character, and belongs to one machine.
func IsIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

// IsHostname reports whether s is a host name in the DNS. It may have upper case, as host names of nodes may.
func IsHostname(s string) bool {
	return len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0
}

// Inside returns what kind of address an IP address or host name is that leads no client outside the cluster to what
// has it, such as "a loopback address", or "" for any other. clusterDomain is the DNS domain of the cluster, or "".
func Inside(s, clusterDomain string) string {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return insideName(strings.ToLower(s), strings.ToLower(clusterDomain))
	}
	switch ip = ip.Unmap(); {
	case ip.IsLoopback():
		return loopback
	case ip.IsLinkLocalUnicast():
		return "a link-local address"
	case ip.IsUnspecified():
		return "the unspecified address"
	case ip.IsMulticast():
		return "a multicast address"
	case !ip.IsGlobalUnicast():
		return "a broadcast address"
	}
	return ""
}

// insideName is Inside for a host name. Without a domain after svc, it depends on the resolver of a Pod.
func insideName(name, clusterDomain string) string {
	if name == "localhost" || name == "localhost.localdomain" || strings.HasSuffix(name, ".localhost") {
		return loopback
	}
	for _, domain := range []string{"svc", "cluster.local", "svc." + clusterDomain} {
		if strings.HasSuffix(name, "."+domain) {
			return "a name in the DNS of the cluster"
		}
	}
	return ""
}

// EndsWithNumber reports whether the last part of a host name is a number, as in 192.0.2.300. Programs take such a name
// for an IPv4 address, and do not resolve it.
func EndsWithNumber(hostname string) bool {
	last := hostname[strings.LastIndexByte(hostname, '.')+1:]
	return last != "" && strings.Trim(last, "0123456789") == ""
}
