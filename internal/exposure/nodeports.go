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
// ones again. There are none if the existing Service, which may be nil, has node ports, or if the desired one gets
// none. Those of a load balancer count, too: its Service may be of type NodePort again. Overrides take precedence.
func LostNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service, last map[string]int32) map[string]int32 {
	kind := ptr.Deref(desired.Spec.Type, "")
	allocates := kind == corev1.ServiceTypeNodePort || kind == corev1.ServiceTypeLoadBalancer && ptr.Deref(desired.Spec.AllocateLoadBalancerNodePorts, true)
	if !allocates || len(NodePortsOf(existing)) > 0 {
		return nil
	}
	fixed, lost := FixedNodePorts(desired), map[string]int32{}
	numbers := sets.New(slices.Collect(maps.Values(fixed))...)
	for _, p := range desired.Spec.Ports {
		name := ptr.Deref(p.Name, "")
		number, known := last[name]
		if _, isFixed := fixed[name]; known && !isFixed && !numbers.Has(number) {
			lost[name] = number
		}
	}
	return lost
}

// AllocateNodePorts is AllocatePorts for the node ports of a Service. A port has one already if overrides set it, if it
// is requested, or if the existing Service, which may be nil, has it for a port of the same name.
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
	allocated, byPort := map[string]int32{}, map[int32]int32{}
	used := sets.New(slices.Collect(maps.Values(has))...)
	for _, p := range desired.Spec.Ports {
		name, port := ptr.Deref(p.Name, ""), ptr.Deref(p.Port, 0)
		number, ok := has[name]
		if !ok {
			if number, ok = byPort[port]; !ok {
				number, ok = firstFree(*desired.Namespace+"/"+*desired.Name+"/"+name, uint32(numbers.Size), //nolint:gosec // at most 65535
					func(i uint32) int32 { return int32(numbers.Base + int(i)) }, //nolint:gosec // at most 65535
					func(n int32) bool { return taken(n) || used.Has(n) })
			}
			if !ok {
				return nil, name
			}
			allocated[name] = number
			used.Insert(number)
		}
		byPort[port] = number
	}
	return allocated, ""
}

// presentNodePorts returns the node ports that overrides set, or that the existing Service has, by port name.
func presentNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) map[string]int32 {
	present := NodePortsOf(existing)
	maps.Copy(present, FixedNodePorts(desired))
	return present
}

// NodePortsOf returns the node ports of a Service, which may be nil, by port name.
func NodePortsOf(service *corev1.Service) map[string]int32 {
	nodePorts := map[string]int32{}
	for _, p := range ptr.Deref(service, corev1.Service{}).Spec.Ports {
		if p.NodePort != 0 {
			nodePorts[p.Name] = p.NodePort
		}
	}
	return nodePorts
}

// FixedNodePorts returns the node ports that overrides set, by port name.
func FixedNodePorts(service *corev1ac.ServiceApplyConfiguration) map[string]int32 {
	fixed := map[string]int32{}
	for _, p := range service.Spec.Ports {
		if number := ptr.Deref(p.NodePort, 0); number != 0 {
			fixed[ptr.Deref(p.Name, "")] = number
		}
	}
	return fixed
}

// firstFree returns the first of a number of values that is not taken, beginning where the name determines.
func firstFree[T any](name string, count uint32, value func(uint32) T, taken func(T) bool) (free T, ok bool) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	first := hash.Sum32() % count
	for i := range count {
		if free = value((first + i) % count); !taken(free) {
			return free, true
		}
	}
	return free, false
}

// WithNodePorts returns a copy of the Service with these node ports, by port name.
func WithNodePorts(service *corev1ac.ServiceApplyConfiguration, nodePorts map[string]int32) *corev1ac.ServiceApplyConfiguration {
	return withNumbers(service, nodePorts, func(p *corev1ac.ServicePortApplyConfiguration, number int32) { p.NodePort = &number })
}

// WithTargetPorts returns a copy of the Service whose node ports lead to the container ports of the same numbers. The
// node port of a port is that of the Service itself or, if it has none, that of the existing Service, which may be nil,
// by its name. Ports whose target port overrides set stay as they are, and so do those whose node port is not known.
func WithTargetPorts(service *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) *corev1ac.ServiceApplyConfiguration {
	return withNumbers(service, presentNodePorts(service, existing), setTarget)
}

// WithPorts returns a copy of the Service that is reached at these ports, by port name, which lead to the same
// container ports as before. Ports that are not named stay as they are.
func WithPorts(service *corev1ac.ServiceApplyConfiguration, ports map[string]int32) *corev1ac.ServiceApplyConfiguration {
	return withNumbers(service, ports, func(p *corev1ac.ServicePortApplyConfiguration, number int32) {
		setTarget(p, ptr.Deref(p.Port, 0))
		p.Port = &number
	})
}

// setTarget sets the target port of a port that has none.
func setTarget(p *corev1ac.ServicePortApplyConfiguration, number int32) {
	if p.TargetPort == nil {
		p.TargetPort = ptr.To(intstr.FromInt32(number))
	}
}

// withNumbers returns a copy of the Service in which the ports that have a number by their name are changed by it.
func withNumbers(service *corev1ac.ServiceApplyConfiguration, numbers map[string]int32, change func(*corev1ac.ServicePortApplyConfiguration, int32),
) *corev1ac.ServiceApplyConfiguration {
	copied, spec := *service, *service.Spec
	spec.Ports = slices.Clone(spec.Ports)
	for i := range spec.Ports {
		if number, ok := numbers[ptr.Deref(spec.Ports[i].Name, "")]; ok {
			change(&spec.Ports[i], number)
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
	for _, p := range l.Service.Spec.Ports {
		published := l.Status != nil && l.Status.NodePorts[p.Name] == p.NodePort
		if l.Class.TargetsNodePorts() && p.NodePort != 0 && !TargetsNodePort(&p) && !published {
			awaiting.Insert(p.Name)
		}
	}
	if l.Desired != nil {
		for _, p := range l.Desired.Spec.Ports {
			if p.TargetPort != nil { // which overrides set
				awaiting.Delete(ptr.Deref(p.Name, ""))
			}
		}
	}
	return awaiting
}
