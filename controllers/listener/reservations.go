package listener

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// reservedNodes returns the sorted names of the nodes that a Listener has reservations on, and the Pods that mount it.
// Each of its PersistentVolumes reserves the nodes that it is pinned to, or else the nodes of the Pods that mount it,
// or else the node that it was last mounted on. Of a volume that was deleted although Pods mount it, these nodes stay
// reserved. Which Pods mount a volume is in their PodListeners. Those of Stackable's listener operator do not name
// nodes and volumes, so until they are written again, a Pod with the label of the Listener mounts it, too.
func (r *Reconciler) reservedNodes(ctx context.Context, l *listenersv1alpha1.Listener) (nodes []string, mounting []*corev1.Pod, _ error) {
	listener := client.ObjectKeyFromObject(l)
	var volumes corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &volumes, client.MatchingFields{index.VolumesByListener: index.VolumeListenerKey(listener)}); err != nil {
		return nil, nil, fmt.Errorf("listing volumes of listener %s: %w", listener, err)
	}
	mounted, mounting, err := r.mountedNodes(ctx, listener)
	if err != nil {
		return nil, nil, err
	}
	reserved := sets.New[string]()
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !claim.IsListenerVolume(volume) {
			delete(mounted, volume.Name)
			continue
		}
		if pinned := index.PinnedNodes(volume); len(pinned) > 0 {
			reserved.Insert(pinned...)
			delete(mounted, volume.Name)
			continue
		}
		labelled, err := r.labelledNodes(ctx, l, volume)
		if err != nil {
			return nil, nil, err
		}
		reserved.Insert(labelled...)
		if len(labelled)+len(mounted[volume.Name]) > 0 {
			continue // reserved below
		}
		last, err := r.lastNode(ctx, volume)
		if err != nil {
			return nil, nil, err
		}
		reserved.Insert(last...)
	}
	for _, on := range mounted {
		reserved.Insert(on...)
	}
	return slices.Sorted(maps.Keys(reserved)), mounting, nil
}

// mountedNodes returns the nodes of the Pods that mount a Listener's volumes, by volume, and these Pods, sorted by
// name. Pods that have finished or were deleted no longer mount volumes, although their PodListeners still exist.
func (r *Reconciler) mountedNodes(ctx context.Context, listener client.ObjectKey) (nodes map[string][]string, mounting []*corev1.Pod, _ error) {
	var mounts listenersv1alpha1.PodListenersList
	err := r.Client.List(ctx, &mounts, client.InNamespace(listener.Namespace), client.MatchingFields{index.PodListenersByListener: listener.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("listing pod listeners of listener %s: %w", listener, err)
	}
	nodes = map[string][]string{}
	for i := range mounts.Items {
		mount := &mounts.Items[i]
		if mount.Spec.NodeName == "" {
			continue
		}
		pod, err := r.owner(ctx, mount)
		if err != nil {
			return nil, nil, err
		}
		if pod == nil || claim.PodFinished(pod) {
			continue
		}
		mounting = append(mounting, pod)
		for _, l := range mount.Spec.Listeners {
			if l.ListenerName != listener.Name {
				continue
			}
			nodes[l.PersistentVolumeName] = append(nodes[l.PersistentVolumeName], mount.Spec.NodeName)
		}
	}
	slices.SortFunc(mounting, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return nodes, mounting, nil
}

// labelledNodes returns the nodes of the Pods that use the claim of a volume and have the label of the Listener.
func (r *Reconciler) labelledNodes(ctx context.Context, l *listenersv1alpha1.Listener, volume *corev1.PersistentVolume) ([]string, error) {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(ref.Namespace), client.MatchingFields{index.PodsByClaim: ref.Name}); err != nil {
		return nil, fmt.Errorf("listing pods of claim %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	var nodes []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, labelled := pod.Labels[names.PodMountLabel(l.UID)]; labelled && pod.Spec.NodeName != "" && !claim.PodFinished(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes, nil
}

// lastNode returns the node on which a volume that no Pod mounts was last mounted, if it is known and the volume may be
// mounted again.
func (r *Reconciler) lastNode(ctx context.Context, volume *corev1.PersistentVolume) ([]string, error) {
	unused, err := r.permanentlyUnused(ctx, volume)
	if err != nil || unused {
		return nil, err
	}
	return index.VolumeNodes(volume), nil
}

// permanentlyUnused reports whether a volume that no Pod mounts will never be mounted again, because its claim does not
// exist any more or belongs to a Pod that has finished or does not exist any more. Any other volume keeps its
// reservation, so that the address does not change while its Pod is replaced.
func (r *Reconciler) permanentlyUnused(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return false, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	pvc, err := lookup.WithUID(ctx, r.Client, key, ref.UID, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil {
		return err == nil, err
	}
	owner := claim.EphemeralPod(pvc)
	if owner == nil {
		return false, nil
	}
	pod, err := r.pod(ctx, types.NamespacedName{Namespace: pvc.Namespace, Name: owner.Name}, owner.UID)
	return pod == nil || claim.PodFinished(pod), err
}

// owner returns the Pod of a PodListeners, or nil if it does not exist. One that does not name its Pod as the owner is
// replaced by one that does.
func (r *Reconciler) owner(ctx context.Context, mount *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	for _, owner := range mount.OwnerReferences {
		if owner.Kind == "Pod" && owner.UID == listenersv1alpha1.PodUID(mount.Name) {
			return r.pod(ctx, types.NamespacedName{Namespace: mount.Namespace, Name: owner.Name}, owner.UID)
		}
	}
	return nil, nil //nolint:nilnil // absence is no error
}

// pod returns the Pod of this name, or nil if there is none with this UID.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	return lookup.WithUID(ctx, r.Client, key, uid, &corev1.Pod{})
}
