package installation

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// DefaultKubeletDir is the root directory of the kubelet if the configuration leaves it empty.
const DefaultKubeletDir = "/var/lib/kubelet"

// daemonSetValues returns the values in the manifest of the DaemonSet. Old configurations lack defaults of new fields.
func daemonSetValues(config *operatorv1alpha1.ListenerOperator, s Settings) (map[string]any, error) {
	if s.ServiceAccount == "" {
		return nil, fmt.Errorf("ServiceAccount %s/%s, which is part of the operator's manifests, does not exist; "+
			"install the manifests again", s.Namespace, names.NodeAgent)
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
	env := []corev1.EnvVar{{Name: "NODE_NAME",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1",
			FieldPath: "spec.nodeName"}}}}
	if limit, ok := resources.Limits[corev1.ResourceMemory]; ok {
		// Go collects garbage before the container reaches its limit. A fifth is left for what Go does not count.
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/5*4, 10)})
	}
	return map[string]any{
		"maxUnavailable": maxUnavailable(s), "serviceAccount": s.ServiceAccount, "image": s.Image,
		"pullSecrets":   s.OperatorPod.ImagePullSecrets,
		"priorityClass": cmp.Or(agent.PriorityClassName, "system-node-critical"),
		"nodeSelector":  placement.NodeSelector, "tolerations": placement.Tolerations, "affinity": placement.Affinity,
		"args":      []string{"--kubelet-dir=" + kubelet, "--log-level=" + cmp.Or(agent.LogLevel, "info")},
		"env":       append(env, proxy...),
		"resources": resources,
		"plugin":    path.Join(kubelet, "plugins", names.Driver), "registry": path.Join(kubelet, "plugins_registry"),
		"pods": path.Join(kubelet, "pods"),
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
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"),
			corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// componentOperator is the name of the container in the operator's Pods.
const componentOperator = "operator"

// proxyEnv returns the environment variables that the agents inherit from the operator's own Pod, to which OLM adds
// those of a Subscription: agents reach the API server as it does. The operator's policy for DaemonSets denies all but
// literal values: the kubelet would read any Secret of the namespace for others.
func proxyEnv(operator corev1.PodSpec) ([]corev1.EnvVar, error) {
	container := slices.IndexFunc(operator.Containers,
		func(c corev1.Container) bool { return c.Name == componentOperator })
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
			return nil, fmt.Errorf("environment variable %s of Deployment %s refers to another object or variable, "+
				"and so cannot be passed on to the node agents; set its value itself there, or in spec.config.env of "+
				"the Subscription", name, names.Operator)
		}
		env = append(env, corev1.EnvVar{Name: name, Value: variable.Value})
	}
	return env, nil
}

type Placement struct {
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Affinity     *corev1.Affinity
}

// DesiredPlacement returns the placement of the configuration. If the configuration says so, fields that are empty are
// those of the operator's own Pods. By default they are not: to run operators on some nodes only, commonly
// infrastructure nodes, does not mean that the other nodes need no listener volumes. Without tolerations, agents
// tolerate every taint: on a node without an agent, no Pod with a listener volume starts.
func DesiredPlacement(agent operatorv1alpha1.NodeAgentSpec, operator corev1.PodSpec) Placement {
	p := Placement{agent.NodeSelector, agent.Tolerations, agent.Affinity}
	if agent.Placement == operatorv1alpha1.PlacementLikeOperator {
		if len(p.NodeSelector) == 0 {
			p.NodeSelector = operator.NodeSelector
		}
		if len(p.Tolerations) == 0 {
			p.Tolerations = operator.Tolerations
		}
		if p.Affinity == nil && operator.Affinity != nil && operator.Affinity.NodeAffinity != nil {
			// Affinity to other Pods does not select nodes for agents.
			p.Affinity = &corev1.Affinity{NodeAffinity: operator.Affinity.NodeAffinity}
		}
	}
	p.Affinity = suitable(p.Affinity)
	linux := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(linux, p.NodeSelector)
	p.NodeSelector = linux
	if len(p.Tolerations) == 0 {
		p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return p
}

// requirements exclude nodes where the image does not run, and virtual ones, without a kubelet that mounts volumes:
// those of Virtual Kubelet, KWOK, Admiralty, Liqo and Fargate.
var requirements = []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn,
		Values: []string{"amd64", "arm64", "ppc64le", "s390x"}},
	{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet", "kwok"}},
	{Key: "virtual-kubelet.io/provider", Operator: corev1.NodeSelectorOpDoesNotExist},
	{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}},
	{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fargate"}},
}

func suitable(affinity *corev1.Affinity) *corev1.Affinity {
	affinity = cmp.Or(affinity, &corev1.Affinity{}).DeepCopy()
	affinity.NodeAffinity = cmp.Or(affinity.NodeAffinity, &corev1.NodeAffinity{})
	required := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}}}
		return affinity
	}
	terms := (*required).NodeSelectorTerms
	for i := range terms {
		if len(terms[i].MatchExpressions)+len(terms[i].MatchFields) > 0 { // an empty term matches nothing
			terms[i].MatchExpressions = append(terms[i].MatchExpressions, requirements...)
		}
	}
	return affinity
}

// Unsuitable returns the label that says that no agent can run on a node, or "".
func Unsuitable(node *corev1.Node) string {
	for _, r := range slices.Concat(requirements,
		[]corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn,
			Values: []string{"linux"}}}) {
		value, exists := node.Labels[r.Key]
		if exists && r.Operator == corev1.NodeSelectorOpDoesNotExist ||
			slices.Contains(r.Values, value) != (r.Operator == corev1.NodeSelectorOpIn) {
			return r.Key + "=" + value
		}
	}
	return ""
}

func PlacementOf(agents *appsv1.DaemonSet) Placement {
	pod := agents.Spec.Template.Spec
	return Placement{pod.NodeSelector, pod.Tolerations, pod.Affinity}
}

// Selects reports whether agents run on a node. DaemonSets tolerate the taints of Kubernetes itself, which it ignores.
func (p Placement) Selects(node *corev1.Node) (bool, error) {
	required := nodeaffinity.GetRequiredNodeAffinity(
		&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: p.NodeSelector, Affinity: p.Affinity}})
	if matches, err := required.Match(node); err != nil || !matches {
		return false, err
	}
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, p.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
		}, false)
	return !untolerated, nil
}
