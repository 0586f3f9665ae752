package certificate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
)

// MaxNames is the number of names in a certificate. Clients receive all of them with each connection.
const MaxNames = 256

type Names struct {
	IPs []netip.Addr
	DNS []string
	// Omitted is the number of addresses above MaxNames.
	Omitted int
}

// NamesOf returns the names of lists of addresses. Those of the first lists are in the certificate, if not all can be.
// What a certificate cannot name is left out: clients cannot use it as an address, either. They are for certificates of
// the operator's own signer; package certmanager lists those of cert-manager's.
func NamesOf(lists ...[]listenersv1alpha1.IngressAddress) Names {
	var n Names
	seen := sets.New[any]()
	for _, a := range slices.Concat(lists...) {
		name := nameOf(a.Address)
		switch {
		case name == nil || seen.Has(name):
			continue
		case len(seen) >= MaxNames:
			n.Omitted++
		}
		seen.Insert(name)
		if ip, ok := name.(netip.Addr); ok && n.Omitted == 0 {
			n.IPs = append(n.IPs, ip)
		} else if dns, ok := name.(string); ok && n.Omitted == 0 {
			n.DNS = append(n.DNS, dns)
		}
	}
	slices.SortFunc(n.IPs, netip.Addr.Compare)
	slices.Sort(n.DNS)
	return n
}

// nameOf returns an address as an IP address, which that of a node may be, or a host name in lower case, or nil.
func nameOf(text string) any {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return ip.Unmap()
	}
	if address.IsHostname(text) && !address.EndsWithNumber(text) {
		return strings.ToLower(text)
	}
	return nil
}

func (n Names) Len() int { return len(n.IPs) + len(n.DNS) }

func (n Names) String() string {
	all := slices.Clone(n.DNS)
	for _, ip := range n.IPs {
		all = append(all, ip.String())
	}
	if n.Omitted > 0 {
		all = append(all, fmt.Sprintf("but not for %d more, because a certificate has at most %d", n.Omitted, MaxNames))
	}
	return strings.Join(all, ", ")
}

// SubjectNames returns the DNS names and IP addresses that a Certificate of cert-manager is for.
func SubjectNames(certManager *unstructured.Unstructured) []string {
	dnsNames, _, _ := unstructured.NestedStringSlice(certManager.Object, "spec", "dnsNames")
	ips, _, _ := unstructured.NestedStringSlice(certManager.Object, "spec", "ipAddresses")
	return append(dnsNames, ips...)
}
