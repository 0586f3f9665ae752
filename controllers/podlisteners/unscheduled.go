package podlisteners

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

const (
	// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
	schedulingTimeout = 10 * time.Second
	// unboundClaims is a part of the scheduler's message about a Pod with claims that it takes for unbound.
	unboundClaims = "unbound immediate PersistentVolumeClaims"
)

// remindScheduler changes the volumes of a Pod that the scheduler leaves alone although they are bound. The scheduler
// of Kubernetes 1.33 and 1.34 may look at the Pod before its own cache has the bound claim, and then again only after
// five minutes, or when a PersistentVolume changes (kubernetes/kubernetes#73216). A volume is changed once, so that
// Pods that share it do not change it by turns. wait is when to look again, or 0.
func (r *Reconciler) remindScheduler(ctx context.Context, pod *corev1.Pod) (wait time.Duration, _ error) {
	for i := range pod.Spec.Volumes {
		m := mount{volume: pod.Spec.Volumes[i].Name}
		found, err := r.observeVolume(ctx, &m, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return 0, err
		}
		if !found {
			continue
		}
		if left := requests.Left(m.pv.CreationTimestamp, schedulingTimeout, time.Now()); left > 0 {
			wait = max(wait, left)
		} else if m.pv.Annotations[names.AnnotationReminded] == "" && awaitsClaims(pod) {
			if err := r.touch(ctx, pod, m.pv); err != nil {
				return 0, err
			}
		}
	}
	return wait, nil
}

// awaitsClaims reports whether the scheduler takes a claim of a Pod for unbound.
func awaitsClaims(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, unboundClaims)
		}
	}
	return false
}

// touch records the Pod at a PersistentVolume, whose change makes the scheduler look at the Pod again.
func (r *Reconciler) touch(ctx context.Context, pod *corev1.Pod, pv *corev1.PersistentVolume) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pv.UID, "annotations": map[string]string{names.AnnotationReminded: string(pod.UID)},
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch of annotations: %w", err)
	}
	log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume", "Pod", pod.Name, "volume", pv.Name)
	err = r.Client.Patch(ctx, pv.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldManagerDefault))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}
