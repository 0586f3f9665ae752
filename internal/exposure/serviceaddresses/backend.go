// Package serviceaddresses is the backend of classes that ask for nothing but a Service. It builds no object: package
// exposure builds the Service. It returns the addresses that the type of the Service provides: node addresses with node
// ports, those of a load balancer, or the cluster IPs or DNS name of the Service (contract: the status).
package serviceaddresses

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/names"
)

func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:         "Service",
		Exposes:      func(*listenersv1alpha1.ListenerClass) bool { return true },
		Addresses:    exposed,
		PlainService: true,
		NodeScoped: func(class *listenersv1alpha1.ListenerClass) bool {
			return class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
		},
		Clients: clients,
	}
}

func exposed(l *exposure.Listener, p exposure.Placement) exposure.Exposed {
	e := addresses(l, p)
	if e.Complete = len(e.Addresses) > 0; !e.Complete {
		e.Reason, e.Message = missing(l, p, e.NodePorts, e.Message)
	}
	if errors := portErrors(l); errors != "" && e.Complete {
		e.Reason = listenersv1alpha1.ReasonLoadBalancerPortsError
		e.Message = strings.TrimSuffix("ports that the load balancer does not serve; its controller says: "+errors+"; "+
			e.Message, "; ")
	}
	if e.NodePorts != nil && exposure.InvalidAdvertisedAddress(p.Nodes) {
		e.Reason = listenersv1alpha1.ReasonInvalidNodeAddress
	}
	return e
}

func missing(l *exposure.Listener, p exposure.Placement, ports map[string]int32,
	leftOut string) (reason, message string) {
	service := names.ServiceKey(l).String()
	switch {
	case l.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return missingLoadBalancer(l, leftOut)
	case l.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeClusterIP:
		return listenersv1alpha1.ReasonWaitingForClusterIP, "Service " + service + " has no cluster IP yet"
	case len(ports) == 0 && l.AwaitingTarget().Len() > 0:
		return listenersv1alpha1.ReasonWaitingForNodePorts, "the node ports of Service " + service +
			" do not lead to the container ports of the same numbers yet"
	case len(ports) == 0:
		return listenersv1alpha1.ReasonWaitingForNodePorts, "Service " + service +
			" has no node ports; check whether overrides change its type"
	case len(p.Nodes)+len(p.MissingNodes) == 0:
		return listenersv1alpha1.ReasonWaitingForPods,
			"no Pod mounts a volume of this Listener; its addresses are those of the nodes of its Pods"
	}
	return listenersv1alpha1.ReasonNodesMissing, "none of the Listener's nodes has an address: " + leftOut
}

// clients are restricted by the load balancer, or else by a NetworkPolicy, if nodes keep the addresses of clients.
var clients = exposure.Clients{
	ByPolicy: func(service *corev1ac.ServiceApplyConfiguration) bool {
		return ptr.Deref(service.Spec.Type, "") == corev1.ServiceTypeNodePort &&
			ptr.Deref(service.Spec.ExternalTrafficPolicy, "") == corev1.ServiceExternalTrafficPolicyLocal
	},
	Problem: func(l *exposure.Listener, service *corev1ac.ServiceApplyConfiguration, ranges []netip.Prefix) string {
		switch ptr.Deref(service.Spec.Type, corev1.ServiceTypeClusterIP) {
		case corev1.ServiceTypeLoadBalancer:
			return loadBalancerProblem(l, service.Spec, ranges)
		case corev1.ServiceTypeNodePort:
			if ptr.Deref(service.Spec.ExternalTrafficPolicy, "") != corev1.ServiceExternalTrafficPolicyLocal {
				return fmt.Sprintf("the Service has no externalTrafficPolicy Local, so Pods see the addresses of "+
					"nodes instead of those of clients; set serviceExternalTrafficPolicy: Local in ListenerClass %s, "+
					"and remove overrides of it", l.Class.Name)
			}
			return exposure.PodsProblem(l, service, ranges)
		default:
			return "nodes replace the addresses of clients that use a cluster IP from outside the cluster; remove " +
				"allowedClients, or use a class with another serviceType"
		}
	},
}

func loadBalancerProblem(l *exposure.Listener, spec *corev1ac.ServiceSpecApplyConfiguration,
	ranges []netip.Prefix) string {
	hasNodePort := func(p corev1ac.ServicePortApplyConfiguration) bool { return ptr.Deref(p.NodePort, 0) != 0 }
	switch {
	case !slices.Equal(spec.LoadBalancerSourceRanges, exposure.FormatClients(ranges)):
		return "overrides change spec.loadBalancerSourceRanges of the Service, which has the allowed clients; remove " +
			"that"
	case !ptr.Equal(spec.LoadBalancerClass, l.Class.Spec.LoadBalancerClass):
		return "overrides change spec.loadBalancerClass of the Service, and another load balancer may admit all " +
			"clients; remove that"
	case !ptr.Deref(l.Class.Spec.LoadBalancerAllocateNodePorts, true) &&
		(ptr.Deref(spec.AllocateLoadBalancerNodePorts, true) || slices.ContainsFunc(spec.Ports, hasNodePort)):
		return fmt.Sprintf("overrides give the Service node ports, at which nothing filters clients, and "+
			"ListenerClass %s has none; remove spec.allocateLoadBalancerNodePorts and spec.ports[].nodePort",
			l.Class.Name)
	}
	possible := spec.IPFamilies
	if ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack {
		possible = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for _, family := range possible {
		if !slices.Contains(exposure.FamiliesOf(ranges), family) {
			nobody := map[corev1.IPFamily]string{corev1.IPv4Protocol: "0.0.0.0/32",
				corev1.IPv6Protocol: "::/128"}[family]
			return fmt.Sprintf("it has no range of %s, which the Service may have, and nodes would admit all clients "+
				"over it; add one, or %s, which is nobody's", family, nobody)
		}
	}
	return ""
}

// addresses returns the addresses that the type of the Service provides, each with the ports of the Service, or its
// node ports. A name that leads to them comes first, if the class has one published. The message lists addresses that
// clients outside the cluster cannot use, and nodes without an address.
func addresses(l *exposure.Listener, p exposure.Placement) exposure.Exposed {
	e, ports := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}, portsOf(l.Service)
	switch l.Class.Spec.ServiceType {
	case listenersv1alpha1.ServiceTypeNodePort:
		e.Message = p.LeftOut(l.NodeChoice())
		if ports = nodePorts(l); len(ports) > 0 {
			// It is never empty: an empty map is read back as nil, and would be written in each reconciliation.
			e.NodePorts = ports
			e.Addresses = append(e.Addresses, nodeAddresses(l, p.Nodes)...)
		}
	case listenersv1alpha1.ServiceTypeLoadBalancer:
		usable, leftOut := loadBalancerAddresses(l)
		e.Addresses, e.Message = append(e.Addresses, usable...), leftOut
	default:
		e.Addresses = append(e.Addresses, clusterIPAddresses(l)...)
	}
	if name := host.NameOfService(l); name != "" && len(e.Addresses) > 0 && e.NodePorts == nil {
		e.Addresses = slices.Insert(e.Addresses, 0,
			listenersv1alpha1.IngressAddress{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname})
	}
	for i := range e.Addresses {
		e.Addresses[i].Ports = maps.Clone(ports)
	}
	return e
}

// nodeAddresses returns the addresses of the nodes, in their order, each once.
func nodeAddresses(l *exposure.Listener, nodes []*corev1.Node) (addresses []listenersv1alpha1.IngressAddress) {
	for _, node := range nodes {
		published, _ := exposure.NodeAddresses(node, l.NodeChoice())
		addresses = exposure.AppendNew(addresses, published...)
	}
	return addresses
}

// loadBalancerAddresses returns one address for each ingress in the Service's load balancer status, in its order, or
// that of the families. leftOut lists those without an address that clients outside the cluster can use.
func loadBalancerAddresses(l *exposure.Listener) (addresses []listenersv1alpha1.IngressAddress, leftOut string) {
	var others []listenersv1alpha1.IngressAddress
	for _, ingress := range l.Service.Status.LoadBalancer.Ingress {
		either := []listenersv1alpha1.IngressAddress{
			{Address: ingress.Hostname, AddressType: listenersv1alpha1.AddressTypeHostname},
			{Address: ingress.IP, AddressType: listenersv1alpha1.AddressTypeIP},
		}
		if l.Class.AddressPreference(l.Class.Spec.ServiceType) == listenersv1alpha1.AddressTypeIP {
			slices.Reverse(either)
		}
		either = slices.DeleteFunc(either, func(a listenersv1alpha1.IngressAddress) bool { return a.Address == "" })
		if usable, _ := l.Usable(either...); len(usable) > 0 {
			addresses = append(addresses, usable[0])
		} else {
			others = append(others, either...)
		}
	}
	l.SortByFamily(addresses)
	_, leftOut = l.Usable(others...)
	return addresses, leftOut
}

// clusterIPAddresses returns the Service's DNS name or, if IP addresses are preferred, all cluster IPs it has.
func clusterIPAddresses(l *exposure.Listener) (addresses []listenersv1alpha1.IngressAddress) {
	if l.Class.AddressPreference(l.Class.Spec.ServiceType) == listenersv1alpha1.AddressTypeHostname ||
		exposure.IsHeadless(l.Service) {
		return []listenersv1alpha1.IngressAddress{{Address: l.DNSName(),
			AddressType: listenersv1alpha1.AddressTypeHostname}}
	}
	for _, ip := range l.Service.Spec.ClusterIPs {
		addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: ip,
			AddressType: listenersv1alpha1.AddressTypeIP})
	}
	return addresses
}

// portsOf returns the port numbers of a Service by name. Ports without a name, which overrides can add, are left out.
func portsOf(service *corev1.Service) map[string]int32 {
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
		return listenersv1alpha1.ReasonLoadBalancerPortsError,
			service + " has no load balancer address; its controller says: " + errors
	case conditions != "":
		return listenersv1alpha1.ReasonWaitingForLoadBalancer,
			service + " has no load balancer address yet; its controller says: " + conditions
	}
	controller := "the cluster's default load balancer controller (ListenerClass " + l.Class.Name +
		" sets no loadBalancerClass)"
	if name := ptr.Deref(l.Class.Spec.LoadBalancerClass, ""); name != "" {
		controller = fmt.Sprintf("the controller of loadBalancerClass %q, which ListenerClass %s sets,", name,
			l.Class.Name)
	}
	return listenersv1alpha1.ReasonWaitingForLoadBalancer, service + " has no load balancer address yet; " +
		controller + " has to assign one; without such a controller, use a class with serviceType NodePort"
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
			conditions = append(conditions, fmt.Sprintf("%s is %s: %s", exposure.Quote(c.Type, ""),
				strings.ToLower(string(c.Status)), exposure.Quote(c.Reason, c.Message)))
		}
	}
	return said(conditions)
}

func said(statements []string) string {
	statements = sets.List(sets.New(statements...))
	return strings.Join(statements[:min(len(statements), maxSaid)], "; ")
}
