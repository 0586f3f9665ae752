package claim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// NamesOf returns the names of the claims that a Pod mounts, as NameOf returns them.
func NamesOf(pod *corev1.Pod) []string {
	var claims []string
	for i := range pod.Spec.Volumes {
		if name := NameOf(pod, &pod.Spec.Volumes[i]); name != "" {
			claims = append(claims, name)
		}
	}
	return claims
}

// NameOf returns the name of the claim of a Pod's volume, or that an inline volume stands for, or "" if it has none.
func NameOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil, IsInline(volume):
		return pod.Name + "-" + volume.Name
	default:
		return ""
	}
}

// PodFinished reports whether a Pod has run to its end. It mounts nothing any more, although it exists.
func PodFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// PodReady reports whether the containers of a Pod are ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// NodeLost reports whether a node cannot run the Pods any more that are bound to it: it does not exist, which is nil,
// or an administrator has declared by the taint out-of-service that it is shut down.
func NodeLost(node *corev1.Node) bool {
	return node == nil || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// NodeReady reports whether the kubelet of a node responds. A node without the condition counts as ready.
func NodeReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// Unschedulable returns what the scheduler says about a Pod that it finds no node for, or "".
func Unschedulable(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// AwaitsAgent reports whether the scheduler says about a Pod that it rejected a node because no node agent is
// registered there, as of Kubernetes 1.37. While the agents are replaced, that passes by itself.
func AwaitsAgent(verdict string) bool {
	return strings.Contains(verdict, names.Driver+" CSI driver is not installed on the node")
}
