package installation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// inheritedEnv are the environment variables that the agents inherit from the operator, because they reach the API
// server in the same way.
var inheritedEnv = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// proxyEnv returns the environment variables that the agents inherit from the operator's own Pod, to which OLM adds
// those of a Subscription. The operator's policy for DaemonSets denies all but literal values: the kubelet would read
// any Secret of the namespace for others.
func proxyEnv(operator corev1.PodSpec) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for i := range operator.Containers {
		if operator.Containers[i].Name != componentOperator {
			continue
		}
		for _, name := range inheritedEnv {
			n := slices.IndexFunc(operator.Containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == name })
			if n < 0 {
				continue
			}
			variable := operator.Containers[i].Env[n]
			if variable.ValueFrom != nil || strings.Contains(variable.Value, "$(") {
				return nil, fmt.Errorf("environment variable %s of Deployment %s refers to another object or variable, and so cannot be passed on to the node agents; "+
					"set its value itself there, or in spec.config.env of the Subscription", name, names.Operator)
			}
			env = append(env, corev1.EnvVar{Name: name, Value: variable.Value})
		}
	}
	return env, nil
}
