package installation

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// DefaultKubeletDir is the root directory of the kubelet if the configuration leaves it empty.
const DefaultKubeletDir = "/var/lib/kubelet"

// daemonSetValues returns the values in the manifest of the DaemonSet. Old configurations lack defaults of new fields.
func daemonSetValues(config *operatorv1alpha1.ListenerOperator, s Settings) (map[string]any, error) {
	if s.ServiceAccount == "" {
		return nil, fmt.Errorf("ServiceAccount %s/%s, which is part of the operator's manifests, does not exist; install the manifests again", s.Namespace, names.NodeAgent)
	}
	proxy, err := proxyEnv(s.OperatorPod)
	if err != nil {
		return nil, err
	}
	agent := config.Spec.NodeAgent
	kubelet, resources := cmp.Or(agent.KubeletDir, DefaultKubeletDir), cmp.Or(agent.Resources, defaultResources())
	placement := DesiredPlacement(agent, s.OperatorPod)
	if s.Placement != nil {
		placement = *s.Placement
	}
	env := []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}}}
	if limit, ok := resources.Limits[corev1.ResourceMemory]; ok {
		// Go collects garbage before the container reaches its limit. A fifth is left for what Go does not count.
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/5*4, 10)})
	}
	return map[string]any{
		"maxUnavailable": maxUnavailable(s), "serviceAccount": s.ServiceAccount, "image": s.Image, "pullSecrets": s.OperatorPod.ImagePullSecrets,
		"priorityClass": cmp.Or(agent.PriorityClassName, "system-node-critical"),
		"nodeSelector":  placement.NodeSelector, "tolerations": placement.Tolerations, "affinity": placement.Affinity,
		"args":      []string{"--kubelet-dir=" + kubelet, "--log-level=" + cmp.Or(agent.LogLevel, "info")},
		"env":       append(env, proxy...),
		"resources": resources,
		"plugin":    path.Join(kubelet, "plugins", names.Driver), "registry": path.Join(kubelet, "plugins_registry"), "pods": path.Join(kubelet, "pods"),
	}, nil
}

// maxUnavailable returns how many agents may be unavailable in a rollout: a tenth. The DaemonSet controller counts the
// agents of nodes that are down, and would wait for these nodes before it replaces others, so they are added.
func maxUnavailable(s Settings) any {
	if s.AgentsDown == 0 {
		return "10%"
	}
	return (s.Agents+9)/10 + s.AgentsDown
}

// defaultResources suit a cluster of any size, because an agent only handles its own node. It usually needs less than a
// third of the memory, and nothing that a Pod does to its volume makes it need more.
func defaultResources() *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// componentOperator is the name of the container in the operator's Pods.
const componentOperator = "operator"

// proxyEnv returns the environment variables that the agents inherit from the operator's own Pod, to which OLM adds
// those of a Subscription: agents reach the API server as it does. The operator's policy for DaemonSets denies all but
// literal values: the kubelet would read any Secret of the namespace for others.
func proxyEnv(operator corev1.PodSpec) ([]corev1.EnvVar, error) {
	container := slices.IndexFunc(operator.Containers, func(c corev1.Container) bool { return c.Name == componentOperator })
	if container < 0 {
		return nil, nil
	}
	var env []corev1.EnvVar
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		n := slices.IndexFunc(operator.Containers[container].Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if n < 0 {
			continue
		}
		variable := operator.Containers[container].Env[n]
		if variable.ValueFrom != nil || strings.Contains(variable.Value, "$(") {
			return nil, fmt.Errorf("environment variable %s of Deployment %s refers to another object or variable, and so cannot be passed on to the node agents; "+
				"set its value itself there, or in spec.config.env of the Subscription", name, names.Operator)
		}
		env = append(env, corev1.EnvVar{Name: name, Value: variable.Value})
	}
	return env, nil
}
