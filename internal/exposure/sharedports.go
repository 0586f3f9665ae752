package exposure

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
)

// WithPorts returns a copy of the Service that is reached at these ports, by port name, which lead to the same
// container ports as before. Ports that are not named stay as they are.
func WithPorts(service *corev1ac.ServiceApplyConfiguration, ports map[string]int32) *corev1ac.ServiceApplyConfiguration {
	copied, spec := *service, *service.Spec
	spec.Ports = slices.Clone(spec.Ports)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		number, ok := ports[ptr.Deref(p.Name, "")]
		if !ok {
			continue
		}
		if p.TargetPort == nil {
			p.TargetPort = ptr.To(intstr.FromInt32(ptr.Deref(p.Port, 0)))
		}
		p.Port = &number
	}
	copied.Spec = &spec
	return &copied
}
