// Package reservation reads which Pods mount the volumes of a Listener, and on which nodes these are reserved.
package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Placement returns the Pods that mount a Listener and, if requested, the nodes that it has reservations on.
//
// Each of its PersistentVolumes reserves the nodes that it is pinned to, or else the nodes of the Pods that mount it,
// or else the node that it was last mounted on. Of a volume that was deleted although Pods mount it, these nodes stay
// reserved. Copies of a Pod do not count. Which Pods mount a volume is in their PodListeners, unless these are of
// Stackable's listener operator: until they are written again, a Pod with the label of the Listener mounts it.
func Placement(ctx context.Context, c client.Reader, listener *listenersv1alpha1.Listener,
	withNodes bool) (p exposure.Placement, _ error) {
	isCopy, err := Copies(ctx, c, listener)
	if err != nil {
		return p, err
	}
	r := reader{c, listener, isCopy}
	mounted, admitted, err := r.mountedNodes(ctx, &p)
	if err != nil || !withNodes {
		return p, err
	}
	reserved, err := r.reservedNodes(ctx, mounted, admitted)
	if err != nil {
		return p, err
	}
	for _, name := range reserved {
		switch node, err := lookup.Get(ctx, c, types.NamespacedName{Name: name}, &corev1.Node{}); {
		case err != nil:
			return p, err
		case node == nil:
			p.MissingNodes = append(p.MissingNodes, name)
		default:
			p.Nodes = append(p.Nodes, node)
		}
	}
	return p, nil
}

type reader struct {
	client.Reader
	listener *listenersv1alpha1.Listener
	isCopy   func(*corev1.Pod) bool
}

// reservedNodes returns the sorted names of the nodes with reservations. mounted are those of Pods, by their volume,
// and admitted those of Pods that have addresses.
func (r reader) reservedNodes(ctx context.Context, mounted, admitted map[string][]string) ([]string, error) {
	var volumes corev1.PersistentVolumeList
	if err := r.List(ctx, &volumes, index.VolumesOf(r.listener)); err != nil {
		return nil, fmt.Errorf("listing volumes of listener %s: %w", client.ObjectKeyFromObject(r.listener), err)
	}
	reserved := sets.New[string]()
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !claim.IsListenerVolume(volume) {
			delete(mounted, volume.Name)
			continue
		}
		if pinned := claim.PinnedNodes(volume); len(pinned) > 0 {
			reserved.Insert(pinned...)
			reserved.Insert(admitted[volume.Name]...) // of Pods that had mounted it before
			delete(mounted, volume.Name)
			continue
		}
		nodes, err := r.nodesOfPods(ctx, volume.Spec.ClaimRef)
		if err == nil && len(nodes)+len(mounted[volume.Name]) == 0 {
			nodes, err = r.lastNode(ctx, volume)
		}
		if err != nil {
			return nil, err
		}
		reserved.Insert(nodes...)
	}
	if len(volumes.Items) == 0 && claim.OwnsListener(r.listener) {
		nodes, err := r.nodesOfPods(ctx, &corev1.ObjectReference{Namespace: r.listener.Namespace,
			Name: r.listener.Name})
		if err != nil {
			return nil, err
		}
		reserved.Insert(nodes...)
	}
	for _, nodes := range mounted {
		reserved.Insert(nodes...)
	}
	return sets.List(reserved), nil
}

// podOf returns the Pod of a PodListeners, or nil if it does not exist or is not bound to a node. A PodListeners that
// does not name its Pod as the owner is replaced by one that does.
func (r reader) podOf(ctx context.Context, mount *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	uid := listenersv1alpha1.PodUID(mount.Name)
	owner := slices.IndexFunc(mount.OwnerReferences,
		func(o metav1.OwnerReference) bool { return o.Kind == "Pod" && o.UID == uid })
	if mount.Spec.NodeName == "" || owner < 0 {
		return nil, nil //nolint:nilnil // not an error
	}
	return lookup.WithUID(ctx, r, types.NamespacedName{Namespace: mount.Namespace,
		Name: mount.OwnerReferences[owner].Name}, uid, &corev1.Pod{})
}

// volumesOf returns the volumes of a Pod that mount the Listener, without inline ones of a copy.
func (r reader) volumesOf(mount *listenersv1alpha1.PodListeners) (volumes []string) {
	for volume, l := range mount.Spec.Listeners {
		if l.ListenerName == r.listener.Name &&
			(l.PersistentVolumeName != "" || !slices.Contains(mount.Spec.Copies, volume)) {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// mountedNodes returns the nodes of the Pods that mount the Listener's volumes, by volume, and adds these Pods to the
// placement. Pods that have finished or were deleted no longer mount volumes, although their PodListeners still exist.
func (r reader) mountedNodes(ctx context.Context,
	p *exposure.Placement) (nodes, admitted map[string][]string, _ error) {
	var mounts listenersv1alpha1.PodListenersList
	err := r.List(ctx, &mounts, client.InNamespace(r.listener.Namespace),
		client.MatchingFields{index.PodListenersByListener: r.listener.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("listing pod listeners of listener %s: %w", client.ObjectKeyFromObject(r.listener),
			err)
	}
	nodes, admitted = map[string][]string{}, map[string][]string{}
	for i := range mounts.Items {
		mount := &mounts.Items[i]
		pod, err := r.podOf(ctx, mount)
		if err != nil {
			return nil, nil, err
		}
		volumes := r.volumesOf(mount)
		if pod == nil || claim.PodFinished(pod) || r.isCopy(pod) || len(volumes) == 0 {
			continue
		}
		p.Mounting = append(p.Mounting, pod)
		for _, volume := range volumes {
			pv := mount.Spec.Listeners[volume].PersistentVolumeName
			nodes[pv] = append(nodes[pv], mount.Spec.NodeName)
			if mount.Spec.Admitted(volume) {
				admitted[pv] = append(admitted[pv], mount.Spec.NodeName)
			}
		}
		if slices.ContainsFunc(mount.Spec.Outdated(),
			func(volume string) bool { return slices.Contains(volumes, volume) }) {
			p.Outdated = append(p.Outdated, pod.Name)
		}
	}
	slices.SortFunc(p.Mounting, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(p.Outdated)
	return nodes, admitted, nil
}

// Copies returns a function that reports whether a Pod without a controller mounts the claim of another Pod, which the
// Listener was created for, as the copies of kubectl debug do. A claim of a StatefulSet belongs to the Pod whose name
// the Listener has as a label, and any other claim to the Pods that have a controller, if there are any. A Pod that was
// none when it got its addresses, and that lost its controller since, is none.
func Copies(ctx context.Context, c client.Reader,
	listener *listenersv1alpha1.Listener) (isCopy func(*corev1.Pod) bool, _ error) {
	if !claim.OwnsListener(listener) {
		return func(*corev1.Pod) bool { return false }, nil
	}
	copies := func(pod *corev1.Pod) bool {
		return metav1.GetControllerOf(pod) == nil && !served(ctx, c, listener, pod)
	}
	if name := listener.Labels[appsv1.StatefulSetPodNameLabel]; name != "" {
		return func(pod *corev1.Pod) bool { return pod.Name != name && copies(pod) }, nil
	}
	pods, err := index.PodsOfClaim(ctx, c, listener.Namespace, listener.Name)
	controlled := slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return metav1.GetControllerOf(&pod) != nil && !claim.PodFinished(&pod) && pod.DeletionTimestamp == nil
	})
	return func(pod *corev1.Pod) bool { return controlled && copies(pod) }, err
}

// served reports whether a Pod got requests of a Listener when it got its addresses, by its PodListeners and its label,
// which was taken from a copy before. The cache returns no error except that there are none.
func served(ctx context.Context, c client.Reader, listener *listenersv1alpha1.Listener, pod *corev1.Pod) bool {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
	mount, err := lookup.Get(ctx, c, key, &listenersv1alpha1.PodListeners{})
	if _, labelled := pod.Labels[names.PodMountLabel(listener.UID)]; err != nil || mount == nil || !labelled {
		return false
	}
	for volume, l := range mount.Spec.Listeners {
		if l.ListenerName == listener.Name && mount.Spec.Admitted(volume) &&
			!slices.Contains(mount.Spec.Copies, volume) {
			return true
		}
	}
	return false
}

// nodesOfPods returns the nodes of the Pods that use a claim and have the label of the Listener, or own the Listener,
// whose inline volume stands for the claim.
func (r reader) nodesOfPods(ctx context.Context, ref *corev1.ObjectReference) ([]string, error) {
	if ref == nil {
		return nil, nil
	}
	pods, err := index.PodsOfClaim(ctx, r, ref.Namespace, ref.Name)
	var nodes []string
	for i := range pods {
		pod := &pods[i]
		_, labelled := pod.Labels[names.PodMountLabel(r.listener.UID)]
		if (labelled || claim.HasOwner(r.listener, pod.UID)) && pod.Spec.NodeName != "" && !claim.PodFinished(pod) &&
			!r.isCopy(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes, err
}

// lastNode returns the node on which a volume that no Pod mounts was last mounted, if it is known, so that the address
// does not change while its Pod is replaced. There is none if its claim, or a Pod that owns this, is gone for good.
func (r reader) lastNode(ctx context.Context, volume *corev1.PersistentVolume) ([]string, error) {
	if ref := volume.Spec.ClaimRef; ref != nil {
		pvc, err := lookup.WithUID(ctx, r, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, ref.UID,
			&corev1.PersistentVolumeClaim{})
		if err != nil || pvc == nil {
			return nil, err
		}
		if owner := claim.EphemeralPod(pvc); owner != nil {
			pod, err := lookup.WithUID(ctx, r, types.NamespacedName{Namespace: pvc.Namespace, Name: owner.Name},
				owner.UID, &corev1.Pod{})
			if err != nil || pod == nil || claim.PodFinished(pod) {
				return nil, err
			}
		}
	}
	return claim.VolumeNodes(volume), nil
}
