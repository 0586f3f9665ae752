package listener

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// servicePlan is the Service that has to exist for a Listener. It follows from a snapshot alone.
type servicePlan struct {
	// service is the Service by the class and the overrides, or nil with a refusal.
	service *corev1ac.ServiceApplyConfiguration
	// serviceNow is the Service to apply now. keepsType states that the previous exposure still depends on its type.
	serviceNow *corev1ac.ServiceApplyConfiguration
	keepsType  bool
	// refusal is why there can be no Service, or nil. fixed states that it is what the existing one cannot become.
	refusal *exposure.Refusal
	fixed   bool
}

// plan is what has to exist for a Listener, with what is reserved for it.
type plan struct {
	servicePlan
	// sharedPorts are the numbers of the ports of serviceNow at a shared address, by port name, or nil without one.
	sharedPorts map[string]int32
	// pendingPorts were pending before, and are so again if the API server rejects the Service.
	pendingPorts map[string]int32
	// objects are the objects of the backend, unless objectsRefusal is why there can be none.
	objects        []exposure.Desired
	objectsRefusal *exposure.Refusal
}

func planService(s *snapshot) servicePlan {
	if refusal := unusable(s); refusal != nil {
		return servicePlan{refusal: refusal}
	}
	service, refusal := s.backend.Service(s.class, s.listener)
	if refusal == nil {
		refusal = checkClients(s, service)
	}
	if refusal != nil {
		return servicePlan{service: service, refusal: refusal}
	}
	if refusal = unchangeable(s, service); refusal != nil {
		return servicePlan{service: service, refusal: refusal, fixed: true}
	}
	now, keepsType := service, removesEntryPoint(s, service)
	if keepsType {
		now, refusal = s.backend.Service(classWithTypeOf(s.service, s.class), s.listener)
	}
	if refusal == nil {
		now, refusal = host.WithAnnotations(s.forBackend(s.backend, s.present, service), now)
	}
	if refusal == nil && keepsType { // a stale cache must not restore a type that was just removed
		now.WithResourceVersion(s.service.ResourceVersion)
	}
	return servicePlan{service: service, serviceNow: now, keepsType: keepsType, refusal: refusal}
}

func unusable(s *snapshot) *exposure.Refusal {
	switch {
	case s.foreign != nil:
		return exposure.Refuse(listenersv1alpha1.ReasonForeignService, "Service %s already exists and %s; delete the Service, or give the Listener another name",
			s.serviceKey(), describeController(s.foreign))
	case s.listener.Class() == "":
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotSet, "spec.className is not set; name a ListenerClass there")
	case s.notAllowed != nil:
		return s.notAllowed
	case s.class == nil:
		kept := ""
		if s.service != nil {
			kept = "; until then, Service " + s.serviceKey().String() + " and the addresses do not change"
		}
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotFound, "ListenerClass %q does not exist; create it, or name another one in %s%s",
			message.Printable(s.listener.Class(), validation.DNS1123SubdomainMaxLength), claim.ClassField(s.listener), kept)
	default:
		return nil
	}
}

func checkClients(s *snapshot, service *corev1ac.ServiceApplyConfiguration) *exposure.Refusal {
	if refusal := s.backend.CheckClients(s.forBackend(s.backend, s.present, service), service); refusal != nil {
		return refusal
	}
	if len(s.class.Spec.AllowedClients)+len(s.listener.Spec.AllowedClients) == 0 || !s.backend.RestrictsPods(service) {
		return nil
	}
	if s.foreignPolicy != nil {
		return exposure.Refuse(listenersv1alpha1.ReasonForeignNetworkPolicy, "NetworkPolicy %s already exists and %s; delete it, or rename the Listener",
			client.ObjectKeyFromObject(s.foreignPolicy), describeController(s.foreignPolicy))
	}
	for _, pod := range s.mounting {
		if pod.Spec.HostNetwork {
			return exposure.Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable, "allowedClients cannot be enforced: NetworkPolicies do not apply to Pod %s, which uses "+
				"the network of its node; remove hostNetwork from the Pod, or use a class without allowedClients and restrict clients by a firewall", pod.Name)
		}
	}
	return nil
}

// unchangeable returns why a Service cannot become what the class says, or nil: Kubernetes refuses or ignores that it
// becomes headless, stops being so, or gets another cluster IP. The operator deletes no Service, which others may use.
func unchangeable(s *snapshot, desired *corev1ac.ServiceApplyConfiguration) *exposure.Refusal {
	if s.service == nil || s.serviceTerminating() || s.service.Spec.ClusterIP == "" || *desired.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if exposure.RequestsClusterIPs(s.class, desired) {
		if others := exposure.OtherClusterIPs(s.class.ClusterIPRanges(), s.service); len(others) > 0 {
			return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "Service %s has the cluster IP %s, which no Service can change, and which is not in spec.clusterIPs.cidrs of "+
				"ListenerClass %s; delete the Service, and the operator creates it as the class says, or name another class. Until then, the Service stays as it is",
				s.serviceKey(), strings.Join(others, ", "), s.class.Name)
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
		"or name another class. Until then, the Service stays as it is", s.serviceKey(), s.class.Name)
}

// removesEntryPoint reports whether the desired Service removes the node ports or the load balancer of the existing
// one, if the addresses can still be there: of a plain Service, only if it has the node ports that the class needs.
func removesEntryPoint(s *snapshot, desired *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case s.service == nil || s.service.Spec.Type == *desired.Spec.Type:
		return false
	case s.backend.PlainService:
		return s.service.Spec.Type == corev1.ServiceTypeLoadBalancer && *desired.Spec.Type == corev1.ServiceTypeNodePort &&
			s.class.Spec.NodePorts == nil && len(s.sharedPorts) == 0 && len(exposure.NodePortsOf(s.service)) == len(desired.Spec.Ports)
	default:
		return s.service.Spec.Type == corev1.ServiceTypeNodePort || s.service.Spec.Type == corev1.ServiceTypeLoadBalancer
	}
}

// classWithTypeOf returns the class with the type of an existing Service, and the settings that depend on it.
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

// planObjects returns the objects of the backend, or why there can be none. others exclude some.
func planObjects(s *snapshot, p servicePlan, others exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	for _, kind := range s.backend.KindsFor(s.class) {
		if s.served[kind.GroupVersionKind] == "" {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonNotServed, "ListenerClass %s requires objects of kind %s, which this cluster does not serve in %s; use another class",
				s.class.Name, kind.Kind, strings.Join(append([]string{kind.GroupVersion().String()}, kind.OtherVersions...), ", "))
		}
	}
	if s.backend.Objects == nil {
		return nil, nil
	}
	now := present{service: serviceOf(p.serviceNow), objects: s.objects}
	return s.backend.Objects(s.forBackend(s.backend, now, p.service), others)
}

// serviceOf returns what objects depend on of a Service to apply.
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

// replacesSelector reports whether overrides replace the selector of the Service.
func replacesSelector(s *snapshot, p *plan) bool {
	if p.service == nil {
		return false
	}
	selector := map[string]string{names.PodMountLabel(s.listener.UID): names.ListenerLabel(s.listener.Name)}
	maps.Copy(selector, s.listener.Spec.ExtraPodSelectorLabels)
	return !maps.Equal(selector, p.service.Spec.Selector)
}
