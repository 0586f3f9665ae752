package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

// agents checks that each node that should have a node agent has one that is ready, and registered with the kubelet.
func (d *doctor) agents(ctx context.Context) {
	if d.daemonSet == nil {
		return
	}
	var nodes corev1.NodeList
	var pods corev1.PodList
	options := []client.ListOption{client.InNamespace(d.daemonSet.Namespace), client.MatchingLabels(components.NodeAgentLabels())}
	if d.List(ctx, &nodes) != check.Present || d.List(ctx, &pods, options...) != check.Present {
		d.Add(check.Finding{Kind: "Node"}.Unreadable())
		return
	}
	agents := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil {
			agents[pod.Spec.NodeName] = pod
		}
	}
	d.nodes(ctx, nodes.Items, agents)
}

// nodes checks the nodes that should have a node agent. agents are the Pods of those that exist, by node.
func (d *doctor) nodes(ctx context.Context, nodes []corev1.Node, agents map[string]*corev1.Pod) {
	placement, healthy := components.PlacementOf(d.daemonSet), 0
	for i := range nodes {
		node := &nodes[i]
		selected, err := placement.Selects(node)
		if err != nil {
			d.Err = cmp.Or(d.Err, fmt.Errorf("matching node %s: %w", node.Name, err))
		}
		if !selected {
			continue
		}
		f := d.agentFinding(ctx, node, agents[node.Name])
		if f.State == check.OK {
			healthy++
			continue
		}
		d.Add(f)
	}
	if healthy > 0 {
		d.Add(check.Finding{Kind: "Nodes"}.OK("%d have a node agent that is ready", healthy))
	}
}

// agentFinding returns whether the agent of a node works. agent is nil if there is none.
func (d *doctor) agentFinding(ctx context.Context, node *corev1.Node, agent *corev1.Pod) check.Finding {
	f := check.Finding{Kind: "Node", Name: node.Name}
	if agent == nil {
		return f.Failed("NoNodeAgent", "has no node agent, so no Pod with a listener volume starts there",
			fmt.Sprintf("See the events: kubectl describe --namespace %s daemonset/%s", d.daemonSet.Namespace, d.daemonSet.Name))
	}
	if ready := check.PodCondition(agent, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionTrue {
		return f.Failed("NoNodeAgent", fmt.Sprintf("the node agent %s is not ready, so no Pod with a listener volume starts there", agent.Name),
			fmt.Sprintf("See why: kubectl describe --namespace %s pod/%s", agent.Namespace, agent.Name))
	}
	var csiNode storagev1.CSINode
	found := d.Get(ctx, types.NamespacedName{Name: node.Name}, &csiNode)
	registered := slices.ContainsFunc(csiNode.Spec.Drivers, func(driver storagev1.CSINodeDriver) bool { return driver.Name == names.Driver })
	if found != check.Forbidden && !registered {
		return f.Failed("NoNodeAgent", fmt.Sprintf("the node agent %s is ready, and not registered with the kubelet", agent.Name),
			"Check spec.nodeAgent.kubeletDir of ListenerOperator cluster: it has to be the kubelet's --root-dir.")
	}
	return f.OK("has a node agent")
}
