package why

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
)

// volume follows the volume of a claim, and returns what it was provisioned for.
func (w *walk) volume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) claim.Selector {
	requested, _ := claim.ParseSelector(pvc.Annotations)
	pv := &corev1.PersistentVolume{}
	f := check.Finding{Kind: "PersistentVolume", Name: pvc.Spec.VolumeName}
	switch found := w.Follow(ctx, f, pv); {
	case found == check.Forbidden:
		return requested
	case found == check.Missing:
		w.Add(f.Failed(listenersv1alpha1.ReasonVolumeNotRestored, "does not exist", check.RemedyOperator))
		return requested
	case !claim.IsBoundTo(pv, pvc):
		w.Add(f.Failed("", "is not a listener volume of this claim", "Create the claim again without spec.volumeName."))
		return requested
	}
	provisioned, err := claim.VolumeSelector(pv)
	if err != nil {
		provisioned = requested
	}
	if _, err := claim.ParseSelector(pvc.Annotations); err == nil && requested != provisioned {
		w.Add(f.Failed(listenersv1alpha1.ReasonSelectorChanged,
			fmt.Sprintf("was provisioned for %s, and the annotation of the claim now names %s, which has no effect", describe(provisioned), describe(requested)),
			check.Remedy(listenersv1alpha1.ReasonSelectorChanged)))
	}
	w.pin(ctx, pv, types.NamespacedName{Namespace: pvc.Namespace, Name: pvc.Name})
	return provisioned
}

func describe(s claim.Selector) string {
	if s.Class != "" {
		return "class " + s.Class
	}
	return "Listener " + s.Listener
}

// pin follows the node affinity of the volume of a claim.
func (w *walk) pin(ctx context.Context, pv *corev1.PersistentVolume, claimKey types.NamespacedName) {
	f := check.Finding{Kind: "PersistentVolume", Name: pv.Name}
	pinned := index.PinnedNodes(pv)
	if len(pinned) == 0 {
		w.Add(f.OK("is not pinned to a node"))
		return
	}
	node := &corev1.Node{}
	release := fmt.Sprintf("kubectl listener release %s --namespace %s", claimKey.Name, claimKey.Namespace)
	switch found := w.Get(ctx, types.NamespacedName{Name: pinned[0]}, node); {
	case found == check.Forbidden:
		w.Add(f.OK("is pinned to node %s", pinned[0]))
	case found == check.Missing:
		w.Add(f.Failed(listenersv1alpha1.ReasonNodeLost, fmt.Sprintf("is pinned to node %s, which does not exist", pinned[0]), check.RemedyNodeLost+release))
	case claim.NodeLost(node):
		w.Add(f.Failed(listenersv1alpha1.ReasonNodeLost, fmt.Sprintf("is pinned to node %s, which is out of service", pinned[0]), check.RemedyNodeLost+release))
	default:
		w.Add(w.stuck(ctx, f.OK("is pinned to node %s", strings.Join(pinned, ", ")), claimKey, release))
	}
}

// stuck follows the Pods that wait for the node of a pinned volume. f is the finding if none does.
func (w *walk) stuck(ctx context.Context, f check.Finding, claimKey types.NamespacedName, release string) check.Finding {
	pvc := &corev1.PersistentVolumeClaim{}
	if w.Get(ctx, claimKey, pvc) != check.Present {
		return f
	}
	for _, pod := range w.Pods(ctx, pvc) {
		if scheduled := check.PodCondition(&pod, corev1.PodScheduled); scheduled == nil || scheduled.Status != corev1.ConditionFalse {
			continue
		}
		message := fmt.Sprintf("%s, and Pod %s cannot be scheduled", f.Message, pod.Name)
		if event := w.LastEvent(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonPinnedToNode }); event != nil {
			message = event.Message
		}
		return f.Failed(listenersv1alpha1.ReasonPinnedToNode, message,
			"Let the node take the Pod: it may be cordoned, full, or have a taint. Or give the address up: "+release+" --force")
	}
	return f
}
