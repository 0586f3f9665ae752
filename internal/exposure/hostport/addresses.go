package hostport

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Addresses implements exposure.Backend. It returns the addresses of the Pods that mount the Listener, in the order of
// their nodes. A node whose reservation outlives its Pod keeps the address that the status has for it, because the
// ports are not known while there is no Pod.
func (Backend) Addresses(l *exposure.Listener) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var notes []string
	note := func(text string) {
		if text != "" {
			notes = append(notes, text)
		}
	}
	for _, node := range l.Nodes {
		pods := slices.DeleteFunc(slices.Clone(l.Mounting), func(p *corev1.Pod) bool { return p.Spec.NodeName != node.Name })
		for _, pod := range pods {
			of := podAddress(l, pod, node)
			e.Addresses = appendNew(e.Addresses, of.Addresses...)
			note(of.Message)
		}
		if len(pods) == 0 {
			e.Addresses = appendNew(e.Addresses, lastAddresses(l, node)...)
		}
	}
	e.Complete = len(e.Addresses) > 0
	if e.Complete {
		note(exposure.NodesLeftOut(l, preference(l)))
		e.Message = strings.Join(notes, "; ")
		return e
	}
	switch {
	case len(notes) > 0:
		e.Reason, e.Message, e.NeedsAction = listenersv1alpha1.ReasonNoHostPorts, strings.Join(notes, "; "), true
	case exposure.NodesLeftOut(l, preference(l)) != "":
		e.Reason, e.NeedsAction = listenersv1alpha1.ReasonNodesMissing, true
		e.Message = "none of the Listener's nodes has an address: " + exposure.NodesLeftOut(l, preference(l))
	default:
		e.Reason = listenersv1alpha1.ReasonWaitingForPods
		e.Message = "no Pod mounts a volume of this Listener yet; its addresses are those of the nodes of these Pods, with their host ports"
	}
	return e
}

// appendNew appends the addresses that the list does not have.
func appendNew(list []listenersv1alpha1.IngressAddress, addresses ...listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
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

// lastAddresses returns the addresses of a node in the status of the Listener. Those of another exposure are not among
// them.
func lastAddresses(l *exposure.Listener, node *corev1.Node) []listenersv1alpha1.IngressAddress {
	address, _, ok := exposure.NodeAddress(node, preference(l))
	if !ok || l.Status == nil || l.Status.NodePorts != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l.Status.IngressAddresses), func(a listenersv1alpha1.IngressAddress) bool { return a.Address != address })
}

// podAddress returns the address of a Pod: that of its node, with the host ports of the Pod. The message lists the
// ports of the Listener that the Pod has no host port for.
func podAddress(l *exposure.Listener, pod *corev1.Pod, node *corev1.Node) *exposure.Exposed {
	e := &exposure.Exposed{}
	address, addressType, ok := exposure.NodeAddress(node, preference(l))
	if !ok {
		e.Message = fmt.Sprintf("node %s has %s", node.Name, exposure.NoNodeAddress)
		return e
	}
	ports := map[string]int32{}
	var missing []string
	for _, p := range l.Spec.Ports {
		if number := hostPort(pod, node, p); number != 0 {
			ports[p.Name] = number
		} else {
			missing = append(missing, fmt.Sprintf("%q (%d/%s)", p.Name, p.Port, protocol(p)))
		}
	}
	if len(missing) > 0 {
		e.Message = fmt.Sprintf("Pod %s/%s declares no hostPort for %s; set hostPort in the ports of its containers, "+
			"or hostNetwork: true", pod.Namespace, pod.Name, strings.Join(missing, ", "))
	}
	if len(ports) > 0 {
		e.Addresses = []listenersv1alpha1.IngressAddress{{Address: address, AddressType: addressType, Ports: ports}}
	}
	e.Complete = len(ports) > 0
	return e
}

// hostPort returns the port of the node that leads to a port of the Pod, or 0. A Pod in the network of the node has all
// its ports there.
func hostPort(pod *corev1.Pod, node *corev1.Node, port listenersv1alpha1.ListenerPort) int32 {
	if pod.Spec.HostNetwork {
		return port.Port
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.ContainerPort == port.Port && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol(port) && p.HostPort != 0 && open(p.HostIP, node) {
				return p.HostPort
			}
		}
	}
	return 0
}

// open reports whether a host port with this hostIP, which may be empty, is open to clients outside of the node: on all
// its addresses, or on one of those that the Node has.
func open(hostIP string, node *corev1.Node) bool {
	ip, err := netip.ParseAddr(hostIP)
	return err != nil || ip.IsUnspecified() ||
		slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == hostIP })
}

func protocol(port listenersv1alpha1.ListenerPort) corev1.Protocol {
	return cmp.Or(ptr.Deref(port.Protocol, ""), corev1.ProtocolTCP)
}

// preference is the type of address that the class prefers for nodes, whatever the type of the Service.
func preference(l *exposure.Listener) listenersv1alpha1.AddressType {
	return l.Class.AddressPreference(listenersv1alpha1.ServiceTypeNodePort)
}
