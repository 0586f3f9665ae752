package walk

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// volume follows the volume of a claim, and returns what selects its Listener.
func (w *Walk) volume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) claim.Selector {
	requested, _ := claim.ParseSelector(pvc.Annotations)
	pv := &corev1.PersistentVolume{}
	f := check.Finding{Kind: "PersistentVolume", Name: pvc.Spec.VolumeName}
	if !w.Require(ctx, pv, f.LeftToOperator(listenersv1alpha1.ReasonVolumeNotRestored, "does not exist")) {
		return requested
	}
	if !claim.IsBoundTo(pv, pvc) {
		w.Add(f.Failed("", "is not a listener volume of this claim", "Create the claim again without spec.volumeName."))
		return requested
	}
	if pv.DeletionTimestamp != nil {
		w.Add(f.Warning("", deletion(pv)+", which ends when its claim is deleted"))
	}
	if pv.Status.Phase == corev1.VolumeFailed {
		w.Add(f.Warning("", "has failed: "+exposure.Quote(pv.Status.Reason, pv.Status.Message)))
	}
	provisioned, err := claim.VolumeSelector(pv)
	if err != nil {
		provisioned = requested
	}
	selector, ignored := provisioned.Follow(pvc.Annotations)
	if ignored {
		w.Add(f.FailedBy(listenersv1alpha1.ReasonSelectorChanged, fmt.Sprintf(
			"was provisioned for %s, and the annotation of the claim now names %s, which has no effect",
			selectedBy(provisioned), selectedBy(requested))))
	}
	w.pin(ctx, pv)
	return selector
}

// otherClass follows the class that a claim names, if its Listener has another one.
func (w *Walk) otherClass(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class string,
	listener *listenersv1alpha1.Listener) {
	if class == "" || class == listener.Class() || !claim.OwnsListener(listener) {
		return
	}
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	text := fmt.Sprintf("names ListenerClass %q, but its Listener has %q", class, listener.Class())
	switch key := (types.NamespacedName{Name: class}); {
	case w.Get(ctx, key, &listenersv1alpha1.ListenerClass{}) == check.Missing:
		f = f.FailedBy(listenersv1alpha1.ReasonClassNotFound, text+", because the class does not exist")
		w.Add(w.mistakenClass(ctx, f, types.NamespacedName{Namespace: pvc.Namespace, Name: class}))
	case !w.bound(ctx, pvc, nil):
		w.Add(f.Warning("", text+" until a Pod that mounts the claim is bound to a node"))
	default:
		refused := check.HasReason(listenersv1alpha1.ReasonNamespaceNotAllowed)
		w.Add(w.said(ctx, pvc, refused, f.LeftToOperator("", text)))
	}
}

func selectedBy(s claim.Selector) string {
	if s.Class != "" {
		return "class " + s.Class
	}
	return "Listener " + s.Listener
}

func (w *Walk) pin(ctx context.Context, pv *corev1.PersistentVolume) {
	f := check.Finding{Kind: "PersistentVolume", Name: pv.Name}
	pinned := claim.PinnedNodes(pv)
	if len(pinned) == 0 {
		w.Add(f.OK("is not pinned to a node"))
		return
	}
	owner, node := pv.Spec.ClaimRef, &corev1.Node{}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name,
		UID: owner.UID}}
	switch found := w.Get(ctx, types.NamespacedName{Name: pinned[0]}, node); {
	case found == check.Forbidden:
		w.Add(f.OK("is pinned to node %s", pinned[0]))
	case found == check.Missing, claim.NodeLost(node):
		w.Add(w.lost(ctx, f, pv, pvc, pinned[0], node))
	default:
		w.Add(w.stuck(ctx, f.OK("is pinned to node %s", strings.Join(pinned, ", ")), pvc, node))
	}
}

// lost returns that a volume is pinned to a lost node, which is empty if it does not exist, and what the operator says.
func (w *Walk) lost(ctx context.Context, f check.Finding, pv *corev1.PersistentVolume,
	pvc *corev1.PersistentVolumeClaim, name string, node *corev1.Node) check.Finding {
	what, exists := "does not exist", node.Name != ""
	if exists {
		what = "is out of service"
	}
	message := fmt.Sprintf("of claim %s/%s is pinned to node %s, which %s", pvc.Namespace, pvc.Name, name, what)
	if since := pv.Annotations[names.AnnotationLostSince]; since != "" {
		message += ", since " + since
	}
	f = f.FailedBy(listenersv1alpha1.ReasonNodeLost, message, ofClaim(pvc)...)
	if exists && claim.NodeReady(node) {
		f.Message += ", although it is ready"
		f.Remedy = fmt.Sprintf("If the machine works again, remove the taint, or no Pod starts there: kubectl taint "+
			"node %s %s-", name, corev1.TaintNodeOutOfService)
	}
	if event := w.LastEvent(ctx, pvc, check.HasReason(listenersv1alpha1.ReasonNodeLost)); event != nil {
		f.Message += "; the operator says: " + event.Message
	}
	return f
}

func ofClaim(pvc *corev1.PersistentVolumeClaim) []string {
	return []string{"{claim}", pvc.Name, "{namespace}", pvc.Namespace}
}

// stuck follows the Pods that wait for the node of a pinned volume. f is the finding if none does.
func (w *Walk) stuck(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim,
	node *corev1.Node) check.Finding {
	for _, pod := range w.podsOfClaim(ctx, pvc) {
		verdict := claim.Unschedulable(&pod)
		if awaitsClaims(verdict) || !concernsVolumes.MatchString(verdict) {
			continue
		}
		message := fmt.Sprintf("%s, and Pod %s cannot be scheduled: %s", f.Message, pod.Name, verdict)
		if event := w.LastEvent(ctx, pvc, check.HasReason(listenersv1alpha1.ReasonPinnedToNode)); event != nil {
			message = event.Message
		}
		f = f.FailedBy(listenersv1alpha1.ReasonPinnedToNode, message, ofClaim(pvc)...).Since(waitsSince(&pod))
		switch {
		case !claim.NodeReady(node):
			w.Add(nodeFinding(node))
			return f.Symptom()
		case isLabelled(node):
			return f
		case w.agent(ctx, node.Name) == inOrder:
			w.Add(unlabelled(check.Finding{Kind: "Node", Name: node.Name}))
		}
		return f.Symptom()
	}
	return f
}
