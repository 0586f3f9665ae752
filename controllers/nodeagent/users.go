package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
)

// users are who uses volumes of ours, sorted.
type users struct {
	// pods use a volume.
	pods []podUser
	// claims have a volume, which no Pod uses at present: namespace and name.
	claims []string
}

// podUser is a Pod that uses a volume.
type podUser struct {
	// key is namespace and name.
	key string
	// node is where it runs, or "".
	node string
}

// on returns the Pods on these nodes.
func (u users) on(nodes map[string]bool) users {
	return users{pods: slices.DeleteFunc(slices.Clone(u.pods), func(p podUser) bool { return !nodes[p.node] })}
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

// String names the first of them.
func (u users) String() string {
	var parts []string
	if len(u.pods) > 0 {
		keys := make([]string, 0, len(u.pods))
		for _, p := range u.pods {
			keys = append(keys, p.key)
		}
		parts = append(parts, "Pods "+listed(keys))
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

// users finds who uses volumes, and lets the next pass follow when that changes. Whether there are any it asks the API
// server rather than the cache, which may not know of the latest volume yet.
func (r *Reconciler) users(ctx context.Context) (users, error) {
	r.waiting.Store(true)
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
		ref := volume.Spec.ClaimRef
		var pods corev1.PodList
		err := r.Client.List(ctx, &pods, client.InNamespace(ref.Namespace), client.MatchingFields{index.PodsByClaim: ref.Name})
		if err != nil {
			return users{}, fmt.Errorf("listing the pods of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		for j := range pods.Items {
			found.pods = append(found.pods, podUser{pods.Items[j].Namespace + "/" + pods.Items[j].Name, pods.Items[j].Spec.NodeName})
		}
		if len(pods.Items) == 0 {
			found.claims = append(found.claims, ref.Namespace+"/"+ref.Name)
		}
	}
	slices.SortFunc(found.pods, func(a, b podUser) int { return strings.Compare(a.key, b.key) })
	found.pods = slices.Compact(found.pods) // a Pod may have several volumes
	slices.Sort(found.claims)
	return found, nil
}

// inUse tells whether a volume is ours and has a claim. A new volume has one before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if !claim.IsListenerVolume(volume) || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}
