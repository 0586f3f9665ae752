package podlisteners

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
const schedulingTimeout = 10 * time.Second

// prepare warns about the volumes of a Pod while it waits for a node, and reminds the scheduler of the Pod.
func (r *Reconciler) prepare(ctx context.Context, p *pass) error {
	mounts, err := r.observe(ctx, p)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.request.Inline {
			continue
		}
		if err := r.remindScheduler(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// remindScheduler changes the bound volume of a Pod, once for all of its Pods: the scheduler of Kubernetes 1.33 and
// 1.34 may look at the Pod before its own cache has the bound claim, and then again only after five minutes, or when a
// PersistentVolume changes (kubernetes/kubernetes#73216).
func (r *Reconciler) remindScheduler(ctx context.Context, m *mount) error {
	left := requests.Left(m.pv.CreationTimestamp, schedulingTimeout, r.Clock.Now())
	takesForUnbound := strings.Contains(claim.Unschedulable(m.pod), "unbound immediate PersistentVolumeClaims")
	if left > 0 || m.pv.Annotations[names.AnnotationReminded] != "" || !takesForUnbound {
		m.again.Add(left, "the scheduler has not noticed that claims are bound")
		return nil
	}
	log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume",
		"Pod", m.pod.Name, "volume", m.pv.Name)
	return client.IgnoreNotFound(apply.PatchMetadata(ctx, r.Client, m.pv.DeepCopy(), names.FieldManagerDefault,
		map[string]any{"annotations": map[string]any{names.AnnotationReminded: m.pod.UID}}))
}
