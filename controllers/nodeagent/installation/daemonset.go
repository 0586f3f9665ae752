package installation

import (
	"cmp"
	"fmt"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// DefaultKubeletDir is the root directory of the kubelet if the configuration leaves it empty.
const DefaultKubeletDir = "/var/lib/kubelet"

// annotationRestartedAt is set by `kubectl rollout restart`.
var annotationRestartedAt = []string{"spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"}

// agentValues are what the manifest of the DaemonSet is completed with.
type agentValues struct {
	Settings
	// Agent has no empty fields but those about the placement.
	Agent     operatorv1alpha1.NodeAgentSpec
	Placement Placement
	Env       []corev1.EnvVar
}

// daemonSetValues returns the agentValues. Objects that were created before a field had its default do not have it.
func daemonSetValues(config *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	if s.ServiceAccount == "" {
		return nil, fmt.Errorf("ServiceAccount %s/%s, which is part of the operator's manifests, does not exist; install the manifests again", s.Namespace, names.NodeAgent)
	}
	proxy, err := proxyEnv(s.OperatorPod)
	if err != nil {
		return nil, err
	}
	agent := config.Spec.NodeAgent
	agent.KubeletDir = path.Clean(cmp.Or(agent.KubeletDir, DefaultKubeletDir))
	agent.LogLevel = cmp.Or(agent.LogLevel, "info")
	agent.PriorityClassName = cmp.Or(agent.PriorityClassName, "system-node-critical")
	agent.Resources = cmp.Or(agent.Resources, defaultResources())
	v := agentValues{Settings: s, Agent: agent, Placement: DesiredPlacement(agent, s.OperatorPod), Env: append(memoryEnv(agent.Resources), proxy...)}
	if s.Placement != nil {
		v.Placement = *s.Placement
	}
	return v, nil
}

// defaultResources suit a cluster of any size, because an agent only handles its own node. It usually needs less than a
// third of the memory, and nothing that a Pod does to its volume makes it need more.
func defaultResources() *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// memoryEnv makes Go collect garbage before the container reaches its memory limit. A fifth is left for what Go does
// not count.
func memoryEnv(resources *corev1.ResourceRequirements) []corev1.EnvVar {
	limit, ok := resources.Limits[corev1.ResourceMemory]
	if !ok {
		return nil
	}
	return []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/5*4, 10)}}
}
