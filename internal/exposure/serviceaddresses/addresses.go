package serviceaddresses

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/names"
)

// addresses returns the addresses that the type of the Service provides, never nil. A name that leads to them comes
// first, if the class has one published. Its ports are those of the Service, as at each of the addresses. leftOut lists
// addresses that clients outside the cluster cannot use, and nodes without an address.
func addresses(l *exposure.Listener, p exposure.Placement) (addresses []listenersv1alpha1.IngressAddress, leftOut string) {
	switch prefer := l.Class.AddressPreference(l.Class.Spec.ServiceType); l.Class.Spec.ServiceType {
	case listenersv1alpha1.ServiceTypeNodePort:
		return nodePortAddresses(nodePorts(l), p.Nodes, l.NodeChoice()), p.LeftOut(l.NodeChoice())
	case listenersv1alpha1.ServiceTypeLoadBalancer:
		addresses, leftOut = loadBalancerAddresses(l, prefer)
	default:
		addresses = clusterIPAddresses(l, prefer)
	}
	if name := host.NameOfService(l); name != "" && len(addresses) > 0 {
		named := listenersv1alpha1.IngressAddress{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports(l.Service)}
		addresses = slices.Insert(addresses, 0, named)
	}
	return addresses, leftOut
}

// nodePortAddresses returns the addresses of the nodes, in the given order, with the Service's node ports. Nodes that
// advertise the same address have it once. It is empty while there is no node port.
func nodePortAddresses(ports map[string]int32, nodes []*corev1.Node, choice exposure.NodeChoice) []listenersv1alpha1.IngressAddress {
	addresses := []listenersv1alpha1.IngressAddress{}
	if len(ports) == 0 {
		return addresses
	}
	for _, node := range nodes {
		published, _ := exposure.NodeAddresses(node, choice)
		for _, a := range published {
			addresses = exposure.AppendNew(addresses, listenersv1alpha1.IngressAddress{Address: a.Address, AddressType: a.Type, Ports: maps.Clone(ports)})
		}
	}
	return addresses
}

// loadBalancerAddresses returns one address for each ingress in the Service's load balancer status, in its order, with
// the Service's ports. If there are families, IP addresses are in their order. leftOut lists those of ingresses without
// an address that clients outside the cluster can use.
func loadBalancerAddresses(l *exposure.Listener, prefer listenersv1alpha1.AddressType) (addresses []listenersv1alpha1.IngressAddress, leftOut string) {
	addresses = []listenersv1alpha1.IngressAddress{}
	var others []listenersv1alpha1.IngressAddress
	for _, ingress := range l.Service.Status.LoadBalancer.Ingress {
		either := []listenersv1alpha1.IngressAddress{
			{Address: ingress.Hostname, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports(l.Service)},
			{Address: ingress.IP, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports(l.Service)},
		}
		if prefer == listenersv1alpha1.AddressTypeIP {
			slices.Reverse(either)
		}
		either = slices.DeleteFunc(either, func(a listenersv1alpha1.IngressAddress) bool { return a.Address == "" })
		if usable, _ := l.Usable(either...); len(usable) > 0 {
			addresses = append(addresses, usable[0])
		} else {
			others = append(others, either...)
		}
	}
	families := l.IPFamilies()
	slices.SortStableFunc(addresses, func(a, b listenersv1alpha1.IngressAddress) int {
		return slices.Index(families, exposure.FamilyOf(a.Address)) - slices.Index(families, exposure.FamilyOf(b.Address))
	})
	_, leftOut = l.Usable(others...)
	return addresses, leftOut
}

// clusterIPAddresses returns the Service's DNS name or, if IP addresses are preferred, all its cluster IPs, with the
// Service's ports. A headless Service has only its DNS name.
func clusterIPAddresses(l *exposure.Listener, prefer listenersv1alpha1.AddressType) []listenersv1alpha1.IngressAddress {
	if prefer == listenersv1alpha1.AddressTypeHostname || exposure.IsHeadless(l.Service) {
		return []listenersv1alpha1.IngressAddress{{Address: l.DNSName(), AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports(l.Service)}}
	}
	addresses := []listenersv1alpha1.IngressAddress{}
	for _, ip := range l.Service.Spec.ClusterIPs {
		addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: ip, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports(l.Service)})
	}
	return addresses
}

// ports returns the port numbers of a Service by name. Ports without a name, which overrides can add, are left out.
func ports(service *corev1.Service) map[string]int32 {
	ports := map[string]int32{}
	for _, p := range service.Spec.Ports {
		if p.Name != "" {
			ports[p.Name] = p.Port
		}
	}
	return ports
}

// nodePorts returns the node ports by port name, without those that do not lead where the class says yet.
func nodePorts(l *exposure.Listener) map[string]int32 {
	ports, awaiting := exposure.NodePortsOf(l.Service), l.AwaitingTarget()
	maps.DeleteFunc(ports, func(name string, _ int32) bool { return name == "" || awaiting.Has(name) })
	return ports
}

// maxSaid is the number of statements of a controller that a message quotes.
const maxSaid = 5

// missingLoadBalancer returns why there is no address of a load balancer, except those that are left out.
func missingLoadBalancer(l *exposure.Listener, leftOut string) (reason, message string) {
	service := "Service " + names.ServiceKey(l).String()
	switch errors, conditions := portErrors(l), unmet(l.Service); {
	case leftOut != "":
		return listenersv1alpha1.ReasonUnusableAddress, exposure.UnusableMessage(service, leftOut)
	case errors != "":
		return listenersv1alpha1.ReasonLoadBalancerPortsError, service + " has no load balancer address; its controller says: " + errors
	case conditions != "":
		return listenersv1alpha1.ReasonWaitingForLoadBalancer, service + " has no load balancer address yet; its controller says: " + conditions
	}
	controller := "the cluster's default load balancer controller (ListenerClass " + l.Class.Name + " sets no loadBalancerClass)"
	if name := ptr.Deref(l.Class.Spec.LoadBalancerClass, ""); name != "" {
		controller = fmt.Sprintf("the controller of loadBalancerClass %q, which ListenerClass %s sets,", name, l.Class.Name)
	}
	return listenersv1alpha1.ReasonWaitingForLoadBalancer, service + " has no load balancer address yet; " + controller +
		" has to assign one; without such a controller, use a class with serviceType NodePort"
}

// portErrors returns what the controller of a load balancer says about ports that it cannot serve, or "": in the
// condition that Kubernetes has for that, and for each port at an address.
func portErrors(l *exposure.Listener) string {
	if l.Class.Spec.ServiceType != listenersv1alpha1.ServiceTypeLoadBalancer {
		return ""
	}
	var errors []string
	for _, c := range l.Service.Status.Conditions {
		if c.Type == corev1.LoadBalancerPortsError && c.Status == metav1.ConditionTrue {
			errors = append(errors, exposure.Quote(c.Reason, c.Message))
		}
	}
	for _, ingress := range l.Service.Status.LoadBalancer.Ingress {
		for _, p := range ingress.Ports {
			if p.Error != nil {
				errors = append(errors, fmt.Sprintf("port %d/%s: %s", p.Port, p.Protocol, exposure.Quote(*p.Error, "")))
			}
		}
	}
	return said(errors)
}

// unmet returns what controllers say in other conditions of a Service, none of which Kubernetes defines, that are not
// true, or "". Cilium, for example, says there that it has no address left.
func unmet(service *corev1.Service) string {
	var conditions []string
	for _, c := range service.Status.Conditions {
		if c.Type != corev1.LoadBalancerPortsError && c.Status != metav1.ConditionTrue {
			conditions = append(conditions, fmt.Sprintf("%s is %s: %s", exposure.Quote(c.Type, ""), strings.ToLower(string(c.Status)), exposure.Quote(c.Reason, c.Message)))
		}
	}
	return said(conditions)
}

func said(statements []string) string {
	slices.Sort(statements)
	statements = slices.Compact(statements)
	return strings.Join(statements[:min(len(statements), maxSaid)], "; ")
}
