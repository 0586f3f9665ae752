package v1alpha1

import "net/netip"

// ClusterIPs states which cluster IPs Services get.
type ClusterIPs struct {
	// cidrs are ranges of the cluster IPs that the operator allocates, such as 10.120.0.0/24. The first one of a family
	// with a free address counts; of a large range, the first 65,535 addresses. They must be in a ServiceCIDR of the
	// cluster. A Listener keeps its addresses as long as any of the ranges has them: if its Service is deleted, the
	// next one gets the same. If no address is free, the Listener is not accepted.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, cidr(c) == cidr(c).masked())",message="each range must begin with the first address of its prefix, such as 10.120.0.0/24 instead of 10.120.0.1/24"
	CIDRs []CIDR `json:"cidrs"`
}

// ClusterIPRanges returns the ranges of cluster IPs of the class, or nil if Kubernetes allocates them.
func (c *ListenerClass) ClusterIPRanges() []netip.Prefix {
	if c.Spec.ClusterIPs == nil {
		return nil
	}
	return Prefixes(c.Spec.ClusterIPs.CIDRs)
}

// Prefixes returns ranges without the bits of single addresses in them. The API server validates them.
func Prefixes(ranges []CIDR) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, cidr := range ranges {
		if prefix, err := netip.ParsePrefix(string(cidr)); err == nil {
			prefixes = append(prefixes, prefix.Masked())
		}
	}
	return prefixes
}
