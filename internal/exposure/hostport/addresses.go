// Package hostport is the backend that exposes Listeners at the ports of nodes that their Pods declare as hostPort, or
// open by themselves in the network of the node. The program in a Pod then listens on the port that it advertises. The
// backend generates no object, and its Service has no node ports.
//
// It must never change a Pod: a Pod without these ports is reported.
package hostport

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:         "HostPort",
		Exposes:      func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.HostPort != nil },
		Addresses:    addresses,
		NodeScoped:   func(*listenersv1alpha1.ListenerClass) bool { return true },
		PodAddresses: podAddresses,
		Clients: exposure.Clients{
			ByPolicy: func(*corev1ac.ServiceApplyConfiguration) bool { return true },
			Problem: func(*exposure.Listener, *corev1ac.ServiceApplyConfiguration, []netip.Prefix) string {
				return ""
			},
			Ports: func(l *exposure.Listener) []listenersv1alpha1.ListenerPort {
				return exposure.ExposedPorts(l.Class, l.Listener)
			},
		},
	}
}

// addresses returns the addresses of the Pods that mount the Listener, in the order of their nodes. Without a Pod, the
// ports are not known: a node whose reservation outlives its Pod keeps its address in the status.
func addresses(l *exposure.Listener, p exposure.Placement) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var notes []string
	mounting := map[string][]*corev1.Pod{}
	for _, pod := range p.Mounting {
		mounting[pod.Spec.NodeName] = append(mounting[pod.Spec.NodeName], pod)
	}
	for _, node := range p.Nodes {
		for _, pod := range mounting[node.Name] {
			exposed := podAddresses(l, pod, node)
			e.Addresses = exposure.AppendNew(e.Addresses, exposed.Addresses...)
			notes = append(notes, exposed.Message)
		}
		if len(mounting[node.Name]) == 0 {
			e.Addresses = exposure.AppendNew(e.Addresses, lastAddresses(l, node)...)
		}
	}
	e.Complete = len(e.Addresses) > 0
	leftOut := p.LeftOut(l.NodeChoice())
	if e.Complete {
		notes = append(notes, leftOut)
	}
	e.Message = strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
	switch {
	case e.Complete:
	case e.Message != "":
		e.Reason = listenersv1alpha1.ReasonNoHostPorts
	case leftOut != "":
		e.Reason, e.Message = listenersv1alpha1.ReasonNodesMissing, "none of the Listener's nodes has an address: "+
			leftOut
	default:
		e.Reason = listenersv1alpha1.ReasonWaitingForPods
		e.Message = "no Pod mounts a volume of this Listener yet; its addresses are those of the nodes of these " +
			"Pods, with their host ports"
	}
	if exposure.InvalidAdvertisedAddress(p.Nodes) {
		e.Reason = listenersv1alpha1.ReasonInvalidNodeAddress
	}
	return e
}

// lastAddresses returns the addresses of a node in the status, if they are not those of another exposure.
func lastAddresses(l *exposure.Listener, node *corev1.Node) []listenersv1alpha1.IngressAddress {
	if l.Status == nil || l.Status.NodePorts != nil {
		return nil
	}
	addresses, _ := exposure.NodeAddresses(node, l.NodeChoice())
	ofNode := exposure.AddressSet(addresses)
	return slices.DeleteFunc(slices.Clone(l.Status.TargetAddresses()),
		func(last listenersv1alpha1.IngressAddress) bool { return !ofNode.Has(last.Address) })
}

// podAddresses returns the addresses of a Pod's node with its host ports. The message lists ports without a host port.
func podAddresses(l *exposure.Listener, pod *corev1.Pod, node *corev1.Node) *exposure.Exposed {
	addresses, problem := exposure.NodeAddresses(node, l.NodeChoice())
	if problem != "" {
		return &exposure.Exposed{Message: fmt.Sprintf("node %s has %s", node.Name, problem)}
	}
	e, exposed, found := &exposure.Exposed{}, exposure.ExposedPorts(l.Class, l.Listener), map[string]bool{}
	for _, a := range addresses {
		hostPort := hostPorts(pod, node, a)
		a.Ports = map[string]int32{}
		for _, p := range exposed {
			if number := hostPort(p); number != 0 {
				a.Ports[p.Name], found[p.Name] = number, true
			}
		}
		if len(a.Ports) > 0 {
			e.Addresses = append(e.Addresses, a)
		}
	}
	var missing []string
	for _, p := range exposed {
		if !found[p.Name] {
			missing = append(missing, fmt.Sprintf("%q (%d/%s)", p.Name, p.Port, exposure.ProtocolOf(p)))
		}
	}
	if len(missing) > 0 {
		e.Message = fmt.Sprintf("Pod %s/%s declares no hostPort for %s; set hostPort in the ports of its containers, "+
			"or hostNetwork: true", pod.Namespace, pod.Name, strings.Join(missing, ", "))
	}
	e.Complete = len(e.Addresses) > 0
	return e
}

// hostPorts returns a function that returns the port of the node, at one of its addresses, that leads to a port of the
// Pod, or 0. A Pod in the network of the node has all its ports there.
func hostPorts(pod *corev1.Pod, node *corev1.Node,
	address listenersv1alpha1.IngressAddress) func(listenersv1alpha1.ListenerPort) int32 {
	if pod.Spec.HostNetwork {
		return func(p listenersv1alpha1.ListenerPort) int32 { return p.Port }
	}
	type containerPort struct {
		number   int32
		protocol corev1.Protocol
	}
	first := map[containerPort]int32{} // a Pod may have thousands
	for _, p := range claim.ContainerPorts(pod) {
		key := containerPort{p.ContainerPort, cmp.Or(p.Protocol, corev1.ProtocolTCP)}
		if p.HostPort != 0 && first[key] == 0 && open(p.HostIP, node, address) {
			first[key] = p.HostPort
		}
	}
	return func(p listenersv1alpha1.ListenerPort) int32 {
		return first[containerPort{p.Port, exposure.ProtocolOf(p)}]
	}
}

// open reports whether a host port with this hostIP, which may be empty, is open to clients outside of the node at one
// of its addresses: it is on all addresses, or on one of those that the Node has, of the same IP family.
func open(hostIP string, node *corev1.Node, address listenersv1alpha1.IngressAddress) bool {
	ip, err := netip.ParseAddr(hostIP)
	switch {
	case err != nil, ip == netip.IPv6Unspecified():
		return true
	case address.AddressType == listenersv1alpha1.AddressTypeIP &&
		exposure.FamilyOf(address.Address) != exposure.FamilyOf(hostIP):
		return false
	}
	return ip.IsUnspecified() || slices.ContainsFunc(node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return a.Address == hostIP })
}
