package installation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// inheritedEnv are the environment variables that the agents inherit from the operator, because they reach the API
// server in the same way.
var inheritedEnv = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// proxyEnv returns the environment variables that the agents inherit from the operator's own Pod, to which OLM adds
// those of a Subscription.
func proxyEnv(operator corev1.PodSpec) []corev1.EnvVar {
	var env []corev1.EnvVar
	for i := range operator.Containers {
		if operator.Containers[i].Name != componentOperator {
			continue
		}
		for _, name := range inheritedEnv {
			at := slices.IndexFunc(operator.Containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == name })
			if at >= 0 {
				env = append(env, operator.Containers[i].Env[at])
			}
		}
	}
	return env
}

// pullSecrets returns the image pull secrets that the operator's own Pod names: the agents run from the same image, in
// the same namespace. Those of its ServiceAccount are not among them; the agents have their own ServiceAccount.
func pullSecrets(operator corev1.PodSpec) []*corev1ac.LocalObjectReferenceApplyConfiguration {
	var secrets []*corev1ac.LocalObjectReferenceApplyConfiguration
	for _, s := range operator.ImagePullSecrets {
		secrets = append(secrets, corev1ac.LocalObjectReference().WithName(s.Name))
	}
	return secrets
}
