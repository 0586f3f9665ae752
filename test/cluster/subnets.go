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

// subnets are the address ranges of one cluster. They are derived from its slot, and those of two slots never overlap.
type subnets struct {
	slot int
}

// allocate returns the first slot that no other cluster has, and whose node range contains none of the machine's own
// addresses.
func allocate(taken []int, local []netip.Addr) (int, error) {
	for slot := range slots {
		nodes := subnets{slot}.nodes()
		if !slices.Contains(taken, slot) && !slices.ContainsFunc(local, nodes.Contains) {
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
func (s subnets) nodes() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(89 + s.slot), 0, 0}), 24)
}

// pods is the range of all Pod addresses.
func (s subnets) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(244 - s.slot), 0, 0}), 16)
}

// nodePods is the range of the Pod addresses on one node.
func (s subnets) nodePods(node int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(244 - s.slot), byte(node), 0}), 24)
}

// services is the range of cluster IPs.
func (s subnets) services() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + s.slot), 0, 0}), 16)
}

// host is the machine's own address on the node network, where the control plane and the image registry listen.
func (s subnets) host() netip.Addr { return within(s.nodes(), 1) }

// node is the address of a node.
func (s subnets) node(node int) netip.Addr { return within(s.nodes(), byte(10+node)) }

// client is the address of the client that is outside the cluster.
func (s subnets) client() netip.Addr { return within(s.nodes(), 200) }

// free is one of the addresses of the node network that no machine has, from 1 to MaxFree.
func (s subnets) free(i int) netip.Addr { return within(s.nodes(), byte(200+i)) }

// api is the cluster IP of the Service "kubernetes", which the API server takes from the range by itself.
func (s subnets) api() netip.Addr { return within(s.services(), 1) }

// dns is the cluster IP of the cluster's DNS.
func (s subnets) dns() netip.Addr { return within(s.services(), 10) }

// within returns the address of a range that ends in the given number.
func within(prefix netip.Prefix, last byte) netip.Addr {
	address := prefix.Addr().As4()
	address[3] = last
	return netip.AddrFrom4(address)
}
