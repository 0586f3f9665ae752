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
	"github.com/listener-operator/listener-operator/internal/message"
)

type users struct {
	// pods are the namespaced names of Pods that use a volume, each with the name of its node, or "".
	pods map[string]string
	// claims are the namespaced names of claims that have a volume which no Pod uses, sorted.
	claims []string
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

func (u users) String() string {
	return joined(listed("Pods ", slices.Sorted(maps.Keys(u.pods))), listed("claims without a Pod ", u.claims))
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
		pods, err := index.PodsOfClaim(ctx, r.Client, ref.Namespace, ref.Name)
		if err != nil {
			return users{}, err
		}
		for j := range pods {
			found.pods[pods[j].Namespace+"/"+pods[j].Name] = pods[j].Spec.NodeName
		}
		if len(pods) == 0 {
			found.claims = append(found.claims, ref.Namespace+"/"+ref.Name)
		}
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return users{}, fmt.Errorf("listing the pods with inline volumes: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !claim.PodFinished(pod) && slices.ContainsFunc(pod.Spec.Volumes,
			func(v corev1.Volume) bool { return claim.IsInline(&v) }) {
			found.pods[pod.Namespace+"/"+pod.Name] = pod.Spec.NodeName
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

func listed(text string, all []string) string {
	if len(all) == 0 {
		return ""
	}
	return text + message.List(all)
}

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}
