// Package serviceaddresses is the backend of classes that ask for nothing but a Service. It builds no object: package
// exposure builds the Service. It returns the addresses that the type of the Service provides: node addresses with node
// ports, those of a load balancer, or the cluster IPs or DNS name of the Service (contract: the status).
package serviceaddresses

import (
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
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

// missing returns why there is no address, except those that are left out.
func missing(l *exposure.Listener, p exposure.Placement, ports map[string]int32, leftOut string) (reason, message string) {
	service := l.Namespace + "/" + l.Name
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
