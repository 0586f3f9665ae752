package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// users are who uses volumes of ours: namespace and name, sorted.
type users struct {
	// pods use a volume.
	pods []string
	// claims have a volume, which no Pod uses at present.
	claims []string
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

// String names the first of them.
func (u users) String() string {
	var parts []string
	if len(u.pods) > 0 {
		parts = append(parts, "Pods "+listed(u.pods))
	}
	if len(u.claims) > 0 {
		parts = append(parts, "claims without a Pod "+listed(u.claims))
	}
	return strings.Join(parts, "; ")
}

// listed names the first few.
func listed(all []string) string {
	if more := len(all) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxListed], ", "), more)
	}
	return strings.Join(all, ", ")
}

// users finds who uses volumes. Whether there are any it asks the API server rather than the cache, which may not know of the latest
// volume yet.
func (r *Reconciler) users(ctx context.Context) (users, error) {
	var volumes corev1.PersistentVolumeList
	if err := r.live.List(ctx, &volumes); err != nil {
		return users{}, fmt.Errorf("listing volumes: %w", err)
	}
	var found users
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !inUse(volume) {
			continue
		}
		claim := volume.Spec.ClaimRef
		var pods corev1.PodList
		err := r.Client.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodsByClaim: claim.Name})
		if err != nil {
			return users{}, fmt.Errorf("listing the pods of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		for j := range pods.Items {
			found.pods = append(found.pods, pods.Items[j].Namespace+"/"+pods.Items[j].Name)
		}
		if len(pods.Items) == 0 {
			found.claims = append(found.claims, claim.Namespace+"/"+claim.Name)
		}
	}
	slices.Sort(found.pods)
	found.pods = slices.Compact(found.pods) // a Pod may have several volumes
	slices.Sort(found.claims)
	return found, nil
}

// inUse tells whether a volume is ours and has a claim. A new volume has one before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != names.Driver || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}
