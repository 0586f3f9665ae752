package installation

import (
	"cmp"
	"fmt"
	"path"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// DefaultKubeletDir is the root directory of the kubelet if the configuration leaves it empty.
const DefaultKubeletDir = "/var/lib/kubelet"

// Defaults of fields that the configuration leaves empty: objects that were created before a field had its default do
// not have it.
const (
	defaultLogLevel      = "info"
	defaultPriorityClass = "system-node-critical"
)

// annotationRestartedAt is set by `kubectl rollout restart`.
var annotationRestartedAt = []string{"spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"}

// annotationServiceAccount on the agents' Pods is the uid of their ServiceAccount.
const annotationServiceAccount = "listener-operator.dev/service-account"

// The node agent serves /healthz, /readyz and /metrics at this port, which no port of the operator's Pods is called.
const (
	agentPort     = 8081
	agentPortName = "agent"
)

// daemonSet runs the node agent on each node. It runs as root, to write into the kubelet's directories, but without
// nearly all of root's capabilities: see privileges.
func daemonSet(config *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	if s.ServiceAccount == "" {
		return nil, fmt.Errorf("ServiceAccount %s/%s, which is part of the operator's manifests, does not exist; install the manifests again", s.Namespace, names.NodeAgent)
	}
	pod, err := podSpec(config.Spec.NodeAgent, s)
	if err != nil {
		return nil, err
	}
	return appsv1ac.DaemonSet(names.NodeAgent, s.Namespace).WithSpec(appsv1ac.DaemonSetSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(NodeAgentLabels())).
		WithUpdateStrategy(appsv1ac.DaemonSetUpdateStrategy().
			WithType(appsv1.RollingUpdateDaemonSetStrategyType).
			WithRollingUpdate(appsv1ac.RollingUpdateDaemonSet().WithMaxUnavailable(intstr.FromString("10%")))).
		WithTemplate(corev1ac.PodTemplateSpec().
			WithLabels(NodeAgentLabels()).
			WithAnnotations(map[string]string{
				"kubectl.kubernetes.io/default-container": componentAgent,
				// On OpenShift, use the operator's own security context constraints, whichever others would match.
				"openshift.io/required-scc": names.NodeAgent,
				// On OpenShift with workload partitioning, run on the CPUs that are reserved for the platform.
				"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
				// Stay while a node is drained: the agent unpublishes the volumes of the Pods that are evicted.
				"cluster-autoscaler.kubernetes.io/enable-ds-eviction": "false",
				// A Pod's token is only valid as long as its ServiceAccount exists. Another one of the same name, as
				// after a reinstallation, needs new Pods.
				annotationServiceAccount: string(s.ServiceAccount),
			}).
			WithSpec(pod))), nil
}

func podSpec(agent operatorv1alpha1.NodeAgentSpec, s Settings) (*corev1ac.PodSpecApplyConfiguration, error) {
	required := resourcesOf(agent)
	resources, err := converted[corev1ac.ResourceRequirementsApplyConfiguration](required)
	if err != nil {
		return nil, err
	}
	directories := hostDirectories(cmp.Or(agent.KubeletDir, DefaultKubeletDir))
	proxy, err := proxyEnv(s.OperatorPod)
	if err != nil {
		return nil, err
	}
	c := container(agent, s, directories).WithResources(resources).WithEnv(memoryEnv(required)...).WithEnv(proxy...)
	pod := corev1ac.PodSpec().
		WithImagePullSecrets(pullSecrets(s.OperatorPod)...).
		WithServiceAccountName(names.NodeAgent).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithPriorityClassName(cmp.Or(agent.PriorityClassName, defaultPriorityClass)).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault)).
			// Ignored on nodes without SELinux.
			WithSELinuxOptions(corev1ac.SELinuxOptions().WithType(seLinuxType).WithLevel(seLinuxLevel))).
		WithContainers(c)
	for _, d := range directories {
		pod.WithVolumes(corev1ac.Volume().WithName(d.name).
			WithHostPath(corev1ac.HostPathVolumeSource().WithPath(d.path).WithType(d.kind)))
	}
	placement := DesiredPlacement(agent, s.OperatorPod)
	if s.Placement != nil {
		placement = *s.Placement
	}
	return pod, placement.apply(pod)
}

// hostDirectory is a directory of the node. The agent mounts it at the same path, because the kubelet's requests
// contain paths of the node.
type hostDirectory struct {
	name string
	path string
	kind corev1.HostPathType
}

func hostDirectories(kubelet string) []hostDirectory {
	return []hostDirectory{
		{"plugin", path.Join(kubelet, "plugins", names.Driver), corev1.HostPathDirectoryOrCreate},
		{"registry", path.Join(kubelet, "plugins_registry"), corev1.HostPathDirectory},
		{"pods", path.Join(kubelet, "pods"), corev1.HostPathDirectory},
	}
}

func container(agent operatorv1alpha1.NodeAgentSpec, s Settings, directories []hostDirectory) *corev1ac.ContainerApplyConfiguration {
	c := corev1ac.Container().
		WithName(componentAgent).
		WithImage(s.Image).
		WithImagePullPolicy(corev1.PullIfNotPresent).
		WithCommand("/node-agent").
		WithArgs("--kubelet-dir="+cmp.Or(agent.KubeletDir, DefaultKubeletDir), "--log-level="+cmp.Or(agent.LogLevel, defaultLogLevel)).
		WithEnv(corev1ac.EnvVar().WithName("NODE_NAME").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("spec.nodeName")))).
		WithPorts(corev1ac.ContainerPort().WithName(agentPortName).WithContainerPort(agentPort).WithProtocol(corev1.ProtocolTCP)).
		WithLivenessProbe(probe("/healthz").WithInitialDelaySeconds(10).WithPeriodSeconds(20).WithTimeoutSeconds(5)).
		WithReadinessProbe(probe("/readyz").WithPeriodSeconds(2)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithSecurityContext(corev1ac.SecurityContext().
			WithRunAsUser(0).
			WithRunAsGroup(0).
			WithAllowPrivilegeEscalation(false).
			WithPrivileged(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(corev1ac.Capabilities().
				WithDrop("ALL").
				WithAdd(addedCapabilities()...)))
	for _, d := range directories {
		c.WithVolumeMounts(corev1ac.VolumeMount().WithName(d.name).WithMountPath(d.path))
	}
	return c
}

func probe(path string) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(agentPortName)))
}

// resourcesOf returns the configured resources, or some that suit a cluster of any size, because an agent only handles
// its own node. It usually needs less than a third of the memory, and nothing that a Pod does to its volume makes it
// need more.
func resourcesOf(agent operatorv1alpha1.NodeAgentSpec) corev1.ResourceRequirements {
	if agent.Resources != nil {
		return *agent.Resources
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// memoryEnv makes Go collect garbage before the container reaches its memory limit. A fifth is left for what Go does
// not count.
func memoryEnv(resources corev1.ResourceRequirements) []*corev1ac.EnvVarApplyConfiguration {
	limit, ok := resources.Limits[corev1.ResourceMemory]
	if !ok {
		return nil
	}
	return []*corev1ac.EnvVarApplyConfiguration{corev1ac.EnvVar().WithName("GOMEMLIMIT").WithValue(strconv.FormatInt(limit.Value()/5*4, 10))}
}
