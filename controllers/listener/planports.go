package listener

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// allocate gives the ports of the planned Service numbers of their own if the class has Listeners share the address of
// a load balancer. release is for the case that the API server rejects the Service. The status gets the numbers when
// the Service has them, so that none is reserved that no Service has.
//
// The Listener keeps the numbers that it has, also while a previous exposure depends on the type of the Service.
func (p *plan) allocate(s *snapshot, ports *sharedPorts) (release func(), _ error) {
	release = func() {}
	switch {
	case !p.sharesAddress(s):
		return release, nil
	case s.class.SharedPortRange() == "":
		p.sharedPorts = p.presentSharedPorts(s, func(int32) bool { return false })
	default:
		from, err := sharedPortRange(s.class)
		if err != nil {
			return release, err
		}
		p.sharedPorts, release, err = ports.Allocate(s.key(), from, func(taken func(int32) bool) (map[string]int32, error) {
			numbers := p.presentSharedPorts(s, taken)
			allocated, without := exposure.AllocatePorts(p.serviceNow, numbers, from.PortRange, taken)
			if without != "" {
				return nil, exposure.Refuse(listenersv1alpha1.ReasonSharedPortsExhausted, "no port of the shared address is left for port %s: other Listeners have all of %s; "+
					"extend spec.loadBalancer.sharing.portRange of ListenerClass %s, or delete Listeners", without, s.class.SharedPortRange(), s.class.Name)
			}
			maps.Copy(numbers, allocated)
			return numbers, nil
		})
		if err != nil {
			p.refusal = portRefusal(err, s.listener, s.class, "loadBalancer.sharing.maxPortsPerNamespace", from)
			return func() {}, nil
		}
	}
	p.serviceNow = exposure.WithPorts(p.serviceNow, p.sharedPorts)
	return release, nil
}

// presentSharedPorts returns the numbers, by port name, that the Listener has for the ports of the Service. One that
// had no Service may have lost them to another Listener.
func (p *plan) presentSharedPorts(s *snapshot, taken func(int32) bool) map[string]int32 {
	numbers := map[string]int32{}
	for i := range p.serviceNow.Spec.Ports {
		name := ptr.Deref(p.serviceNow.Spec.Ports[i].Name, "")
		if number, ok := s.sharedPorts[name]; ok && !taken(number) {
			numbers[name] = number
		}
	}
	return numbers
}

// sharesAddress reports whether the Service shares the address of its load balancer with others: because the class says
// so or, while a previous exposure depends on the type of the Service, because it does.
func (p *plan) sharesAddress(s *snapshot) bool {
	switch {
	case ptr.Deref(p.serviceNow.Spec.Type, "") != corev1.ServiceTypeLoadBalancer:
		return false
	case s.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return s.class.SharedPortRange() != ""
	default:
		return len(s.sharedPorts) > 0
	}
}
