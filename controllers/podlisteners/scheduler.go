package podlisteners

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
const schedulingTimeout = 10 * time.Second

// prepare warns about the volumes of a Pod while it waits for a node, and reminds the scheduler of the Pod.
func (r *Reconciler) prepare(ctx context.Context, p *pass) error {
	mounts, err := r.observe(ctx, p, &listenersv1alpha1.PodListenersSpec{})
	if err != nil {
		return err
	}
	var wait time.Duration
	for _, m := range mounts {
		if m.request.Inline {
			continue
		}
		left, err := r.remindScheduler(ctx, m)
		if err != nil {
			return err
		}
		wait = max(wait, left)
	}
	p.again.Add(wait, "the scheduler has not noticed that claims are bound")
	return nil
}

// remindScheduler changes the bound volume of a Pod, once for all of its Pods: the scheduler of Kubernetes 1.33 and
// 1.34 may look at the Pod before its own cache has the bound claim, and then again only after five minutes, or when a
// PersistentVolume changes (kubernetes/kubernetes#73216). left is when to look again, or 0.
func (r *Reconciler) remindScheduler(ctx context.Context, m *mount) (left time.Duration, _ error) {
	left = requests.Left(m.pv.CreationTimestamp, schedulingTimeout, r.Clock.Now())
	takesForUnbound := strings.Contains(claim.Unschedulable(m.pod), "unbound immediate PersistentVolumeClaims")
	if left > 0 || m.pv.Annotations[names.AnnotationReminded] != "" || !takesForUnbound {
		return left, nil
	}
	log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume",
		"Pod", m.pod.Name, "volume", m.pv.Name)
	return 0, client.IgnoreNotFound(apply.PatchMetadata(ctx, r.Client, m.pv.DeepCopy(), names.FieldManagerDefault,
		map[string]any{"annotations": map[string]any{names.AnnotationReminded: m.pod.UID}}))
}
