package walk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// policies follows the NetworkPolicies that select a Pod, each of which may deny the clients of a Listener.
func (w *Walk) policies(ctx context.Context, pod *corev1.Pod, listener string, service *corev1.Service) {
	var list networkingv1.NetworkPolicyList
	w.ReadAll(ctx, check.Finding{Kind: "NetworkPolicy", Namespace: pod.Namespace}, &list,
		client.InNamespace(pod.Namespace))
	policies := slices.DeleteFunc(slices.Clone(list.Items),
		func(p networkingv1.NetworkPolicy) bool { return !exposure.SelectsForIngress(&p)(pod) })
	admitted := admitAll(policies, pod, service)
	for policy := range check.Each(policies) {
		f := check.Finding{Kind: "NetworkPolicy", Namespace: pod.Namespace, Name: policy.Name}
		switch restricts := exposure.IsClientPolicy(policy); {
		case restricts && admitted:
			w.Add(f.Warning("", "has no effect, because other policies admit every client: docs/network-policies.md"))
		case restricts:
			w.Add(f.OK("selects Pod %s; of the clients outside, it admits only %s, by allowedClients", pod.Name,
				strings.Join(admittedRanges(policy), ", ")))
		case admitted:
			w.Add(f.OK("selects Pod %s; every client is admitted to the ports of Listener %s", pod.Name, listener))
		default:
			w.Add(f.Warning("", fmt.Sprintf("selects Pod %s; clients outside may be denied by it: "+
				"docs/network-policies.md", pod.Name)))
		}
	}
}

// admitAll reports whether it is plain that the NetworkPolicies that select a Pod admit every source at each port of a
// Service: what one of them admits, the others cannot deny. service is nil if it is not known.
func admitAll(policies []networkingv1.NetworkPolicy, pod *corev1.Pod, service *corev1.Service) bool {
	var open []networkingv1.NetworkPolicyPort
	for policy := range check.Each(policies) {
		for _, rule := range policy.Spec.Ingress {
			switch {
			case len(rule.From) > 0:
			case len(rule.Ports) == 0:
				return true
			default:
				open = append(open, rule.Ports...)
			}
		}
	}
	denied := func(port corev1.ServicePort) bool {
		return !slices.ContainsFunc(open, func(p networkingv1.NetworkPolicyPort) bool {
			return coversTarget(&p, pod, &port)
		})
	}
	return service != nil && len(service.Spec.Ports) > 0 && !slices.ContainsFunc(service.Spec.Ports, denied)
}

// coversTarget reports whether a port of a NetworkPolicy is the target port of a Service, which a Pod has.
func coversTarget(p *networkingv1.NetworkPolicyPort, pod *corev1.Pod, port *corev1.ServicePort) bool {
	protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
	number := exposure.ContainerPort(pod, port.TargetPort, protocol)
	switch {
	case ptr.Deref(p.Protocol, corev1.ProtocolTCP) != protocol:
		return false
	case p.Port == nil:
		return true
	case number == 0:
		return false
	case p.EndPort != nil:
		return p.Port.IntVal <= number && number <= *p.EndPort
	}
	return exposure.ContainerPort(pod, *p.Port, protocol) == number
}

func admittedRanges(policy *networkingv1.NetworkPolicy) (ranges []string) {
	for _, rule := range policy.Spec.Ingress[:min(len(policy.Spec.Ingress), 1)] {
		for _, from := range rule.From {
			if from.IPBlock != nil {
				ranges = append(ranges, from.IPBlock.CIDR)
			}
		}
	}
	return ranges
}
