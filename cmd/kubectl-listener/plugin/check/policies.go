package check

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Policies returns the NetworkPolicies of a namespace. If the user may not list them, it reports that.
func (x *Examination) Policies(ctx context.Context, namespace string) []networkingv1.NetworkPolicy {
	var list networkingv1.NetworkPolicyList
	x.FollowAll(ctx, Finding{Kind: "NetworkPolicy", Namespace: namespace}, &list, client.InNamespace(namespace))
	return list.Items
}

// Service returns a Service, or nil if it does not exist or the user may not read it.
func (x *Examination) Service(ctx context.Context, key types.NamespacedName) *corev1.Service {
	service := &corev1.Service{}
	if x.Get(ctx, key, service) != Present {
		return nil
	}
	return service
}

// Selecting returns those of the NetworkPolicies of a Pod's namespace that decide which clients reach the Pod.
func Selecting(policies []networkingv1.NetworkPolicy, pod *corev1.Pod) (selecting []networkingv1.NetworkPolicy) {
	for i := range policies {
		if exposure.SelectsForIngress(&policies[i], pod) {
			selecting = append(selecting, policies[i])
		}
	}
	return selecting
}

// AdmitAll reports whether it is plain that the NetworkPolicies that select a Pod admit every source at each port of a
// Service: what one of them admits, the others cannot deny. service is nil if it is not known.
func AdmitAll(policies []networkingv1.NetworkPolicy, pod *corev1.Pod, service *corev1.Service) bool {
	var open []networkingv1.NetworkPolicyIngressRule
	for i := range policies {
		for _, rule := range policies[i].Spec.Ingress {
			if len(rule.From) == 0 {
				open = append(open, rule)
			}
		}
	}
	if slices.ContainsFunc(open, func(r networkingv1.NetworkPolicyIngressRule) bool { return len(r.Ports) == 0 }) {
		return true
	}
	if service == nil || len(service.Spec.Ports) == 0 {
		return false
	}
	for i := range service.Spec.Ports {
		target, protocol := service.Spec.Ports[i].TargetPort, cmp.Or(service.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
		covers := func(p networkingv1.NetworkPolicyPort) bool {
			return ptr.Deref(p.Protocol, corev1.ProtocolTCP) == protocol && coversTarget(&p, pod, target, protocol)
		}
		if !slices.ContainsFunc(open, func(r networkingv1.NetworkPolicyIngressRule) bool { return slices.ContainsFunc(r.Ports, covers) }) {
			return false
		}
	}
	return true
}

// coversTarget reports whether a port of a NetworkPolicy is the target port of a Service, which a Pod has.
func coversTarget(p *networkingv1.NetworkPolicyPort, pod *corev1.Pod, target intstr.IntOrString, protocol corev1.Protocol) bool {
	number := exposure.ContainerPort(pod, target, protocol)
	switch {
	case p.Port == nil:
		return true
	case number == 0:
		return false
	case p.EndPort != nil:
		return p.Port.IntVal <= number && number <= *p.EndPort
	default:
		return exposure.ContainerPort(pod, *p.Port, protocol) == number
	}
}
