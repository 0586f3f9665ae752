package exposure

import listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"

// Scarce returns what each Listener of a class takes from others: LoadBalancer, which often has a price, NodePort or
// GatewayPort. It is "" if the addresses cost nothing.
func Scarce(class *listenersv1alpha1.ListenerClass) string {
	switch {
	case class.Spec.Gateway != nil && (class.Spec.Gateway.Kind == listenersv1alpha1.GatewayRouteKindTCP || class.Spec.Gateway.Kind == listenersv1alpha1.GatewayRouteKindUDP):
		return "GatewayPort"
	case class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer, class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort:
		return string(class.Spec.ServiceType)
	default:
		return ""
	}
}
