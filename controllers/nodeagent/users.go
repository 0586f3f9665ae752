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

// users are the users of listener volumes, sorted.
type users struct {
	// pods use a volume.
	pods []podUser
	// claims are the namespaced names of claims that have a volume which no Pod uses.
	claims []string
}

// podUser is a Pod that uses a volume.
type podUser struct {
	// key is its namespaced name.
	key string
	// node is the name of its node, or "".
	node string
}

// on returns the Pods on these nodes.
func (u users) on(nodes map[string]bool) users {
	return users{pods: slices.DeleteFunc(slices.Clone(u.pods), func(p podUser) bool { return !nodes[p.node] })}
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

// String returns the names of the first of them.
func (u users) String() string {
	var parts []string
	if len(u.pods) > 0 {
		keys := make([]string, 0, len(u.pods))
		for _, p := range u.pods {
			keys = append(keys, p.key)
		}
		parts = append(parts, "Pods "+firstOf(keys))
	}
	if len(u.claims) > 0 {
		parts = append(parts, "claims without a Pod "+firstOf(u.claims))
	}
	return strings.Join(parts, "; ")
}

// firstOf returns the first names, and how many more there are.
func firstOf(all []string) string {
	if more := len(all) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxListed], ", "), more)
	}
	return strings.Join(all, ", ")
}

// users returns the users of listener volumes. Until the next reconciliation, every change of them triggers one. It
// lists volumes without the cache, which may lack the latest one.
func (r *Reconciler) users(ctx context.Context) (users, error) {
	r.waitingForUsers.Store(true)
	var volumes corev1.PersistentVolumeList
	if err := r.apiReader.List(ctx, &volumes); err != nil {
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

// inUse reports whether a volume is a listener volume with a claim. A new volume has a claim before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if !claim.IsListenerVolume(volume) || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}
