package walk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
)

type agents struct {
	daemonSet *appsv1.DaemonSet
	placement components.Placement
	byNode    map[string]*corev1.Pod
	// registered are the nodes whose kubelet knows the node agent, or nil if the user may not read that.
	registered sets.Set[string]
	published  map[string][]*listenersv1alpha1.PodListeners
}

// Nodes follows all nodes: each selected one needs a node agent, and the others should have no Pod with a volume.
func (w *Walk) Nodes(ctx context.Context, i *Installation) {
	if i.daemonSet == nil {
		return
	}
	var nodes corev1.NodeList
	a := w.observeAgents(ctx, i.daemonSet)
	if w.List(ctx, &nodes) != check.Present || a == nil {
		w.Add(check.Finding{Kind: "Node"}.Unreadable())
		return
	}
	var findings []check.Finding
	others := map[string][]string{} // by what excludes them
	suitable := 0
	for node := range check.Each(nodes.Items) {
		if f := w.agentOf(ctx, a, node); f.State != "" {
			findings = append(findings, f)
		} else {
			by := excludedBy(node, a.placement)
			others[by] = append(others[by], node.Name)
		}
		if components.Unsuitable(node) == "" {
			suitable++
		}
	}
	text := []string{fmt.Sprintf("%%d of %d have a node agent that is ready", suitable)}
	for _, by := range slices.Sorted(maps.Keys(others)) {
		text = append(text, fmt.Sprintf("%s excludes %s", by, columns.Names(others[by])))
	}
	w.AddAll(findings, "Nodes", strings.Join(text, "; "))
}

// observeAgents reads what is known about node agents. It is nil if the user may not read their Pods.
func (w *Walk) observeAgents(ctx context.Context, daemonSet *appsv1.DaemonSet) *agents {
	var pods corev1.PodList
	if w.List(ctx, &pods, client.InNamespace(daemonSet.Namespace),
		client.MatchingLabels(components.NodeAgentLabels())) != check.Present {
		return nil
	}
	a := &agents{daemonSet: daemonSet, placement: components.PlacementOf(daemonSet)}
	a.byNode, a.published = map[string]*corev1.Pod{}, map[string][]*listenersv1alpha1.PodListeners{}
	for pod := range check.Each(pods.Items) {
		if pod.DeletionTimestamp == nil {
			a.byNode[nodeOf(pod)] = pod
		}
	}
	var csiNodes storagev1.CSINodeList
	if w.All(ctx, &csiNodes) {
		a.registered = sets.New[string]()
	}
	for node := range check.Each(csiNodes.Items) {
		if isRegistered(node) {
			a.registered.Insert(node.Name)
		}
	}
	var published listenersv1alpha1.PodListenersList
	w.List(ctx, &published)
	for object := range check.Each(published.Items) {
		a.published[object.Spec.NodeName] = append(a.published[object.Spec.NodeName], object)
	}
	return a
}

// nodeOf returns the node of a Pod of a DaemonSet. While the Pod waits for the scheduler, its node affinity names it.
func nodeOf(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity
	if pod.Spec.NodeName != "" || affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
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

// agentOf returns whether listener volumes work on a node, or an empty finding if it needs no agent.
func (w *Walk) agentOf(ctx context.Context, a *agents, node *corev1.Node) check.Finding {
	agent, published := a.byNode[node.Name], a.published[node.Name]
	selected, err := a.placement.Selects(node)
	if err != nil {
		w.Err = cmp.Or(w.Err, fmt.Errorf("matching node %s: %w", node.Name, err))
	}
	f := check.Finding{Kind: "Node", Name: node.Name}
	switch {
	case (selected || len(published) > 0) && w.isDown(node, agent):
		f = nodeFinding(node)
		mounted := sets.New[types.NamespacedName]()
		for _, object := range published {
			for _, entry := range object.Spec.Listeners {
				mounted.Insert(types.NamespacedName{Namespace: object.Namespace, Name: entry.ListenerName})
			}
		}
		if len(mounted) > 0 {
			f.Message += fmt.Sprintf("; Listeners that Pods there mount: %d", len(mounted))
		}
		return f
	case selected:
		return w.agentFinding(ctx, f, a, agent, node)
	case len(published) > 0 && w.inUse(ctx, node, published):
		return f.Failed(reasons.NoNodeAgent, fmt.Sprintf("has no node agent, because %s excludes it, and Pods with "+
			"listener volumes are bound to it", excludedBy(node, a.placement)),
			"Let these Pods run elsewhere, or, if a field excludes the node, change the field: "+
				"docs/configuration.md#nodes-without-an-agent")
	}
	return check.Finding{}
}

// isDown reports whether a node has not been ready for long, or is not, like its agent, which may be nil.
func (w *Walk) isDown(node *corev1.Node, agent *corev1.Pod) bool {
	return agent != nil && !claim.PodReady(agent) && !claim.NodeReady(node) ||
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !w.Young(c.LastTransitionTime.Time)
		})
}

// agentFinding returns whether the agent of a node works. It is nil if there is none.
func (w *Walk) agentFinding(ctx context.Context, f check.Finding, a *agents, agent *corev1.Pod,
	node *corev1.Node) check.Finding {
	again := reasons.Of(reasons.NodeLabelMissing)
	switch {
	case agent == nil:
		return f.Failed(reasons.NoNodeAgent, "has no node agent, so no Pod with a listener volume starts there",
			"See the events: "+describe("daemonset", a.daemonSet))
	case !claim.PodReady(agent):
		why := w.podWithEvents(ctx, agent)
		return f.Failed(reasons.NoNodeAgent, fmt.Sprintf("the node agent %s is not ready, so no Pod with a listener "+
			"volume starts there: %s", agent.Name, why.Text()), why.Remedy)
	case a.registered != nil && !a.registered.Has(f.Name):
		return f.Failed(reasons.NoNodeAgent, fmt.Sprintf("the node agent %s is ready, and not registered with the "+
			"kubelet", agent.Name),
			"Check spec.nodeAgent.kubeletDir of ListenerOperator cluster: it has to be the kubelet's --root-dir. If "+
				"it is, let the agent register again: "+again.For("", f.Name))
	case !isLabelled(node):
		return unlabelled(f)
	}
	return f.OK("has a node agent")
}

// inUse reports whether one of the Pods with listener volumes on a node has not finished. PodListeners outlast that.
func (w *Walk) inUse(ctx context.Context, node *corev1.Node, published []*listenersv1alpha1.PodListeners) bool {
	var pods corev1.PodList
	w.ReadAll(ctx, check.Finding{Kind: "Pod"}, &pods, client.MatchingFields{"spec.nodeName": node.Name})
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		of := func(o *listenersv1alpha1.PodListeners) bool {
			return o.Name == listenersv1alpha1.PodListenersName(pod.UID)
		}
		return !claim.PodFinished(&pod) && slices.ContainsFunc(published, of)
	})
}

func excludedBy(node *corev1.Node, placement components.Placement) string {
	if label := components.Unsuitable(node); label != "" {
		return "the label " + label
	}
	field := "tolerations"
	placement.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if selected, _ := placement.Selects(node); !selected {
		field, placement.Affinity = "affinity", nil
	}
	if selected, _ := placement.Selects(node); !selected {
		field = "nodeSelector"
	}
	return fmt.Sprintf("spec.nodeAgent.%s of ListenerOperator %s", field, operatorv1alpha1.ListenerOperatorName)
}
