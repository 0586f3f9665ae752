package installation

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
)

// Placement selects the nodes that agents run on.
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

// requirements exclude nodes where the image does not run, and virtual ones, without a kubelet that mounts volumes.
var requirements = []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64", "ppc64le", "s390x"}},
	{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}},
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
	for _, r := range slices.Concat(requirements, []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}) {
		value := node.Labels[r.Key]
		if slices.Contains(r.Values, value) != (r.Operator == corev1.NodeSelectorOpIn) {
			return r.Key + "=" + value
		}
	}
	return ""
}

// PlacementOf returns the placement of the agents of a DaemonSet.
func PlacementOf(agents *appsv1.DaemonSet) Placement {
	pod := agents.Spec.Template.Spec
	return Placement{pod.NodeSelector, pod.Tolerations, pod.Affinity}
}

// Selects reports whether agents run on a node. DaemonSets tolerate the taints of Kubernetes itself, which it ignores.
func (p Placement) Selects(node *corev1.Node) (bool, error) {
	required := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: p.NodeSelector, Affinity: p.Affinity}})
	if matches, err := required.Match(node); err != nil || !matches {
		return false, err
	}
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, p.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, false)
	return !untolerated, nil
}
