package exposure

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
)

// LostNodePorts returns the node ports, by port name, to request for the Service of a Listener so that it gets its last
// ones again. There are none if the existing Service has node ports, or if the desired Service is not of type NodePort:
// the address of a load balancer does not depend on them. Node ports that overrides set take precedence. existing is
// nil if there is no Service.
func LostNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service, last map[string]int32) map[string]int32 {
	if ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort || hasNodePorts(existing) {
		return nil
	}
	fixed := FixedNodePorts(desired)
	numbers := slices.Collect(maps.Values(fixed))
	lost := map[string]int32{}
	for i := range desired.Spec.Ports {
		name := ptr.Deref(desired.Spec.Ports[i].Name, "")
		number, known := last[name]
		if _, isFixed := fixed[name]; known && !isFixed && !slices.Contains(numbers, number) {
			lost[name] = number
		}
	}
	return lost
}

// WithNodePorts returns a copy of the Service with these node ports, by port name.
func WithNodePorts(service *corev1ac.ServiceApplyConfiguration, nodePorts map[string]int32) *corev1ac.ServiceApplyConfiguration {
	copied, spec := *service, *service.Spec
	spec.Ports = slices.Clone(spec.Ports)
	for i := range spec.Ports {
		if number, ok := nodePorts[ptr.Deref(spec.Ports[i].Name, "")]; ok {
			spec.Ports[i].NodePort = &number
		}
	}
	copied.Spec = &spec
	return &copied
}

// FixedNodePorts returns the node ports that overrides set, by port name.
func FixedNodePorts(service *corev1ac.ServiceApplyConfiguration) map[string]int32 {
	fixed := map[string]int32{}
	for i := range service.Spec.Ports {
		if number := ptr.Deref(service.Spec.Ports[i].NodePort, 0); number != 0 {
			fixed[ptr.Deref(service.Spec.Ports[i].Name, "")] = number
		}
	}
	return fixed
}

// hasNodePorts reports whether a Service, which may be nil, has node ports.
func hasNodePorts(service *corev1.Service) bool {
	return service != nil && slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}
