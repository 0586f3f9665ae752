// Package serviceaddresses is the backend of classes that ask for nothing but a Service. It builds no object: package
// exposure builds the Service. It returns the addresses that the type of the Service provides: node addresses with node
// ports, those of a load balancer, or the cluster IPs or DNS name of the Service (contract: the status).
package serviceaddresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Backend returns the backend for classes that no other backend exposes.
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
	var e exposure.Exposed
	e.Addresses, e.Message = addresses(l, p)
	if ports := nodePorts(l); l.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort && len(ports) > 0 {
		e.NodePorts = ports // never empty: an empty map is read back as nil, and would be written in each reconciliation
	}
	if e.Complete = len(e.Addresses) > 0; !e.Complete {
		e.Reason, e.Message = missing(l, p, e.NodePorts, e.Message)
	}
	if errors := portErrors(l); errors != "" && e.Complete {
		e.Reason = listenersv1alpha1.ReasonLoadBalancerPortsError
		e.Message = strings.TrimSuffix("ports that the load balancer does not serve; its controller says: "+errors+"; "+e.Message, "; ")
	}
	if e.NodePorts != nil && exposure.InvalidAdvertisedAddress(p.Nodes) {
		e.Reason = listenersv1alpha1.ReasonInvalidNodeAddress
	}
	return e
}

func missing(l *exposure.Listener, p exposure.Placement, ports map[string]int32, leftOut string) (reason, message string) {
	service := names.ServiceKey(l).String()
	switch {
	case l.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return missingLoadBalancer(l, leftOut)
	case l.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeClusterIP:
		return listenersv1alpha1.ReasonWaitingForClusterIP, "Service " + service + " has no cluster IP yet"
	case len(ports) == 0 && l.AwaitingTarget().Len() > 0:
		return listenersv1alpha1.ReasonWaitingForNodePorts, "the node ports of Service " + service + " do not lead to the container ports of the same numbers yet"
	case len(ports) == 0:
		return listenersv1alpha1.ReasonWaitingForNodePorts, "Service " + service + " has no node ports; check whether overrides change its type"
	case len(p.Nodes)+len(p.MissingNodes) == 0:
		return listenersv1alpha1.ReasonWaitingForPods, "no Pod mounts a volume of this Listener; its addresses are those of the nodes of its Pods"
	default:
		return listenersv1alpha1.ReasonNodesMissing, "none of the Listener's nodes has an address: " + leftOut
	}
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
				return fmt.Sprintf("the Service has no externalTrafficPolicy Local, so Pods see the addresses of nodes instead of those of clients; set "+
					"serviceExternalTrafficPolicy: Local in ListenerClass %s, and remove overrides of it", l.Class.Name)
			}
			return exposure.PodsProblem(l, service, ranges)
		default:
			return "nodes replace the addresses of clients that use a cluster IP from outside the cluster; remove allowedClients, or use a class with another serviceType"
		}
	},
}

func loadBalancerProblem(l *exposure.Listener, spec *corev1ac.ServiceSpecApplyConfiguration, ranges []netip.Prefix) string {
	hasNodePort := func(p corev1ac.ServicePortApplyConfiguration) bool { return ptr.Deref(p.NodePort, 0) != 0 }
	switch {
	case !slices.Equal(spec.LoadBalancerSourceRanges, exposure.FormatClients(ranges)):
		return "overrides change spec.loadBalancerSourceRanges of the Service, which has the allowed clients; remove that"
	case !ptr.Equal(spec.LoadBalancerClass, l.Class.Spec.LoadBalancerClass):
		return "overrides change spec.loadBalancerClass of the Service, and another load balancer may admit all clients; remove that"
	case !ptr.Deref(l.Class.Spec.LoadBalancerAllocateNodePorts, true) &&
		(ptr.Deref(spec.AllocateLoadBalancerNodePorts, true) || slices.ContainsFunc(spec.Ports, hasNodePort)):
		return fmt.Sprintf("overrides give the Service node ports, at which nothing filters clients, and ListenerClass %s has none; remove "+
			"spec.allocateLoadBalancerNodePorts and spec.ports[].nodePort", l.Class.Name)
	}
	possible := spec.IPFamilies
	if ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack {
		possible = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for _, family := range possible {
		if !slices.Contains(exposure.FamiliesOf(ranges), family) {
			nobody := map[corev1.IPFamily]string{corev1.IPv4Protocol: "0.0.0.0/32", corev1.IPv6Protocol: "::/128"}[family]
			return fmt.Sprintf("it has no range of %s, which the Service may have, and nodes would admit all clients over it; add one, or %s, which is nobody's", family, nobody)
		}
	}
	return ""
}
