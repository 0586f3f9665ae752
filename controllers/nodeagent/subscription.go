package nodeagent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
)

// handedOnEnv are the variables that the agents get from the operator: how it reaches the API server, so do they.
var handedOnEnv = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// proxyEnv returns the variables that are handed on from the operator's own Pod. Settings of a Subscription arrive there.
func proxyEnv(operator corev1.PodSpec) []corev1.EnvVar {
	var env []corev1.EnvVar
	for i := range operator.Containers {
		if operator.Containers[i].Name != componentOperator {
			continue
		}
		for _, name := range handedOnEnv {
			at := slices.IndexFunc(operator.Containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == name })
			if at >= 0 {
				env = append(env, operator.Containers[i].Env[at])
			}
		}
	}
	return env
}

// pullSecrets returns those that the operator's own Pod names: the agents run from the same image, in the same namespace. Those that come with
// its ServiceAccount are not among them; the agents have a ServiceAccount of their own.
func pullSecrets(operator corev1.PodSpec) []*corev1ac.LocalObjectReferenceApplyConfiguration {
	var secrets []*corev1ac.LocalObjectReferenceApplyConfiguration
	for _, s := range operator.ImagePullSecrets {
		secrets = append(secrets, corev1ac.LocalObjectReference().WithName(s.Name))
	}
	return secrets
}

// placed returns the agent's configuration, completed by where the operator's own Pod may run if that is wanted. It is not by default: who
// keeps operators on some nodes, as is usual for those of the infrastructure, does not mean to take listener volumes away from all others.
func placed(agent operatorv1alpha1.NodeAgentSpec, operator corev1.PodSpec) operatorv1alpha1.NodeAgentSpec {
	if agent.Placement != operatorv1alpha1.PlacementLikeOperator {
		return agent
	}
	if len(agent.NodeSelector) == 0 {
		agent.NodeSelector = operator.NodeSelector
	}
	if len(agent.Tolerations) == 0 {
		agent.Tolerations = operator.Tolerations
	}
	// How the operator's Pods get along with other Pods says nothing about nodes.
	if agent.Affinity == nil && operator.Affinity != nil && operator.Affinity.NodeAffinity != nil {
		agent.Affinity = &corev1.Affinity{NodeAffinity: operator.Affinity.NodeAffinity}
	}
	return agent
}
