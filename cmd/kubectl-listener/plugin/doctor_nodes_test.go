package plugin_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// nodeFaults are faults of a node and its agent.
var nodeFaults = map[string]fault{
	"a Pod cannot end, because its node has no agent any more": {
		breakIt: func(t *testing.T, i *installed) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "former", Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
			i.create(t, node)
			csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "former"}}
			i.create(t, csiNode)
			pod := i.newPod("ending", i.claim.Name)
			pod.Spec.NodeName = node.Name
			i.create(t, pod)
			check.Must(t, i.Delete(t.Context(), pod))
			pod.Status.Phase, pod.ResourceVersion = corev1.PodSucceeded, ""
			i.updateStatus(t, pod)
		},
		kind: "Node", name: "former", text: "so no Pod with a listener volume starts or ends there",
	},
	"a node has lost its label": {
		breakIt: func(t *testing.T, i *installed) {
			i.read(t, i.node)
			restoring(t, i.node, i.update)
			delete(i.node.Labels, names.TopologyKey)
			i.update(t, i.node)
			i.pending(t, i.newPod("stuck", i.claim.Name), pinned)
		},
		kind: "Node", name: "node-shop", text: "has a node agent, but not the label listeners.stackable.tech/hostname=node-shop",
	},
	"a node has no agent": {
		breakIt: func(t *testing.T, i *installed) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: labelsOf("bare")}}
			i.create(t, node)
		},
		kind: "Node", name: "bare", text: "has no node agent",
	},
	"an agent is not ready": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.agent, i.updateStatus)
			i.agent.Status.Conditions[0].Status = corev1.ConditionFalse
			i.updateStatus(t, i.agent)
		},
		kind: "Node", name: "node-shop", text: "is not ready",
	},
	"a node has just stopped responding, with its agent": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.agent, i.updateStatus)
			i.agent.Status.Conditions[0].Status = corev1.ConditionFalse
			i.updateStatus(t, i.agent)
			i.notResponding(t, metav1.NewTime(time.Now().Add(time.Hour))) // so that it is a moment ago for as long as the test takes
		},
		kind: "Node", name: "node-shop", text: "is not ready, so its addresses may not respond",
	},
	"an agent is not registered": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.csiNode, i.update)
			i.csiNode.Spec.Drivers = nil
			i.update(t, i.csiNode)
		},
		kind: "Node", name: "node-shop", text: "not registered with the kubelet",
	},
	"an agent cannot be scheduled": {
		breakIt: func(t *testing.T, i *installed) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: labelsOf("full")}}
			i.create(t, node)
			agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "listener-node-agent-full", Labels: i.agent.Labels}, Spec: *i.agent.Spec.DeepCopy()}
			agent.Spec.NodeName = ""
			agent.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}},
				}}},
			}}}
			i.pending(t, agent, "0/2 nodes are available: 1 Insufficient cpu.")
		},
		kind: "Node", name: "full", text: "the node agent listener-node-agent-full is not ready, so no Pod with a listener volume starts there: Unschedulable: 0/2 nodes are available: 1 Insufficient cpu.",
	},
	"the image of an agent cannot be pulled": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.agent, i.updateStatus)
			i.agent.Status.Conditions[0].Status = corev1.ConditionFalse
			i.agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "node-agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
			}}
			i.updateStatus(t, i.agent)
		},
		kind: "Node", name: "node-shop", text: "ErrImagePull: container node-agent does not run on node node-shop: not found",
	},
	"the agent of a node waits for its volumes": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.agent, i.updateStatus)
			i.agent.Status.Phase, i.agent.Status.Conditions[0].Status = corev1.PodPending, corev1.ConditionFalse
			i.agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "node-agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
			}}
			i.updateStatus(t, i.agent)
			i.kubernetesSays(t, i.agent, "FailedMount", "kubelet", "hostPath type check failed: /elsewhere is not a directory")
		},
		kind: "Node", name: "node-shop", text: "is Pending on node node-shop: hostPath type check failed: /elsewhere is not a directory",
	},
	"a Pod is on a node without an agent": {
		breakIt: func(t *testing.T, i *installed) {
			i.read(t, i.node)
			restoring(t, i.node, i.update)
			delete(i.node.Labels, pool)
			i.update(t, i.node)
		},
		kind: "Node", name: "node-shop", text: "has no node agent, because spec.nodeAgent.nodeSelector of ListenerOperator cluster excludes it",
	},
	"a node is not ready": {
		breakIt: func(t *testing.T, i *installed) {
			i.notResponding(t, longAgo())
			// A Pod that waits for the node is a consequence.
			i.pending(t, i.newPod("stuck", i.claim.Name), "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) had untolerated taint(s).")
		},
		kind: "Node", name: "node-shop", text: "is not ready, so its addresses may not respond; Listeners that Pods there mount: 1",
	},
}

// notResponding has the kubelet of the node not respond since a time until the test ends.
func (i *installed) notResponding(t *testing.T, since metav1.Time) {
	t.Helper()
	i.read(t, i.node)
	restoring(t, i.node, i.updateStatus)
	i.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: since}}
	i.updateStatus(t, i.node)
}
