// Package address decides which strings are addresses that clients can use. Kubernetes does not validate the addresses
// of nodes, and consumers parse addresses or use them as file names.
package address

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// IsIP reports whether s is an IP address. One with an IPv6 zone is none: a zone may contain any character, and means
// nothing on another machine.
func IsIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

// IsHostname reports whether s is a host name in the DNS. It may have upper case, as host names of nodes may.
func IsHostname(s string) bool {
	return len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0
}

// IsUnicastIP reports whether s is an IP address that may be that of another machine: not one that is unspecified, a
// loopback address or a multicast group.
func IsUnicastIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast()
}

// EndsWithNumber reports whether the last part of a host name is a number, as in 192.0.2.300. Programs take such a name
// for an IPv4 address, and do not resolve it.
func EndsWithNumber(hostname string) bool {
	last := hostname[strings.LastIndexByte(hostname, '.')+1:]
	return last != "" && strings.Trim(last, "0123456789") == ""
}
