package installation

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Ports at which the operator serves, as in its Deployment in config/manager.
const (
	metricsPort     = 8443
	metricsPortName = "metrics"
	healthPort      = 8081
)

// operatorNetworkPolicy admits requests for metrics, which the operator authorizes by itself, and the kubelet's probes.
// It does not restrict egress: the port of the API server, or of a proxy before it, differs from cluster to cluster,
// and an operator that cannot reach it could not even repair the policy.
func operatorNetworkPolicy(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	return ingressOnly(names.Operator, s.Namespace, OperatorLabels(), metricsPort, healthPort), nil
}

// nodeAgentNetworkPolicy admits requests for metrics, which contain no names, and the kubelet's probes.
func nodeAgentNetworkPolicy(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	return ingressOnly(names.NodeAgent, s.Namespace, NodeAgentLabels(), agentPort), nil
}

func ingressOnly(name, namespace string, pods map[string]string, ports ...int32) *networkingv1ac.NetworkPolicyApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyIngressRule()
	for _, port := range ports {
		rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(port)))
	}
	return networkingv1ac.NetworkPolicy(name, namespace).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(pods)).
		WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithIngress(rule))
}
