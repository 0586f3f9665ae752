package podlisteners

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

const (
	// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
	schedulingTimeout = 10 * time.Second
	// unboundClaims is a part of the scheduler's message about a Pod with claims that it takes for unbound.
	unboundClaims = "unbound immediate PersistentVolumeClaims"
)

// remindScheduler changes the bound volumes of a Pod that the scheduler leaves alone. The scheduler of Kubernetes 1.33
// and 1.34 may look at the Pod before its own cache has the bound claim, and then again only after five minutes, or
// when a PersistentVolume changes (kubernetes/kubernetes#73216). A volume is changed once for all of its Pods. wait is
// when to look again, or 0.
func (r *Reconciler) remindScheduler(ctx context.Context, pod *corev1.Pod) (wait time.Duration, _ error) {
	volumes, err := r.volumes(ctx, pod)
	if err != nil {
		return 0, err
	}
	for _, m := range volumes {
		if left := requests.Left(m.pv.CreationTimestamp, schedulingTimeout, r.Clock.Now()); left > 0 {
			wait = max(wait, left)
		} else if m.pv.Annotations[names.AnnotationReminded] == "" && strings.Contains(claim.Unschedulable(pod), unboundClaims) {
			log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume", "Pod", pod.Name, "volume", m.pv.Name)
			err := apply.PatchMetadata(ctx, r.Client, m.pv.DeepCopy(), names.FieldManagerDefault, map[string]any{
				"annotations": map[string]any{names.AnnotationReminded: pod.UID},
			})
			if client.IgnoreNotFound(err) != nil {
				return 0, err
			}
		}
	}
	return wait, nil
}
