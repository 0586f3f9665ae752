package exposure

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// maxRangeBits bounds how many addresses of a range are tried: the first 2^16.
const maxRangeBits = 16

// RequestsClusterIPs reports whether the operator chooses the cluster IPs of the desired Service: the class has ranges
// of them, and overrides set none. A Service of another type than its class's has none of the ranges.
func RequestsClusterIPs(class *listenersv1alpha1.ListenerClass, desired *corev1ac.ServiceApplyConfiguration) bool {
	return class.Spec.ClusterIPs != nil && desired.Spec.ClusterIP == nil && len(desired.Spec.ClusterIPs) == 0 &&
		ptr.Deref(desired.Spec.Type, "") == corev1.ServiceTypeClusterIP
}

// OtherClusterIPs returns the cluster IPs of an existing Service that are in none of the ranges.
func OtherClusterIPs(ranges []netip.Prefix, service *corev1.Service) (others []string) {
	for _, ip := range service.Spec.ClusterIPs {
		address, err := netip.ParseAddr(ip)
		if err != nil || !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) }) {
			others = append(others, ip)
		}
	}
	return others
}

// AllocateClusterIPs returns cluster IPs in the ranges of the class for the desired Service, one for each of its IP
// families, in their order: if possible, one of the last addresses of the Listener that is not taken.
func AllocateClusterIPs(class *listenersv1alpha1.ListenerClass, desired *corev1ac.ServiceApplyConfiguration, last []string, taken func(netip.Addr) bool,
) (addresses []string, _ *Refusal) {
	ranges := class.ClusterIPRanges()
	for _, family := range clusterIPFamilies(ranges, desired) {
		own := slices.DeleteFunc(slices.Clone(ranges), func(r netip.Prefix) bool { return FamilyOf(r.Addr().String()) != family })
		if len(own) == 0 {
			return nil, Refuse(listenersv1alpha1.ReasonClusterIPsExhausted, "the Service needs a cluster IP of family %s, and spec.clusterIPs.cidrs of ListenerClass %s has no range of it; "+
				"add one", family, class.Name)
		}
		address, ok := allocateAddress(own, *desired.Namespace+"/"+*desired.Name, last, taken)
		if !ok {
			return nil, Refuse(listenersv1alpha1.ReasonClusterIPsExhausted, "no cluster IP is left: other Services and Listeners have all of %s; add a range to spec.clusterIPs.cidrs of "+
				"ListenerClass %s, or delete Listeners", DescribeRanges(own), class.Name)
		}
		addresses = append(addresses, address.String())
	}
	return addresses, nil
}

// clusterIPFamilies returns the IP families of the desired Service, by default the one of the first range first.
func clusterIPFamilies(ranges []netip.Prefix, desired *corev1ac.ServiceApplyConfiguration) []corev1.IPFamily {
	families := slices.Clone(desired.Spec.IPFamilies)
	if len(families) == 0 {
		families = []corev1.IPFamily{FamilyOf(ranges[0].Addr().String())}
	}
	dual := ptr.Deref(desired.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack
	if second := corev1.IPv6Protocol; dual && len(families) == 1 {
		if families[0] == second {
			second = corev1.IPv4Protocol
		}
		families = append(families, second)
	}
	return families
}

// allocateAddress returns the first of the last addresses that is in a range and not taken, or else the first address
// of the first range that has one, beginning where the name determines.
func allocateAddress(ranges []netip.Prefix, name string, last []string, taken func(netip.Addr) bool) (netip.Addr, bool) {
	for _, ip := range last {
		address, err := netip.ParseAddr(ip)
		if err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) }) && !taken(address) {
			return address, true
		}
	}
	for _, r := range ranges {
		first, count := usable(r)
		if address, ok := firstFree(name, count, func(i uint32) netip.Addr { return at(r, first+i) }, taken); ok {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// usable returns the first of the addresses of a range that a Service can have, and how many there are. Kubernetes
// allocates neither the address of a network, nor the broadcast address of IPv4, and the range may be all of one.
func usable(r netip.Prefix) (first, count uint32) {
	bits := min(r.Addr().BitLen()-r.Bits(), maxRangeBits)
	if bits < 2 {
		return 0, 1 << bits
	}
	return 1, 1<<bits - 2
}

// at returns the address at an offset in a range, below 2^16.
func at(r netip.Prefix, offset uint32) netip.Addr {
	bytes := r.Masked().Addr().AsSlice()
	end := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+offset)
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// DescribeRanges returns ranges as a part of a message.
func DescribeRanges(ranges []netip.Prefix) string { return strings.Join(FormatClients(ranges), ", ") }

// WithClusterIPs returns a copy of the Service with these cluster IPs.
func WithClusterIPs(service *corev1ac.ServiceApplyConfiguration, addresses []string) *corev1ac.ServiceApplyConfiguration {
	copied := withNumbers(service, nil, nil)
	copied.Spec.ClusterIP, copied.Spec.ClusterIPs = &addresses[0], addresses
	return copied
}
