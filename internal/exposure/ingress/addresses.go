package ingress

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
)

// addresses returns the host of each Ingress that a controller has taken, in the order of preference of the ports.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	return ingresses.Addresses(l, func(port string, ingress *networkingv1.Ingress) ([]listenersv1alpha1.IngressAddress, []perport.Problem) {
		if problem := notTaken(ingress); problem != "" {
			return nil, []perport.Problem{{Text: problem}}
		}
		problems := notes(l, ingress)
		number := int32(80)
		if len(ingress.Spec.TLS) > 0 {
			number = 443
		}
		return []listenersv1alpha1.IngressAddress{{
			Address: ingress.Spec.Rules[0].Host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number},
		}}, problems
	})
}

// notes returns what is wrong with what the controller of an Ingress reports. The host is published nevertheless: it
// may lead to a proxy in front of the cluster.
func notes(l *exposure.Listener, ingress *networkingv1.Ingress) (problems []perport.Problem) {
	var reported []listenersv1alpha1.IngressAddress
	for _, i := range ingress.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			reported = append(reported, listenersv1alpha1.IngressAddress{Address: i.IP, AddressType: listenersv1alpha1.AddressTypeIP})
		}
		if i.Hostname != "" {
			reported = append(reported, listenersv1alpha1.IngressAddress{Address: i.Hostname, AddressType: listenersv1alpha1.AddressTypeHostname})
		}
		for _, p := range i.Ports {
			if p.Error != nil {
				problems = append(problems, perport.Problem{Text: fmt.Sprintf("has an error at port %d of its controller: %s", p.Port, exposure.Quote(*p.Error, ""))})
			}
		}
	}
	if _, leftOut := l.Usable(reported...); leftOut != "" {
		problems = append(problems, perport.Problem{Text: "has addresses of its controller that clients outside the cluster cannot use: " + leftOut})
	}
	return problems
}

// notTaken returns why no controller serves the Ingress, or "". One that does reports its own address in the status.
func notTaken(ingress *networkingv1.Ingress) string {
	switch {
	case len(ingress.Spec.Rules) == 0:
		return "has no rule; another client has removed it"
	case !slices.ContainsFunc(ingress.Status.LoadBalancer.Ingress, func(i networkingv1.IngressLoadBalancerIngress) bool { return i.IP != "" || i.Hostname != "" }):
		return fmt.Sprintf("has no address in its status yet, which the controller of IngressClass %s reports; if this lasts, check whether the IngressClass exists, "+
			"and whether its controller runs and is configured to publish its address", ptr.Deref(ingress.Spec.IngressClassName, ""))
	default:
		return ""
	}
}
