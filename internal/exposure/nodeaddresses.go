package exposure

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// NodeChoice is how the published addresses of a node are chosen among those that it has.
type NodeChoice struct {
	// Prefer is the preferred type if Types is empty.
	Prefer listenersv1alpha1.AddressType
	// Types are types of addresses, the preferred one first. If empty, see NodeAddresses.
	Types []listenersv1alpha1.NodeAddressType
	// CIDRs are the ranges that IP addresses must be in, or empty for all. With ranges, host names are published only
	// if Types has a type of host names: whatever writes the Node, such as its kubelet, could name any host otherwise.
	CIDRs []netip.Prefix
	// Families are the IP families of the Service, in its order, one IP address for each of which is published. If
	// empty, a single address is published, of any family.
	Families []corev1.IPFamily
}

// NodeChoice returns how the class chooses addresses of nodes. The families are those of the Service, or those in the
// status of the Listener if the Service was not observed.
func (l *Listener) NodeChoice() NodeChoice {
	choice := NodeChoice{Prefer: l.Class.AddressPreference(listenersv1alpha1.ServiceTypeNodePort),
		Families: l.IPFamilies()}
	if nodes := l.Class.Spec.NodeAddresses; nodes != nil {
		choice.Types, choice.CIDRs = nodes.Types, listenersv1alpha1.Prefixes(nodes.CIDRs)
	}
	return choice
}

// IPFamilies returns the IP families of the Service, in its order, or those in the status of the Listener if the
// Service was not observed. There are none if the class does not choose them: then they do not matter.
func (l *Listener) IPFamilies() []corev1.IPFamily {
	switch {
	case !l.Class.ChoosesIPFamilies():
		return nil
	case l.Service != nil:
		return l.Service.Spec.IPFamilies
	case l.Status != nil:
		return l.Status.IPFamilies
	}
	return nil
}

// NodeAddresses returns the addresses to publish for a node, without ports: one, or one for each of choice.Families,
// for all of which a host name stands. problem is why there is none, after the name of the node and "has", or "".
//
// The addresses in the annotation names.AnnotationAdvertisedAddress take precedence over those in the status, of
// whatever type, as long as they are in the ranges; if one of them is not valid, the node has no address. By default
// (contract: the address of a node), the IP address is the first ExternalIP, or else the first InternalIP; the host
// name is the first Hostname; the type that is not preferred is the fallback. In the status, what is not a valid
// address of its type, or leads no other machine to the node, is ignored: Kubernetes does not validate it.
func NodeAddresses(node *corev1.Node, choice NodeChoice) (
	addresses []listenersv1alpha1.IngressAddress, problem string) {
	candidates, problem := advertised(node)
	switch {
	case problem != "":
		return nil, problem
	case candidates == nil:
		candidates, problem = choice.inStatus(node)
	default:
		problem = NodeChoice{CIDRs: choice.CIDRs, Families: choice.Families}.problem() + " in its annotation " +
			names.AnnotationAdvertisedAddress
	}
	candidates = slices.DeleteFunc(candidates,
		func(a listenersv1alpha1.IngressAddress) bool { return !choice.allows(a) })
	switch {
	case len(candidates) == 0:
		return nil, problem
	case len(choice.Families) == 0, candidates[0].AddressType == listenersv1alpha1.AddressTypeHostname:
		return candidates[:1], ""
	}
	for _, family := range choice.Families {
		i := slices.IndexFunc(candidates, func(a listenersv1alpha1.IngressAddress) bool {
			return a.AddressType == listenersv1alpha1.AddressTypeIP && FamilyOf(a.Address) == family
		})
		if i >= 0 { // a family without an address is left out
			addresses = append(addresses, candidates[i])
		}
	}
	return addresses, ""
}

// advertised returns the addresses in the annotation of a node, or nil if it has none.
func advertised(node *corev1.Node) (addresses []listenersv1alpha1.IngressAddress, problem string) {
	value, ok := node.Annotations[names.AnnotationAdvertisedAddress]
	if !ok {
		return nil, ""
	}
	for text := range strings.SplitSeq(value, ",") {
		a := listenersv1alpha1.IngressAddress{Address: strings.TrimSpace(text),
			AddressType: listenersv1alpha1.AddressTypeHostname}
		why := address.Inside(a.Address, "")
		switch {
		case address.IsIP(a.Address):
			a.AddressType = listenersv1alpha1.AddressTypeIP
		case !address.IsHostname(a.Address), address.EndsWithNumber(a.Address):
			why = cmp.Or(why, "neither an IP address nor a host name")
		}
		if why != "" {
			return nil, fmt.Sprintf("an invalid annotation %s: %q is %s; correct or remove it",
				names.AnnotationAdvertisedAddress, message.Printable(a.Address, maxValue), why)
		}
		addresses = append(addresses, a)
	}
	return addresses, ""
}

// InvalidAdvertisedAddress reports whether one of the nodes has an invalid annotation, and therefore no address.
func InvalidAdvertisedAddress(nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		_, problem := advertised(n)
		return problem != ""
	})
}

// AppendNew appends the addresses that the list does not have with the same ports.
func AppendNew(list []listenersv1alpha1.IngressAddress,
	addresses ...listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	for _, a := range addresses {
		same := func(b listenersv1alpha1.IngressAddress) bool {
			return a.Address == b.Address && maps.Equal(a.Ports, b.Ports)
		}
		if !slices.ContainsFunc(list, same) {
			list = append(list, a)
		}
	}
	return list
}

func AddressSet(addresses []listenersv1alpha1.IngressAddress) sets.Set[string] {
	set := sets.New[string]()
	for _, a := range addresses {
		set.Insert(a.Address)
	}
	return set
}

// inStatus returns the valid addresses in the status of a node of the types of the choice, the preferred one first.
// problem is what the node does not have if none of them fits, with those that lead no other machine to it.
func (c NodeChoice) inStatus(node *corev1.Node) (addresses []listenersv1alpha1.IngressAddress, problem string) {
	var leftOut []string
	for _, t := range c.orderedTypes() {
		for _, a := range node.Status.Addresses {
			switch inside := address.Inside(a.Address, ""); {
			case a.Type != corev1.NodeAddressType(t):
			case inside != "":
				leftOut = append(leftOut, describeLeftOut(a.Address, inside))
			case isName(t) && address.IsHostname(a.Address):
				addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: a.Address,
					AddressType: listenersv1alpha1.AddressTypeHostname})
			case !isName(t) && address.IsIP(a.Address):
				addresses = append(addresses,
					listenersv1alpha1.IngressAddress{Address: a.Address, AddressType: listenersv1alpha1.AddressTypeIP})
			}
		}
	}
	problem = c.problem()
	if len(leftOut) > 0 {
		problem += ", and what leads no other machine to it is left out: " + message.List(leftOut)
	}
	return addresses, problem
}

// allows reports whether a valid address is of one of the families and in the ranges, or may be published as a host
// name.
func (c NodeChoice) allows(a listenersv1alpha1.IngressAddress) bool {
	if a.AddressType == listenersv1alpha1.AddressTypeHostname {
		return len(c.CIDRs) == 0 || slices.ContainsFunc(c.Types, isName)
	}
	ip := netip.MustParseAddr(a.Address).Unmap()
	return (len(c.Families) == 0 || slices.Contains(c.Families, FamilyOf(a.Address))) &&
		(len(c.CIDRs) == 0 || slices.ContainsFunc(c.CIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }))
}

func isName(t listenersv1alpha1.NodeAddressType) bool { return t != "ExternalIP" && t != "InternalIP" }

func (c NodeChoice) problem() string {
	if len(c.Types) == 0 && len(c.CIDRs) == 0 && len(c.Families) == 0 {
		return "neither a valid IP address nor a valid host name"
	}
	wanted := "no valid address"
	if len(c.Types) > 0 {
		wanted += fmt.Sprintf(" of the types %v", c.Types)
	}
	if len(c.CIDRs) > 0 {
		wanted += fmt.Sprintf(" in %v", c.CIDRs)
	}
	if len(c.Families) > 0 {
		wanted += fmt.Sprintf(" of the Service's IP families %v", c.Families)
	}
	return wanted
}

// FamilyOf returns the family of an IP address, or "" for what is none.
func FamilyOf(ip string) corev1.IPFamily {
	switch parsed, err := netip.ParseAddr(ip); {
	case err != nil:
		return ""
	case parsed.Unmap().Is4():
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

const maxValue = 100

// LeftOut lists the nodes with reservations whose addresses are missing or left out, and why.
func (p Placement) LeftOut(choice NodeChoice) string {
	var nodes []string
	for _, name := range p.MissingNodes {
		nodes = append(nodes, name+" (Node does not exist)")
	}
	for _, name := range p.UnusedNodes {
		nodes = append(nodes, name+" (no Pod on it mounts the Listener)")
	}
	for _, name := range p.DrainedNodes {
		nodes = append(nodes, name+" (is being drained)")
	}
	for _, node := range p.Nodes {
		if _, problem := NodeAddresses(node, choice); problem != "" {
			nodes = append(nodes, node.Name+" ("+problem+")")
		}
	}
	return message.List(nodes)
}
