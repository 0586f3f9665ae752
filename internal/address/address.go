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

// IsHostname reports whether s is a host name in the DNS. Upper case is accepted, because host names of nodes may have
// it.
func IsHostname(s string) bool {
	return len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0
}
