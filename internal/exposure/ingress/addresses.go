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
		number := int32(80)
		if len(ingress.Spec.TLS) > 0 {
			number = 443
		}
		return []listenersv1alpha1.IngressAddress{{
			Address: ingress.Spec.Rules[0].Host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number},
		}}, nil
	})
}

// notTaken returns why no controller serves the Ingress, or "". A controller that serves an Ingress reports its own
// address in the status.
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
