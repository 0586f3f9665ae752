package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// slots is the number of clusters that can exist on one machine at the same time.
const slots = 10

// MaxNodes is the highest number of a node.
const MaxNodes = 20

// MaxFree is the highest number of a free address.
const MaxFree = 50

// errNoSlot is returned if every subnet is in use.
var errNoSlot = errors.New("no free subnet: delete another cluster first")

// subnets are the address ranges of one cluster. They are derived from its slot, and never overlap another slot's. IPv6
// ranges are unique local addresses, and read like the IPv4 ranges: fd00:10:89::11 is also 10.89.0.11.
type subnets struct {
	slot int
}

// prefixes are a range in each IP family.
type prefixes struct{ V4, V6 netip.Prefix }

// ips are an address in each IP family.
type ips struct{ V4, V6 netip.Addr }

// String returns both with a comma, IPv4 first: flags of Kubernetes take the first family of a cluster first.
func (p prefixes) String() string { return p.V4.String() + "," + p.V6.String() }

// String is like the method of prefixes.
func (a ips) String() string { return a.V4.String() + "," + a.V6.String() }

// allocate returns the first slot that no other cluster has, and whose node range contains none of the machine's own
// addresses.
func allocate(taken []int, local []netip.Addr) (int, error) {
	for slot := range slots {
		nodes := subnets{slot}.nodes()
		if !slices.Contains(taken, slot) && !slices.ContainsFunc(local, nodes.contain) {
			return slot, nil
		}
	}
	return 0, errNoSlot
}

// bridge is the name of the host's end of the node network.
func (s subnets) bridge() string { return fmt.Sprintf("lc%d", s.slot) }

// nodeLink and clientLink name the bridge's ports.
func (s subnets) nodeLink(node int) string { return fmt.Sprintf("lc%dn%d", s.slot, node) }
func (s subnets) clientLink() string       { return fmt.Sprintf("lc%dc", s.slot) }

// nodes is the range of node addresses, which the host and the outside client are also in.
func (s subnets) nodes() prefixes {
	number := 89 + s.slot
	return prefixes{netip.PrefixFrom(v4(number, 0, 0), 24), netip.PrefixFrom(v6(number, 0, 0), 64)}
}

// pods is the range of all Pod addresses.
func (s subnets) pods() prefixes {
	number := 244 - s.slot
	return prefixes{netip.PrefixFrom(v4(number, 0, 0), 16), netip.PrefixFrom(v6(number, 0, 0), 48)}
}

// nodePods is the range of the Pod addresses on one node.
func (s subnets) nodePods(node int) prefixes {
	number := 244 - s.slot
	return prefixes{netip.PrefixFrom(v4(number, node, 0), 24), netip.PrefixFrom(v6(number, node, 0), 64)}
}

// services is the range of cluster IPs.
func (s subnets) services() prefixes {
	number := 100 + s.slot
	return prefixes{netip.PrefixFrom(v4(number, 0, 0), 16), netip.PrefixFrom(v6(number, 0, 0), 112)}
}

// host is the machine's own address on the node network, where the control plane and the image registry listen, which
// use only the one of IPv4.
func (s subnets) host() ips { return s.onNodeNetwork(1) }

// node is the address of a node.
func (s subnets) node(node int) ips { return s.onNodeNetwork(10 + node) }

// client is the address of the client that is outside the cluster.
func (s subnets) client() ips { return s.onNodeNetwork(200) }

// free is one of the addresses of the node network that no machine has, from 1 to MaxFree.
func (s subnets) free(i int) ips { return s.onNodeNetwork(200 + i) }

// onNodeNetwork returns the addresses of the node network that end in the given number.
func (s subnets) onNodeNetwork(last int) ips {
	return ips{v4(89+s.slot, 0, last), v6(89+s.slot, 0, last)}
}

// api is the cluster IP of the Service "kubernetes", which the API server takes from the range by itself.
func (s subnets) api() netip.Addr { return v4(100+s.slot, 0, 1) }

// dns is the cluster IP of the cluster's DNS.
func (s subnets) dns() netip.Addr { return v4(100+s.slot, 0, 10) }

// contain reports whether an address is in one of the ranges.
func (p prefixes) contain(a netip.Addr) bool { return p.V4.Contains(a) || p.V6.Contains(a) }

// v4 and v6 return the address with these decimal numbers in its parts, after 10 and fd00:10.
func v4(second, third, last int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(second), byte(third), byte(last)})
}

func v6(second, third, last int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:%d:%d::%d", second, third, last))
}
