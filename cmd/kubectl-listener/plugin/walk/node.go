package walk

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

type nodeState int

const (
	inOrder nodeState = iota // as far as it was seen
	// notResponding means that nothing is known about what is on the node.
	notResponding
	// withoutAgent means that volumes are neither mounted nor unmounted, and files do not change.
	withoutAgent
)

// node follows a node. If it does not respond, Kubernetes keeps its Pods, and the addresses stay published.
func (w *Walk) node(ctx context.Context, name string) nodeState {
	node := &corev1.Node{}
	f := check.Finding{Kind: "Node", Name: name}
	switch w.Read(ctx, f, node) {
	case check.Missing:
		// A volume may be pinned to it.
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNodesMissing, "does not exist").Symptom())
		return notResponding
	case check.Present:
		w.Add(nodeFinding(node))
	}
	if !claim.NodeReady(node) {
		return notResponding
	}
	return w.agent(ctx, name)
}

func nodeFinding(node *corev1.Node) check.Finding {
	f := check.Finding{Kind: "Node", Name: node.Name}
	ready := f.OK("is ready")
	for _, c := range node.Status.Conditions {
		switch said := exposure.Quote(c.Reason, c.Message); {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			message := strings.TrimSuffix("is not ready, so its addresses may not respond: "+said, ": ")
			return f.FailedBy(listenersv1alpha1.ReasonNodesNotReady, message).Since(c.LastTransitionTime)
		case c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue:
			ready = f.Warning("", "its network is not available: "+said)
		}
	}
	return ready
}

// agent follows the node agent of a node: a driver that is not registered with the kubelet cannot mount volumes.
func (w *Walk) agent(ctx context.Context, node string) nodeState {
	var csiNode storagev1.CSINode
	f := check.Finding{Kind: "Node", Name: node}
	switch found := w.Read(ctx, check.Finding{Kind: "CSINode", Name: node}, &csiNode); {
	case found == check.Forbidden:
	case !isRegistered(&csiNode):
		w.Add(f.FailedBy(reasons.NoNodeAgent, "no node agent is registered with its kubelet, so no Pod with a "+
			"listener volume starts or ends there"))
		return withoutAgent
	default:
		w.Add(f.OK("has a node agent"))
	}
	return inOrder
}

func isRegistered(node *storagev1.CSINode) bool {
	return slices.ContainsFunc(node.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == names.Driver })
}

// isLabelled reports whether a node has the label by which the scheduler finds the node of a pinned volume.
func isLabelled(node *corev1.Node) bool { return node.Labels[names.TopologyKey] == node.Name }

func unlabelled(f check.Finding) check.Finding {
	return f.FailedBy(reasons.NodeLabelMissing, "has a node agent, but not the label "+names.TopologyKey+"="+f.Name+
		", which the kubelet sets when the agent registers: another client has removed or changed it, and no Pod can "+
		"be scheduled whose volume is pinned to the node")
}
