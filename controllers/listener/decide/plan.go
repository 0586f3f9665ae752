// Package decide decides what has to exist for a Listener, and what its status says. It is pure: it knows what was
// observed, but no client, clock or cache, and has no state.
package decide

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Service is the Service that has to exist for a Listener. It follows from a snapshot alone.
type Service struct {
	// Desired is the Service by the class and the overrides, or nil with a refusal.
	Desired *corev1ac.ServiceApplyConfiguration
	// Now is the Service to apply now. KeepsType states that the previous exposure still depends on its type.
	Now       *corev1ac.ServiceApplyConfiguration
	KeepsType bool
	// Refusal is why there can be no Service, or nil. fixed states that it is what the existing one cannot become.
	Refusal *exposure.Refusal
	fixed   bool
}

// Plan is what has to exist for a Listener, with what was reserved for it.
type Plan struct {
	Service Service
	// SharedPorts are the numbers of the ports of the Service at a shared address, by port name, or nil without one.
	SharedPorts map[string]int32
	// Objects are the objects of the backend, unless ObjectsRefusal is why there can be none.
	Objects        []exposure.Desired
	ObjectsRefusal *exposure.Refusal
}

// ServiceFor returns the Service that has to exist, or why there can be none.
func ServiceFor(s *observe.Snapshot) Service {
	if refusal := unusable(s); refusal != nil {
		return Service{Refusal: refusal}
	}
	service, refusal := s.Backend.Service(s.Class, s.Listener)
	if refusal == nil {
		refusal = checkClients(s, service)
	}
	if refusal != nil {
		return Service{Desired: service, Refusal: refusal}
	}
	if refusal = unchangeable(s, service); refusal != nil {
		return Service{Desired: service, Refusal: refusal, fixed: true}
	}
	now, keepsType := service, removesEntryPoint(s, service)
	if keepsType {
		now, refusal = s.Backend.Service(classWithTypeOf(s.Objects.Service, s.Class), s.Listener)
	}
	if refusal == nil {
		now, refusal = host.WithAnnotations(s.ForBackend(s.Backend, s.Objects, service), now)
	}
	if refusal == nil && keepsType { // a stale cache must not restore a type that was just removed
		now.WithResourceVersion(s.Objects.Service.ResourceVersion)
	}
	return Service{Desired: service, Now: now, KeepsType: keepsType, Refusal: refusal}
}

func unusable(s *observe.Snapshot) *exposure.Refusal {
	switch {
	case s.Foreign != nil:
		return exposure.Refuse(listenersv1alpha1.ReasonForeignService,
			"Service %s already exists and %s; delete the Service, or give the Listener another name",
			s.ServiceKey(), observe.DescribeController(s.Foreign))
	case s.Listener.Class() == "":
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotSet,
			"spec.className is not set; name a ListenerClass there")
	case s.NotAllowed != nil:
		return s.NotAllowed
	case s.Class == nil:
		kept := ""
		if s.Objects.Service != nil {
			kept = "; until then, Service " + s.ServiceKey().String() + " and the addresses do not change"
		}
		return exposure.Refuse(listenersv1alpha1.ReasonClassNotFound,
			"ListenerClass %q does not exist; create it, or name another one in %s%s",
			message.Printable(s.Listener.Class(), validation.DNS1123SubdomainMaxLength), claim.ClassField(s.Listener),
			kept)
	}
	return nil
}

func checkClients(s *observe.Snapshot, service *corev1ac.ServiceApplyConfiguration) *exposure.Refusal {
	if refusal := s.Backend.CheckClients(s.ForBackend(s.Backend, s.Objects, service), service); refusal != nil {
		return refusal
	}
	if len(s.Class.Spec.AllowedClients)+len(s.Listener.Spec.AllowedClients) == 0 || !s.Backend.RestrictsPods(service) {
		return nil
	}
	if s.ForeignPolicy != nil {
		return exposure.Refuse(listenersv1alpha1.ReasonForeignNetworkPolicy,
			"NetworkPolicy %s already exists and %s; delete it, or rename the Listener",
			types.NamespacedName{Namespace: s.ForeignPolicy.Namespace, Name: s.ForeignPolicy.Name},
			observe.DescribeController(s.ForeignPolicy))
	}
	for _, pod := range s.Mounting {
		if pod.Spec.HostNetwork {
			return exposure.Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable,
				"allowedClients cannot be enforced: NetworkPolicies do not apply to Pod %s, which uses "+
					"the network of its node; remove hostNetwork from the Pod, or use a class without allowedClients "+
					"and restrict clients by a firewall", pod.Name)
		}
	}
	return nil
}

// unchangeable returns why a Service cannot become what the class says, or nil: Kubernetes refuses or ignores that it
// becomes headless, stops being so, or gets another cluster IP. The operator deletes no Service, which others may use.
func unchangeable(s *observe.Snapshot, desired *corev1ac.ServiceApplyConfiguration) *exposure.Refusal {
	if s.Objects.Service == nil || s.ServiceTerminating() || s.Objects.Service.Spec.ClusterIP == "" ||
		*desired.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if exposure.RequestsClusterIPs(s.Class, desired) {
		if others := exposure.OtherClusterIPs(s.Class.ClusterIPRanges(), s.Objects.Service); len(others) > 0 {
			return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected,
				"Service %s has the cluster IP %s, which no Service can change, and which is not in "+
					"spec.clusterIPs.cidrs of ListenerClass %s; delete the Service, and the operator creates it as "+
					"the class says, or name another class. Until then, the Service stays as it is",
				s.ServiceKey(), strings.Join(others, ", "), s.Class.Name)
		}
	}
	headless := exposure.IsHeadless(s.Objects.Service)
	if headless == (ptr.Deref(desired.Spec.ClusterIP, "") == corev1.ClusterIPNone) {
		return nil
	}
	problem := "has a cluster IP, which no Service can lose, and ListenerClass %s needs a headless one"
	if headless {
		problem = "is headless, and no Service gets a cluster IP later, which ListenerClass %s needs"
	}
	return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "Service %s "+problem+
		"; delete the Service, and the operator creates it as the class says, "+
		"or name another class. Until then, the Service stays as it is", s.ServiceKey(), s.Class.Name)
}

// removesEntryPoint reports whether the desired Service removes the node ports or the load balancer of the existing
// one, if the addresses can still be there: of a plain Service, only if it has the node ports that the class needs.
func removesEntryPoint(s *observe.Snapshot, desired *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case s.Objects.Service == nil || s.Objects.Service.Spec.Type == *desired.Spec.Type:
		return false
	case s.Backend.PlainService:
		return s.Objects.Service.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			*desired.Spec.Type == corev1.ServiceTypeNodePort &&
			s.Class.Spec.NodePorts == nil && len(s.SharedPorts) == 0 &&
			len(exposure.NodePortsOf(s.Objects.Service)) == len(desired.Spec.Ports)
	}
	return s.Objects.Service.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Objects.Service.Spec.Type == corev1.ServiceTypeLoadBalancer
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

// ObjectsFor returns the objects of the backend, or why there can be none. others exclude some.
func ObjectsFor(s *observe.Snapshot, p Service, others exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	for _, kind := range s.Backend.KindsFor(s.Class) {
		if s.Served[kind.GroupVersionKind] == "" {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonNotServed,
				"ListenerClass %s requires objects of kind %s, which this cluster does not serve in %s; use another "+
					"class", s.Class.Name, kind.Kind,
				strings.Join(append([]string{kind.GroupVersion().String()}, kind.OtherVersions...), ", "))
		}
	}
	if s.Backend.Objects == nil {
		return nil, nil
	}
	now := observe.Objects{Service: serviceOf(p.Now), OfBackend: s.Objects.OfBackend}
	return s.Backend.Objects(s.ForBackend(s.Backend, now, p.Desired), others)
}

func serviceOf(desired *corev1ac.ServiceApplyConfiguration) *corev1.Service {
	service := &corev1.Service{}
	service.Namespace, service.Name, service.Annotations = *desired.Namespace, *desired.Name, desired.Annotations
	for i := range desired.Spec.Ports {
		port := &desired.Spec.Ports[i]
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: ptr.Deref(port.Name, ""), Protocol: ptr.Deref(port.Protocol, corev1.ProtocolTCP),
			Port: ptr.Deref(port.Port, 0),
		})
	}
	return service
}

// ReplacesSelector reports whether overrides replace the selector of the Service, so that other Pods may respond.
func ReplacesSelector(s *observe.Snapshot, p *Plan) bool {
	if p.Service.Desired == nil {
		return false
	}
	selector := map[string]string{names.PodMountLabel(s.Listener.UID): names.ListenerLabel(s.Listener.Name)}
	maps.Copy(selector, s.Listener.Spec.ExtraPodSelectorLabels)
	return !maps.Equal(selector, p.Service.Desired.Spec.Selector)
}

// WithTargetPorts returns a Service whose node ports, which may be those of the existing one, lead to the container
// ports of the same numbers, if they have to, by the class or a previous exposure; or else the desired one, and false.
func WithTargetPorts(s *observe.Snapshot, existing *corev1.Service,
	desired *corev1ac.ServiceApplyConfiguration) (*corev1ac.ServiceApplyConfiguration, bool) {
	have := s.Class.TargetsNodePorts()
	if s.Class.Spec.ServiceType != listenersv1alpha1.ServiceTypeNodePort {
		have = existing != nil && slices.ContainsFunc(existing.Spec.Ports,
			func(p corev1.ServicePort) bool { return exposure.TargetsNodePort(&p) })
	}
	if !have || ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort {
		return desired, false
	}
	return exposure.WithTargetPorts(desired, existing), true
}

// PlannedPolicy returns the NetworkPolicy for the Service as it is applied now, or nil.
func PlannedPolicy(s *observe.Snapshot, p *Plan, now observe.Objects) *unstructured.Unstructured {
	service, _ := WithTargetPorts(s, now.Service, p.Service.Now)
	return s.Backend.ClientPolicy(s.ForBackend(s.Backend, now, p.Service.Desired), service, s.OtherPolicies)
}
