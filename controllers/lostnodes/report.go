package lostnodes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// warn emits a warning about a claim, on the claim and its Pods, unless it is equal to the last one, which is repeated
// later. An empty text means that the reason does not hold any more.
func (r *Reconciler) warn(o *observed, reason, text string) {
	if r.warnings.Due(client.ObjectKeyFromObject(o.claim), reason, text, r.Clock.Now()) {
		r.emit(o, reason, text)
	}
}

// warnStuck emits the warning PinnedToNode on each Pod that cannot be scheduled because of the volume, and on the claim
// the first of them. It is not about the other Pods that use the claim, for example one that runs on the node.
func (r *Reconciler) warnStuck(o *observed, stuck []stuckPod) {
	stuck = stuck[:min(len(stuck), 10)] // each has an event
	var all []string
	for _, s := range stuck {
		all = append(all, string(s.pod.UID), s.text) // a new Pod has the event, too
	}
	if !r.warnings.Due(client.ObjectKeyFromObject(o.claim), listenersv1alpha1.ReasonPinnedToNode,
		strings.Join(all, " "), r.Clock.Now()) {
		return
	}
	r.emitOn(o.claim, nil, listenersv1alpha1.ReasonPinnedToNode, stuck[0].text)
	for _, s := range stuck {
		r.emitOn(s.pod, o.claim, listenersv1alpha1.ReasonPinnedToNode, s.text)
	}
}

func (r *Reconciler) emit(o *observed, reason, text string) {
	r.emitOn(o.claim, nil, reason, text)
	for i := range o.pods {
		r.emitOn(&o.pods[i], o.claim, reason, text)
	}
}

func (r *Reconciler) emitOn(regarding, related runtime.Object, reason, text string) {
	r.Events.Eventf(regarding, related, reasons.EventType(reason), reason, "Release", "%s",
		message.Printable(text, message.MaxEvent))
}

// reportCondition applies the condition NodesAvailable, about all volumes of the Listener; pv is the claim's. That a
// volume has moved is then in the condition alone, so the API server rejects what an older version led to.
func (r *Reconciler) reportCondition(ctx context.Context, o *observed, pv *corev1.PersistentVolume) error {
	if o.listener == nil || o.listener.Status == nil {
		return nil // without its other fields, there is no status
	}
	var volumes corev1.PersistentVolumeList
	err := r.Client.List(ctx, &volumes, index.VolumesOf(o.listener))
	if err != nil {
		return fmt.Errorf("listing the volumes of Listener %s: %w", client.ObjectKeyFromObject(o.listener), err)
	}
	for i := range volumes.Items {
		if volumes.Items[i].UID == pv.UID {
			volumes.Items[i] = *pv
		}
	}
	conditions := slices.Clone(o.listener.Status.Conditions)
	after := condition(volumes.Items, o.listener.Generation,
		meta.FindStatusCondition(conditions, listenersv1alpha1.ListenerNodesAvailable))
	if after == nil || !meta.SetStatusCondition(&conditions, *after) { // which sets the time of the transition
		return nil
	}
	withoutOthers := &map[string]any{"conditions": []metav1.Condition{*meta.FindStatusCondition(conditions,
		after.Type)}}
	_, err = r.conditions.ApplyStatus(ctx, o.listener, withoutOthers, o.listener.ResourceVersion)
	return err
}

// condition returns the condition that describes the volumes of a Listener, or nil. before is the present one, or nil.
func condition(volumes []corev1.PersistentVolume, generation int64, before *metav1.Condition) *metav1.Condition {
	texts := map[string][]string{}
	for i := range volumes {
		if reason, text := history(&volumes[i]); reason != "" {
			texts[reason] = append(texts[reason], text)
		}
	}
	after := &metav1.Condition{
		Type: listenersv1alpha1.ListenerNodesAvailable, Status: metav1.ConditionTrue,
		Reason:             listenersv1alpha1.ReasonNodeReturned,
		ObservedGeneration: generation, Message: "every node that a volume is pinned to exists",
	}
	for _, reason := range []string{listenersv1alpha1.ReasonNodeLost, listenersv1alpha1.ReasonVolumeReleased,
		listenersv1alpha1.ReasonVolumeMoved} {
		if len(texts[reason]) == 0 {
			continue
		}
		slices.Sort(texts[reason])
		after.Reason, after.Message = reason, message.Printable(strings.Join(texts[reason], "; "), message.MaxCondition)
		if reason != listenersv1alpha1.ReasonVolumeMoved {
			after.Status = metav1.ConditionFalse
		}
		return after
	}
	if before == nil || before.Status == metav1.ConditionTrue {
		return before
	}
	return after
}

func history(pv *corev1.PersistentVolume) (reason, text string) {
	if !claim.IsListenerVolume(pv) {
		return "", ""
	}
	from, to := pv.Annotations[names.AnnotationReleasedFrom], lastNode(pv)
	switch since := pv.Annotations[names.AnnotationLostSince]; {
	case since != "":
		return listenersv1alpha1.ReasonNodeLost,
			fmt.Sprintf("node %s, which PersistentVolume %s is pinned to, is lost since %s", to, pv.Name, since)
	case from != "" && (to == "" || from == to && len(claim.PinnedNodes(pv)) == 0):
		return listenersv1alpha1.ReasonVolumeReleased,
			fmt.Sprintf("PersistentVolume %s is released from node %s, and waits for its Pod to start", pv.Name, from)
	case from != "" && from != to:
		return listenersv1alpha1.ReasonVolumeMoved, movedMessage(pv, from, to)
	}
	return "", ""
}
