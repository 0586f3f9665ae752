package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
)

// users are the users of listener volumes.
type users struct {
	// pods are the namespaced names of Pods that use a volume, each with the name of its node, or "".
	pods map[string]string
	// claims are the namespaced names of claims that have a volume which no Pod uses, sorted.
	claims []string
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

// String returns the names of the first of them.
func (u users) String() string {
	var parts []string
	if len(u.pods) > 0 {
		parts = append(parts, "Pods "+firstOf(slices.Sorted(maps.Keys(u.pods))))
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
	found := users{pods: map[string]string{}}
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
			found.pods[pods.Items[j].Namespace+"/"+pods.Items[j].Name] = pods.Items[j].Spec.NodeName
		}
		if len(pods.Items) == 0 {
			found.claims = append(found.claims, ref.Namespace+"/"+ref.Name)
		}
	}
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
