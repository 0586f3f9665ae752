package listener

import (
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/message"
)

// plan is what has to exist for a Listener, by a snapshot, the numbers of its shared ports, and the objects of others.
type plan struct {
	// service is the Service by the class and the overrides, or nil with a refusal.
	service *corev1ac.ServiceApplyConfiguration
	// serviceNow is the Service to apply now. It differs from service while the previous exposure depends on the type
	// of the existing Service: keepsType states that.
	serviceNow *corev1ac.ServiceApplyConfiguration
	keepsType  bool
	// sharedPorts are the numbers of the ports of serviceNow at a shared address, by port name, or nil without one.
	sharedPorts map[string]int32
	// refusal is why there can be no Service, or nil.
	refusal *exposure.Refusal
	// fixed states that the refusal is for a Service that can neither become headless, nor stop being so, nor get
	// another cluster IP.
	fixed bool
	// objects are the objects of the backend, unless objectsRefusal is why there can be none.
	objects        []exposure.Desired
	objectsRefusal *exposure.Refusal
}

// newPlan returns the plan without the objects of the backend.
func newPlan(s *snapshot) *plan {
	p := &plan{refusal: unusable(s)}
	if p.refusal != nil {
		return p
	}
	if p.service, p.refusal = exposure.Service(s.class, s.listener); p.refusal == nil {
		p.refusal = checkClients(s, p)
	}
	if p.refusal == nil {
		p.refusal = unchangeable(s, p.service)
		p.fixed = p.refusal != nil
	}
	if p.refusal != nil {
		return p
	}
	p.serviceNow, p.keepsType = p.service, removesEntryPoint(s, p.service)
	if p.keepsType {
		p.serviceNow, p.refusal = exposure.Service(classWithTypeOf(s.service, s.class), s.listener)
	}
	if p.refusal == nil {
		p.serviceNow, p.refusal = host.WithAnnotations(s.forBackend(s.backend, s.present, p.service), p.serviceNow)
	}
	if p.refusal == nil && p.keepsType { // a stale cache must not restore a type that was just removed
		p.serviceNow.WithResourceVersion(s.service.ResourceVersion)
	}
	return p
}

// unusable returns why there can be no Service of the Listener's name and class, or nil.
func unusable(s *snapshot) *exposure.Refusal {
	switch {
	case s.foreign != nil:
		return exposure.Refuse(listenersv1alpha1.ReasonForeignService, "Service %s already exists and %s; delete the Service, or give the Listener another name",
			s.key(), describeController(s.foreign))
	case s.listener.Class() == "":
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotSet, "spec.className is not set; name a ListenerClass there")
	case s.notAllowed != nil:
		return s.notAllowed
	case s.class == nil:
		kept := ""
		if s.service != nil {
			kept = "; until then, Service " + s.key().String() + " and the addresses do not change"
		}
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotFound, "ListenerClass %q does not exist; create it, or name another one in spec.className%s",
			message.Printable(s.listener.Class(), validation.DNS1123SubdomainMaxLength), kept)
	default:
		return nil
	}
}

// unchangeable returns the refusal of a Service that would have to become headless, or stop being so, or get another
// cluster IP, or nil: Kubernetes refuses or ignores that. The operator deletes no Service, which others may use.
func unchangeable(s *snapshot, desired *corev1ac.ServiceApplyConfiguration) *exposure.Refusal {
	if s.service == nil || s.serviceTerminating() || s.service.Spec.ClusterIP == "" || *desired.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if exposure.RequestsClusterIPs(s.class, desired) {
		if others := exposure.OtherClusterIPs(s.class.ClusterIPRanges(), s.service); len(others) > 0 {
			return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "Service %s has the cluster IP %s, which no Service can change, and which is not in spec.clusterIPs.cidrs of "+
				"ListenerClass %s; delete the Service, and the operator creates it as the class says, or name another class. Until then, the Service stays as it is",
				s.key(), strings.Join(others, ", "), s.class.Name)
		}
	}
	headless := exposure.IsHeadless(s.service)
	if headless == (ptr.Deref(desired.Spec.ClusterIP, "") == corev1.ClusterIPNone) {
		return nil
	}
	problem := "has a cluster IP, which no Service can lose, and ListenerClass %s needs a headless one"
	if headless {
		problem = "is headless, and no Service gets a cluster IP later, which ListenerClass %s needs"
	}
	return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "Service %s "+problem+"; delete the Service, and the operator creates it as the class says, "+
		"or name another class. Until then, the Service stays as it is", s.key(), s.class.Name)
}

// removesEntryPoint reports whether the desired Service removes the node ports or the load balancer of the existing
// one. It is false for the plain Service backend, whose own addresses depend on the type of the Service.
func removesEntryPoint(s *snapshot, desired *corev1ac.ServiceApplyConfiguration) bool {
	return !s.backend.PlainService && s.service != nil && s.service.Spec.Type != *desired.Spec.Type &&
		(s.service.Spec.Type == corev1.ServiceTypeNodePort || s.service.Spec.Type == corev1.ServiceTypeLoadBalancer)
}

// classWithTypeOf returns the class with the type of an existing Service, and its settings that depend on the type.
func classWithTypeOf(service *corev1.Service, class *listenersv1alpha1.ListenerClass) *listenersv1alpha1.ListenerClass {
	class, spec := class.DeepCopy(), &service.Spec
	class.Spec.ServiceType = listenersv1alpha1.ServiceType(spec.Type)
	class.Spec.ServiceExternalTrafficPolicy = nil
	if spec.ExternalTrafficPolicy != "" {
		class.Spec.ServiceExternalTrafficPolicy = &spec.ExternalTrafficPolicy
	}
	class.Spec.LoadBalancerClass = spec.LoadBalancerClass
	class.Spec.LoadBalancerAllocateNodePorts = spec.AllocateLoadBalancerNodePorts
	return class
}

// addObjects adds the objects of the backend. others are those of other Listeners and clients that exclude some.
func (p *plan) addObjects(s *snapshot, others exposure.Others) {
	for _, kind := range s.backend.KindsFor(s.class) {
		if s.served[kind.GroupVersionKind] == "" {
			p.objectsRefusal = exposure.Refuse(listenersv1alpha1.ReasonNotServed, "ListenerClass %s requires objects of kind %s, which this cluster does not serve in %s; use another class",
				s.class.Name, kind.Kind, strings.Join(append([]string{kind.GroupVersion().String()}, kind.OtherVersions...), ", "))
			return
		}
	}
	if s.backend.Objects != nil {
		now := present{service: serviceOf(p.serviceNow), objects: s.objects}
		p.objects, p.objectsRefusal = s.backend.Objects(s.forBackend(s.backend, now, p.service), others)
	}
}

// serviceOf returns what objects depend on of a Service to apply: its name, its annotations and its ports.
func serviceOf(desired *corev1ac.ServiceApplyConfiguration) *corev1.Service {
	service := &corev1.Service{}
	service.Namespace, service.Name, service.Annotations = *desired.Namespace, *desired.Name, desired.Annotations
	for i := range desired.Spec.Ports {
		port := &desired.Spec.Ports[i]
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: ptr.Deref(port.Name, ""), Protocol: ptr.Deref(port.Protocol, corev1.ProtocolTCP), Port: ptr.Deref(port.Port, 0),
		})
	}
	return service
}

// allocate gives the ports of the planned Service numbers of their own if the class has Listeners share the address of
// a load balancer. release is for the case that the API server rejects the Service. The status gets the numbers when
// the Service has them, so that none is reserved that no Service has. The Listener keeps the numbers that it has.
func (p *plan) allocate(s *snapshot, ports *sharedPorts) (release func(), err error) {
	release = func() {}
	switch {
	case !p.sharesAddress(s):
		return release, nil
	case s.class.SharedPortRange() == "":
		p.sharedPorts = p.presentSharedPorts(s, func(int32) bool { return false })
	default:
		choose := func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
			numbers := p.presentSharedPorts(s, taken)
			allocated, without := exposure.AllocatePorts(p.serviceNow, numbers, from, taken)
			maps.Copy(numbers, allocated)
			return numbers, without
		}
		p.sharedPorts, release, err = sharedPortRange(s.class).allocate(ports.Allocator, s.key(), choose)
		if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
			p.refusal, release, err = refusal, func() {}, nil
		}
	}
	p.serviceNow = exposure.WithPorts(p.serviceNow, p.sharedPorts)
	return release, err
}

// presentSharedPorts returns the numbers that the Listener still has for the ports of the Service, by port name.
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
