package exposure

import (
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
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
	numbers := sets.New(slices.Collect(maps.Values(fixed))...)
	lost := map[string]int32{}
	for i := range desired.Spec.Ports {
		name := ptr.Deref(desired.Spec.Ports[i].Name, "")
		number, known := last[name]
		if _, isFixed := fixed[name]; known && !isFixed && !numbers.Has(number) {
			lost[name] = number
		}
	}
	return lost
}

// AllocateNodePorts returns node ports of a range, by port name, for the ports of the desired Service that have none:
// the existing one, nil if there is none, has none for them by their names, none is requested, and overrides set none.
// Otherwise it is AllocatePorts.
func AllocateNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service, requested map[string]int32, numbers utilnet.PortRange,
	taken func(int32) bool,
) (allocated map[string]int32, without string) {
	if ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort {
		return nil, ""
	}
	has := presentNodePorts(desired, existing)
	maps.Copy(has, requested)
	return AllocatePorts(desired, has, numbers, taken)
}

// AllocatePorts returns numbers of a range, by port name, for the ports of the desired Service that have none. Ports of
// the same number and different protocols get the same, as node ports from Kubernetes. taken reports whether a number
// is not available. without is the name of a port for which no number is left, or "".
//
// Which number a port gets depends on the names of Listener and port as long as it is free, so that Listeners which are
// created at the same time rarely want the same one, and a Listener that is created again likely gets the one it had.
func AllocatePorts(desired *corev1ac.ServiceApplyConfiguration, has map[string]int32, numbers utilnet.PortRange, taken func(int32) bool,
) (allocated map[string]int32, without string) {
	allocated, shared := map[string]int32{}, map[portProtocol]int32{}
	used := sets.New(slices.Collect(maps.Values(has))...)
	for i := range desired.Spec.Ports {
		p := &desired.Spec.Ports[i]
		name := ptr.Deref(p.Name, "")
		number, ok := has[name]
		if !ok {
			if number, ok = shareable(shared, p); !ok {
				number, ok = firstFree(numbers, *desired.Namespace+"/"+*desired.Name+"/"+name, func(n int32) bool {
					return taken(n) || used.Has(n)
				})
			}
			if !ok {
				return nil, name
			}
			allocated[name] = number
			used.Insert(number)
		}
		shared[portProtocol{ptr.Deref(p.Port, 0), ptr.Deref(p.Protocol, corev1.ProtocolTCP)}] = number
	}
	return allocated, ""
}

// presentNodePorts returns the node ports, by port name, that overrides set or that the existing Service, which may be
// nil, has.
func presentNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) map[string]int32 {
	present := map[string]int32{}
	if existing != nil {
		for _, p := range existing.Spec.Ports {
			if p.NodePort != 0 {
				present[p.Name] = p.NodePort
			}
		}
	}
	maps.Copy(present, FixedNodePorts(desired))
	return present
}

// portProtocol identifies a port of a Service.
type portProtocol struct {
	port     int32
	protocol corev1.Protocol
}

// shareable returns the node port of a port with the same number and another protocol, if there is one.
func shareable(nodePorts map[portProtocol]int32, p *corev1ac.ServicePortApplyConfiguration) (number int32, ok bool) {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if number, ok := nodePorts[portProtocol{ptr.Deref(p.Port, 0), protocol}]; ok {
			return number, true
		}
	}
	return 0, false
}

// firstFree returns the first number of the range that is not taken, beginning where the name determines.
func firstFree(numbers utilnet.PortRange, name string, taken func(int32) bool) (number int32, ok bool) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	first := int(hash.Sum32() % uint32(numbers.Size)) //nolint:gosec // at most 65535
	for i := range numbers.Size {
		number := int32(numbers.Base + (first+i)%numbers.Size) //nolint:gosec // at most 65535
		if !taken(number) {
			return number, true
		}
	}
	return 0, false
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

// WithTargetPorts returns a copy of the Service whose node ports lead to the container ports of the same numbers. The
// node port of a port is that of the Service itself or, if it has none, that of the existing Service, which may be nil,
// by its name. Ports whose target port overrides set stay as they are, and so do those whose node port is not known.
func WithTargetPorts(service *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) *corev1ac.ServiceApplyConfiguration {
	nodePorts := presentNodePorts(service, existing)
	copied, spec := *service, *service.Spec
	spec.Ports = slices.Clone(spec.Ports)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if number, ok := nodePorts[ptr.Deref(p.Name, "")]; ok && p.TargetPort == nil {
			p.TargetPort = ptr.To(intstr.FromInt32(number))
		}
	}
	copied.Spec = &spec
	return &copied
}

// TargetsNodePort reports whether the node port of a port of a Service leads to the container port of the same number.
func TargetsNodePort(p *corev1.ServicePort) bool {
	return p.NodePort != 0 && p.TargetPort == intstr.FromInt32(p.NodePort)
}

// AwaitingTarget returns the names of the ports of the Service whose node port does not lead to the container port of
// the same number yet, although the class says so. Then it must not be published, because nothing listens where it
// leads. A number that is published already is not among them: programs may still listen where it leads.
func (l *Listener) AwaitingTarget() sets.Set[string] {
	awaiting := sets.New[string]()
	for i := range l.Service.Spec.Ports {
		p := &l.Service.Spec.Ports[i]
		switch {
		case !l.Class.TargetsNodePorts(), p.NodePort == 0, TargetsNodePort(p):
		case l.Status != nil && l.Status.NodePorts[p.Name] == p.NodePort:
		default:
			awaiting.Insert(p.Name)
		}
	}
	if l.Desired == nil {
		return awaiting
	}
	for i := range l.Desired.Spec.Ports {
		if p := &l.Desired.Spec.Ports[i]; p.TargetPort != nil { // which overrides set
			awaiting.Delete(ptr.Deref(p.Name, ""))
		}
	}
	return awaiting
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
