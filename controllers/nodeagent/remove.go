package nodeagent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/names"
)

// remove takes away what is installed, last first, unless volumes are in use: without an agent, their Pods could neither start nor
// end. The StorageClass goes in a pass of its own: only once it is gone do no volumes appear any more, and only then is it certain that
// there are none. What another installation controls stays.
func (r *Reconciler) remove(ctx context.Context, o *observed) outcome {
	if len(o.owned()) == 0 {
		return outcome{}
	}
	inUse, err := r.claimsInUse(ctx)
	if err != nil || len(inUse) > 0 {
		return outcome{inUse: inUse, err: err}
	}
	for _, p := range slices.Backward(o.owned()) {
		if err := r.delete(ctx, p); err != nil {
			return outcome{err: err}
		}
		if p.kind == "StorageClass" {
			return outcome{} // the next pass follows when it is gone
		}
	}
	return outcome{}
}

// owned returns the parts that exist and belong to the configuration.
func (o *observed) owned() []part {
	return slices.DeleteFunc(slices.Clone(o.parts), func(p part) bool {
		return p.object == nil || !metav1.IsControlledBy(p.object, o.config)
	})
}

func (r *Reconciler) delete(ctx context.Context, p part) error {
	if !p.object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := r.Client.Delete(ctx, p.object, client.Preconditions{UID: ptr.To(p.object.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", p.kind, p.name, err)
	}
	r.applier.Forget(p.object.GetUID())
	log.FromContext(ctx).Info("Deleted", p.kind, p.name)
	return nil
}

// claimsInUse returns the claims with a volume of ours, sorted. It asks the API server rather than the cache, which may not know of the
// latest volume yet.
func (r *Reconciler) claimsInUse(ctx context.Context) ([]string, error) {
	var volumes corev1.PersistentVolumeList
	if err := r.live.List(ctx, &volumes); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	var claims []string
	for i := range volumes.Items {
		if volume := &volumes.Items[i]; inUse(volume) {
			claims = append(claims, volume.Spec.ClaimRef.Namespace+"/"+volume.Spec.ClaimRef.Name)
		}
	}
	slices.Sort(claims)
	return claims, nil
}

// inUse tells whether a volume is ours and has a claim. A new volume has one before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != names.Driver || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}
