package exposure

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// HealthCheck stands for the health check node port of a load balancer among node ports. No port can have the name.
const HealthCheck = "healthCheckNodePort"

// LostNodePorts returns the node ports, by port name, to request for the Service of a Listener so that it gets its last
// ones again. There are none if the existing Service, which may be nil, has node ports, or if the desired one gets
// none. Those of a load balancer count, too. Overrides take precedence.
func LostNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service,
	last map[string]int32) map[string]int32 {
	kind, lost := ptr.Deref(desired.Spec.Type, ""), map[string]int32{}
	if number, known := last[HealthCheck]; known && lacksHealthCheck(desired, existing) {
		lost[HealthCheck] = number
	}
	allocates := kind == corev1.ServiceTypeNodePort ||
		kind == corev1.ServiceTypeLoadBalancer && ptr.Deref(desired.Spec.AllocateLoadBalancerNodePorts, true)
	if !allocates || len(NodePortsOf(existing)) > 0 {
		return lost
	}
	fixed := FixedNodePorts(desired)
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

func lacksHealthCheck(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) bool {
	return ptr.Deref(desired.Spec.Type, "") == corev1.ServiceTypeLoadBalancer &&
		ptr.Deref(desired.Spec.ExternalTrafficPolicy, "") == corev1.ServiceExternalTrafficPolicyLocal &&
		ptr.Deref(existing, corev1.Service{}).Spec.HealthCheckNodePort == 0
}

// AllocateNodePorts is AllocatePorts for the node ports of a Service. A port has one already if overrides set it, if it
// is requested, or if the existing Service, which may be nil, has it for a port of the same name.
func AllocateNodePorts(desired *corev1ac.ServiceApplyConfiguration, existing *corev1.Service,
	requested map[string]int32, numbers utilnet.PortRange,
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
func AllocatePorts(desired *corev1ac.ServiceApplyConfiguration, has map[string]int32, numbers utilnet.PortRange,
	taken func(int32) bool,
) (allocated map[string]int32, without string) {
	allocated, byPort := map[string]int32{}, map[int32]int32{}
	used := sets.New(slices.Collect(maps.Values(has))...)
	for _, p := range desired.Spec.Ports {
		name, port := ptr.Deref(p.Name, ""), ptr.Deref(p.Port, 0)
		number, ok := has[name]
		if !ok {
			if number, ok = byPort[port]; !ok {
				hashed := *desired.Namespace + "/" + *desired.Name + "/" + name
				number, ok = firstFree(hashed, uint32(numbers.Size), //nolint:gosec // at most 65535
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

func NodePortsOf(service *corev1.Service) map[string]int32 {
	nodePorts := map[string]int32{}
	for _, p := range ptr.Deref(service, corev1.Service{}).Spec.Ports {
		if p.NodePort != 0 {
			nodePorts[p.Name] = p.NodePort
		}
	}
	return nodePorts
}

// AllocatedNodePorts returns the node ports that a Service has, with its port for health checks.
func AllocatedNodePorts(service *corev1.Service) sets.Set[int32] {
	numbers := sets.New(slices.Collect(maps.Values(NodePortsOf(service)))...)
	return numbers.Insert(service.Spec.HealthCheckNodePort).Delete(0)
}

// LoadBalancerPorts returns the node ports that a Service, which may be nil, has for a load balancer, or the last ones.
func LoadBalancerPorts(service *corev1.Service, last map[string]int32) map[string]int32 {
	ports := NodePortsOf(service)
	if len(ports) == 0 {
		maps.Copy(ports, last)
	}
	if service != nil && service.Spec.HealthCheckNodePort != 0 {
		ports[HealthCheck] = service.Spec.HealthCheckNodePort
	}
	if service == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(ports) == 0 {
		return last
	}
	return ports
}

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

func WithNodePorts(service *corev1ac.ServiceApplyConfiguration,
	nodePorts map[string]int32) *corev1ac.ServiceApplyConfiguration {
	copied := withNumbers(service, nodePorts,
		func(p *corev1ac.ServicePortApplyConfiguration, number int32) { p.NodePort = &number })
	if number, ok := nodePorts[HealthCheck]; ok {
		copied.Spec.HealthCheckNodePort = &number
	}
	return copied
}

// WithTargetPorts returns a copy of the Service whose node ports lead to the container ports of the same numbers. The
// node port of a port is that of the Service itself or, if it has none, that of the existing Service, which may be nil,
// by its name. Ports whose target port overrides set stay as they are, and so do those whose node port is not known.
func WithTargetPorts(service *corev1ac.ServiceApplyConfiguration,
	existing *corev1.Service) *corev1ac.ServiceApplyConfiguration {
	return withNumbers(service, presentNodePorts(service, existing), setTarget)
}

// WithPorts returns a copy of the Service that is reached at these ports, by port name, which lead to the same
// container ports as before. Ports that are not named stay as they are.
func WithPorts(service *corev1ac.ServiceApplyConfiguration,
	ports map[string]int32) *corev1ac.ServiceApplyConfiguration {
	return withNumbers(service, ports, func(p *corev1ac.ServicePortApplyConfiguration, number int32) {
		setTarget(p, ptr.Deref(p.Port, 0))
		p.Port = &number
	})
}

func setTarget(p *corev1ac.ServicePortApplyConfiguration, number int32) {
	if p.TargetPort == nil {
		p.TargetPort = ptr.To(intstr.FromInt32(number))
	}
}

// withNumbers returns a copy of the Service in which the ports that have a number by their name are changed by it.
func withNumbers(service *corev1ac.ServiceApplyConfiguration, numbers map[string]int32,
	change func(*corev1ac.ServicePortApplyConfiguration, int32),
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

// maxRangeBits bounds how many addresses of a range are tried: the first 2^16.
const maxRangeBits = 16

// RequestsClusterIPs reports whether the operator chooses the cluster IPs of the desired Service: the class has ranges
// of them, and overrides set none. A Service of another type than its class's has none of the ranges.
func RequestsClusterIPs(class *listenersv1alpha1.ListenerClass, desired *corev1ac.ServiceApplyConfiguration) bool {
	return class.Spec.ClusterIPs != nil && desired.Spec.ClusterIP == nil && len(desired.Spec.ClusterIPs) == 0 &&
		ptr.Deref(desired.Spec.Type, "") == corev1.ServiceTypeClusterIP
}

// OtherClusterIPs returns the cluster IPs of an existing Service that are in none of the ranges.
func OtherClusterIPs(ranges []netip.Prefix, service *corev1.Service) (others []string) {
	for _, ip := range service.Spec.ClusterIPs {
		address, err := netip.ParseAddr(ip)
		if err != nil || !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) }) {
			others = append(others, ip)
		}
	}
	return others
}

// AllocateClusterIPs returns cluster IPs in the ranges of the class for the desired Service, one for each of its IP
// families, in their order: if possible, one of the last addresses of the Listener that is not taken.
func AllocateClusterIPs(class *listenersv1alpha1.ListenerClass, desired *corev1ac.ServiceApplyConfiguration,
	last []string, taken func(netip.Addr) bool,
) (addresses []string, _ *Refusal) {
	ranges := class.ClusterIPRanges()
	for _, family := range clusterIPFamilies(ranges, desired) {
		own := slices.DeleteFunc(slices.Clone(ranges),
			func(r netip.Prefix) bool { return FamilyOf(r.Addr().String()) != family })
		if len(own) == 0 {
			return nil, Refuse(listenersv1alpha1.ReasonClusterIPsExhausted,
				"the Service needs a cluster IP of family %s, and spec.clusterIPs.cidrs of ListenerClass %s has no "+
					"range of it; add one", family, class.Name)
		}
		address, ok := allocateAddress(own, *desired.Namespace+"/"+*desired.Name, last, taken)
		if !ok {
			return nil, Refuse(listenersv1alpha1.ReasonClusterIPsExhausted,
				"no cluster IP is left: other Services and Listeners have all of %s; add a range to "+
					"spec.clusterIPs.cidrs of ListenerClass %s, or delete Listeners",
				strings.Join(FormatClients(own), ", "), class.Name).
				Awaiting(listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindClusterIP})
		}
		addresses = append(addresses, address.String())
	}
	return addresses, nil
}

// clusterIPFamilies returns the IP families of the desired Service, by default the one of the first range first.
func clusterIPFamilies(ranges []netip.Prefix, desired *corev1ac.ServiceApplyConfiguration) []corev1.IPFamily {
	families := slices.Clone(desired.Spec.IPFamilies)
	if len(families) == 0 {
		families = []corev1.IPFamily{FamilyOf(ranges[0].Addr().String())}
	}
	dual := ptr.Deref(desired.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack
	if second := corev1.IPv6Protocol; dual && len(families) == 1 {
		if families[0] == second {
			second = corev1.IPv4Protocol
		}
		families = append(families, second)
	}
	return families
}

// allocateAddress returns the first of the last addresses that is in a range and not taken, or else the first address
// of the first range that has one, beginning where the name determines.
func allocateAddress(ranges []netip.Prefix, name string, last []string,
	taken func(netip.Addr) bool) (netip.Addr, bool) {
	for _, ip := range last {
		address, err := netip.ParseAddr(ip)
		if err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) }) &&
			!taken(address) {
			return address, true
		}
	}
	for _, r := range ranges {
		first, count := usable(r)
		if address, ok := firstFree(name, count, func(i uint32) netip.Addr { return at(r, first+i) }, taken); ok {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// usable returns the first of the addresses of a range that a Service can have, and how many there are. Kubernetes
// allocates neither the address of a network, nor the broadcast address of IPv4, and the range may be all of one.
func usable(r netip.Prefix) (first, count uint32) {
	bits := min(r.Addr().BitLen()-r.Bits(), maxRangeBits)
	if bits < 2 {
		return 0, 1 << bits
	}
	return 1, 1<<bits - 2
}

// at returns the address at an offset in a range, below 2^16.
func at(r netip.Prefix, offset uint32) netip.Addr {
	bytes := r.Masked().Addr().AsSlice()
	end := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+offset)
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

func WithClusterIPs(service *corev1ac.ServiceApplyConfiguration,
	addresses []string) *corev1ac.ServiceApplyConfiguration {
	copied := withNumbers(service, nil, nil)
	copied.Spec.ClusterIP, copied.Spec.ClusterIPs = &addresses[0], addresses
	return copied
}
