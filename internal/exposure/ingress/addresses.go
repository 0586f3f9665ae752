package ingress

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// The ports at which Ingress controllers serve clients.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// addresses returns the hosts of each port's Ingress that a controller has taken, in
// the order of preference of the ports. If the class no longer has spec.ingress, they are those of the remaining
// Ingresses.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var ports, missing, leftOut []string
	if l.Class.Spec.Ingress != nil {
		ports, leftOut = exposedPorts(l)
	} else {
		ports = l.PortsWithObject(nameOf)
	}
	for _, port := range ports {
		ingress := find(l, nameOf(l, port))
		if problem := notTaken(ingress); problem != "" {
			missing = append(missing, fmt.Sprintf("Ingress %s/%s %s", l.Namespace, nameOf(l, port), problem))
			continue
		}
		e.Addresses = append(e.Addresses, listenersv1alpha1.IngressAddress{
			Address: ingress.Spec.Rules[0].Host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: servedPort(ingress)},
		})
	}
	e.Complete = len(ports) > 0 && len(missing) == 0
	if len(missing) > 0 {
		e.Reason = listenersv1alpha1.ReasonWaitingForIngress
	}
	e.Message = strings.Join(slices.Concat(missing, leftOut), "; ")
	return e
}

// notTaken returns why no controller serves the Ingress, or "". A controller that serves an Ingress reports its own
// address in the status.
func notTaken(ingress *networkingv1.Ingress) string {
	switch {
	case ingress == nil:
		return "does not exist yet"
	case len(ingress.Spec.Rules) == 0:
		return "has no rule; another client has removed it"
	case !slices.ContainsFunc(ingress.Status.LoadBalancer.Ingress, func(i networkingv1.IngressLoadBalancerIngress) bool { return i.IP != "" || i.Hostname != "" }):
		return fmt.Sprintf("has no address in its status yet, which the controller of IngressClass %s reports; if this lasts, check whether the IngressClass exists, "+
			"and whether its controller runs and is configured to publish its address", ptr.Deref(ingress.Spec.IngressClassName, ""))
	default:
		return ""
	}
}

// servedPort returns the port of the controller that clients connect to.
func servedPort(ingress *networkingv1.Ingress) int32 {
	if len(ingress.Spec.TLS) == 0 {
		return portHTTP
	}
	return portHTTPS
}
