package exposure

import (
	"fmt"

	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// IgnoredSettings describes the settings of a class that have no effect in combination with others, each with what to
// do instead. The API server accepts these combinations, because classes of existing installations may have them; it
// rejects those of fields that Stackable's listener operator does not have.
func IgnoredSettings(class *listenersv1alpha1.ListenerClass) []string {
	spec := &class.Spec
	nodePort, loadBalancer := spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort, spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer
	var ignored []string
	for _, rule := range []struct {
		applies        bool
		field, instead string
	}{
		{spec.PinnedNodePorts && !nodePort && spec.HostPort == nil, "pinnedNodePorts",
			"the addresses do not depend on a node; remove it, or use serviceType NodePort"},
		{ptr.Deref(spec.LoadBalancerClass, "") != "" && !loadBalancer, "loadBalancerClass",
			"no load balancer is used; remove it, or use serviceType LoadBalancer"},
		{!ptr.Deref(spec.LoadBalancerAllocateNodePorts, true) && !loadBalancer, "loadBalancerAllocateNodePorts",
			"no load balancer is used; remove it, or use serviceType LoadBalancer"},
		{spec.ServiceExternalTrafficPolicy != nil && !nodePort && !loadBalancer, "serviceExternalTrafficPolicy",
			"the Service receives no external traffic; remove it, or use serviceType NodePort or LoadBalancer"},
		{spec.PreferredAddressType == listenersv1alpha1.PreferredAddressTypeIP && spec.Route != nil, "preferredAddressType",
			"the addresses of Routes are host names; remove it"},
	} {
		if rule.applies {
			ignored = append(ignored, fmt.Sprintf("%s of ListenerClass %s has no effect: %s", rule.field, class.Name, rule.instead))
		}
	}
	return ignored
}
