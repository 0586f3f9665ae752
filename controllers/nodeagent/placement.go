package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
)

// placement says on which nodes agents run.
type placement struct {
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Affinity     *corev1.Affinity
}

// wantedPlacement returns where the configuration wants agents to run, completed by where the operator's own Pods may
// run if it says so. It does not by default: who keeps operators on some nodes, as is usual for those of the
// infrastructure, does not mean to take listener volumes away from all others. Without tolerations, agents run on every
// node whatever its taints: where there is no agent, no Pod with a listener volume starts.
func wantedPlacement(agent operatorv1alpha1.NodeAgentSpec, operator corev1.PodSpec) placement {
	p := placement{agent.NodeSelector, agent.Tolerations, agent.Affinity}
	if agent.Placement == operatorv1alpha1.PlacementLikeOperator {
		p = p.completed(operator)
	}
	linux := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(linux, p.NodeSelector)
	p.NodeSelector = linux
	if len(p.Tolerations) == 0 {
		p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return p
}

// completed takes what p leaves empty from the operator's Pods. How they get along with other Pods says nothing about
// nodes.
func (p placement) completed(operator corev1.PodSpec) placement {
	if len(p.NodeSelector) == 0 {
		p.NodeSelector = operator.NodeSelector
	}
	if len(p.Tolerations) == 0 {
		p.Tolerations = operator.Tolerations
	}
	if p.Affinity == nil && operator.Affinity != nil && operator.Affinity.NodeAffinity != nil {
		p.Affinity = &corev1.Affinity{NodeAffinity: operator.Affinity.NodeAffinity}
	}
	return p
}

// placementOf returns where the agents of a DaemonSet run.
func placementOf(agents *appsv1.DaemonSet) placement {
	pod := agents.Spec.Template.Spec
	return placement{pod.NodeSelector, pod.Tolerations, pod.Affinity}
}

// apply places a Pod.
func (p placement) apply(pod *corev1ac.PodSpecApplyConfiguration) error {
	pod.WithNodeSelector(p.NodeSelector)
	for i := range p.Tolerations {
		toleration, err := converted[corev1ac.TolerationApplyConfiguration](p.Tolerations[i])
		if err != nil {
			return err
		}
		pod.WithTolerations(toleration)
	}
	if p.Affinity == nil {
		return nil
	}
	affinity, err := converted[corev1ac.AffinityApplyConfiguration](p.Affinity)
	if err != nil {
		return err
	}
	pod.WithAffinity(affinity)
	return nil
}

// has tells whether an agent runs on a node. Taints of Kubernetes itself come and go, and DaemonSets tolerate them.
func (p placement) has(node *corev1.Node) (bool, error) {
	required := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: p.NodeSelector, Affinity: p.Affinity}})
	if matches, err := required.Match(node); err != nil || !matches {
		return false, err
	}
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, p.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, false)
	return !untolerated, nil
}

// keepAgents keeps the agents where they are if their wanted placement would take one from a node where Pods use
// volumes, and returns these: without an agent they could not even end.
func (r *Reconciler) keepAgents(ctx context.Context, o *observed) (users, error) {
	wanted, is := wantedPlacement(o.config.Spec.NodeAgent, o.settings.operator), placementOf(o.agents())
	if o.agents().Name == "" || equality.Semantic.DeepEqual(wanted, is) {
		return users{}, nil
	}
	found, err := r.users(ctx)
	if err != nil {
		return users{}, err
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return users{}, fmt.Errorf("listing nodes: %w", err)
	}
	left := map[string]bool{}
	for i := range nodes.Items {
		had, err := is.has(&nodes.Items[i])
		keeps, wantedErr := wanted.has(&nodes.Items[i])
		if err := errors.Join(err, wantedErr); err != nil {
			return users{}, fmt.Errorf("finding out whether an agent is wanted on node %s: %w", nodes.Items[i].Name, err)
		}
		left[nodes.Items[i].Name] = had && !keeps
	}
	stranded := found.on(left)
	if stranded.any() {
		o.settings.keep = &is
	}
	return stranded, nil
}
