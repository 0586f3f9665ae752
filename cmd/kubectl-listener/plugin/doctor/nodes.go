package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/names"
)

// agents checks that each node that should have a node agent has one that is ready, and registered with the kubelet,
// and that Pods with listener volumes are on such nodes only.
func (d *doctor) agents(ctx context.Context) {
	if d.daemonSet == nil {
		return
	}
	var pods corev1.PodList
	options := []client.ListOption{client.InNamespace(d.daemonSet.Namespace), client.MatchingLabels(components.NodeAgentLabels())}
	if !d.read("Node") || d.List(ctx, &pods, options...) != check.Present {
		d.Add(check.Finding{Kind: "Node"}.Unreadable())
		return
	}
	agents := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil {
			agents[nodeOf(pod)] = pod
		}
	}
	d.registered = d.nodesWithDriver()
	mounts := d.mountsByNode()
	placement := components.PlacementOf(d.daemonSet)
	var findings []check.Finding
	others := map[string][]string{} // by the field that excludes them
	count := 0
	for i := range d.nodes.Items {
		node := &d.nodes.Items[i]
		f := d.nodeFinding(ctx, node, agents[node.Name], mounts[node.Name], placement)
		switch {
		case f.State != "":
			count++
			findings = append(findings, f)
		case node.Labels[corev1.LabelOSStable] != "windows":
			count++
			field := excludedBy(node, placement)
			others[field] = append(others[field], node.Name)
		}
	}
	text := []string{fmt.Sprintf("%%d of %d have a node agent that is ready", count)}
	for _, field := range slices.Sorted(maps.Keys(others)) {
		text = append(text, fmt.Sprintf("spec.nodeAgent.%s of ListenerOperator %s excludes %s", field, operatorv1alpha1.ListenerOperatorName, columns.Names(others[field])))
	}
	d.AddAll(findings, "Nodes", strings.Join(text, "; "))
}

// nodeFinding returns whether listener volumes work on a node, or an empty finding if the placement of node agents
// excludes it and no Pod needs one. agent and m are nil if there is no agent, and no Pod with a listener volume.
func (d *doctor) nodeFinding(ctx context.Context, node *corev1.Node, agent *corev1.Pod, m *mounts, placement components.Placement) check.Finding {
	selected, err := placement.Selects(node)
	if err != nil {
		d.Err = cmp.Or(d.Err, fmt.Errorf("matching node %s: %w", node.Name, err))
	}
	switch {
	case (selected || m != nil) && (d.notReadyForLong(node) || agent != nil && !claim.PodReady(agent) && !claim.NodeReady(node)):
		return notReadyFinding(node, m)
	case selected:
		return d.agentFinding(ctx, node, agent)
	case m != nil && d.inUse(ctx, node, m):
		return excludedFinding(node, placement)
	default:
		return check.Finding{}
	}
}

// nodeOf returns the node of a Pod of a DaemonSet, which is that of its node affinity while it waits for the scheduler.
func nodeOf(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity
	if pod.Spec.NodeName != "" || affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// mounts are what the Pods on a node mount.
type mounts struct {
	listeners sets.Set[types.NamespacedName]
	// podListeners are the names of the PodListeners of these Pods.
	podListeners sets.Set[string]
}

// mountsByNode returns what is mounted on each node on which Pods have listener volumes.
func (d *doctor) mountsByNode() map[string]*mounts {
	found := map[string]*mounts{}
	for i := range d.podListeners.Items {
		object := &d.podListeners.Items[i]
		m := found[object.Spec.NodeName]
		if m == nil {
			m = &mounts{sets.New[types.NamespacedName](), sets.New[string]()}
			found[object.Spec.NodeName] = m
		}
		m.podListeners.Insert(object.Name)
		for _, entry := range object.Spec.Listeners {
			m.listeners.Insert(types.NamespacedName{Namespace: object.Namespace, Name: entry.ListenerName})
		}
	}
	return found
}

// notReadyForLong reports whether a node is not ready, and that is not the case since a moment ago only.
func (d *doctor) notReadyForLong(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !d.Young(c.LastTransitionTime.Time)
	})
}

// notReadyFinding returns that a node is not ready. m is nil if no Pod there has a listener volume.
func notReadyFinding(node *corev1.Node, m *mounts) check.Finding {
	f := walk.NodeFinding(node)
	if m != nil {
		f.Message += fmt.Sprintf("; Listeners that Pods there mount: %d", len(m.listeners))
	}
	return f
}

// inUse reports whether one of the Pods with listener volumes on a node has not finished. PodListeners outlast that.
func (d *doctor) inUse(ctx context.Context, node *corev1.Node, m *mounts) bool {
	var pods corev1.PodList
	d.FollowAll(ctx, check.Finding{Kind: "Pod"}, &pods, client.MatchingFields{"spec.nodeName": node.Name})
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return m.podListeners.Has(listenersv1alpha1.PodListenersName(pod.UID)) && !claim.PodFinished(&pod)
	})
}

// excludedFinding returns that Pods with listener volumes are on a node that the placement of agents excludes.
func excludedFinding(node *corev1.Node, placement components.Placement) check.Finding {
	return check.Finding{Kind: "Node", Name: node.Name}.Failed(reasons.NoNodeAgent,
		fmt.Sprintf("has no node agent, because spec.nodeAgent.%s of ListenerOperator %s excludes it, and Pods with listener volumes are bound to it",
			excludedBy(node, placement), operatorv1alpha1.ListenerOperatorName),
		"Change the field so that it includes the node, or let these Pods run elsewhere: docs/configuration.md")
}

// excludedBy returns the field of a placement that excludes a node.
func excludedBy(node *corev1.Node, placement components.Placement) string {
	everywhere := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, field := range []string{"nodeSelector", "affinity"} {
		only := components.Placement{NodeSelector: placement.NodeSelector, Tolerations: everywhere}
		if field == "affinity" {
			only = components.Placement{Affinity: placement.Affinity, Tolerations: everywhere}
		}
		if selected, err := only.Selects(node); err == nil && !selected {
			return field
		}
	}
	return "tolerations"
}

// nodesWithDriver returns the nodes whose kubelet knows the node agent, or nil if the user may not read that.
func (d *doctor) nodesWithDriver() sets.Set[string] {
	if !d.read("CSINode") {
		return nil
	}
	found := sets.New[string]()
	for i := range d.csiNodes.Items {
		if slices.ContainsFunc(d.csiNodes.Items[i].Spec.Drivers, func(driver storagev1.CSINodeDriver) bool { return driver.Name == names.Driver }) {
			found.Insert(d.csiNodes.Items[i].Name)
		}
	}
	return found
}

// agentFinding returns whether the agent of a node works. agent is nil if there is none.
func (d *doctor) agentFinding(ctx context.Context, node *corev1.Node, agent *corev1.Pod) check.Finding {
	f := check.Finding{Kind: "Node", Name: node.Name}
	if agent == nil {
		return f.Failed(reasons.NoNodeAgent, "has no node agent, so no Pod with a listener volume starts there",
			fmt.Sprintf("See the events: kubectl describe --namespace %s daemonset/%s", d.daemonSet.Namespace, d.daemonSet.Name))
	}
	if !claim.PodReady(agent) {
		return f.Failed(reasons.NoNodeAgent, fmt.Sprintf("the node agent %s %s, so no Pod with a listener volume starts there", agent.Name, d.notReady(ctx, agent)),
			fmt.Sprintf("See why: kubectl describe --namespace %s pod/%s", agent.Namespace, agent.Name))
	}
	if d.registered != nil && !d.registered.Has(node.Name) {
		return f.Failed(reasons.NoNodeAgent, fmt.Sprintf("the node agent %s is ready, and not registered with the kubelet", agent.Name),
			"Check spec.nodeAgent.kubeletDir of ListenerOperator cluster: it has to be the kubelet's --root-dir.")
	}
	return f.OK("has a node agent")
}

// notReady returns what Kubernetes says about a node agent that is not ready.
func (d *doctor) notReady(ctx context.Context, agent *corev1.Pod) string {
	if scheduled := check.PodCondition(agent, corev1.PodScheduled); agent.Spec.NodeName == "" && scheduled != nil && scheduled.Message != "" {
		return fmt.Sprintf("cannot be scheduled (%s)", strings.TrimSuffix(scheduled.Message, "."))
	}
	for _, status := range slices.Concat(agent.Status.InitContainerStatuses, agent.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting == nil {
			continue
		}
		said := waiting.Message
		if said == "" { // the kubelet prepares the container, which a volume may delay
			if event := d.LastEvent(ctx, agent, func(e *corev1.Event) bool { return e.Type == corev1.EventTypeWarning }); event != nil {
				said = event.Message
			}
		}
		return fmt.Sprintf("is not ready (container %s: %s)", status.Name, strings.Join(slices.DeleteFunc([]string{waiting.Reason, said},
			func(s string) bool { return s == "" }), ": "))
	}
	return "is not ready"
}
