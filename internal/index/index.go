// Package index names the indexes of the operator's cache, and registers them. An index answers in memory what would
// otherwise be a list over the cluster.
package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// The indexes. Those of namespaced kinds are used together with client.InNamespace.
const (
	// ListenersByClass finds Listeners by the name of their class.
	ListenersByClass = "listener.class"
	// VolumesByListener finds the PersistentVolumes of a Listener, by VolumeListenerKey.
	VolumesByListener = "volume.listener"
	// VolumesByNode finds our PersistentVolumes by the node that they are reserved on.
	VolumesByNode = "volume.node"
	// ClaimsByClass finds claims without a volume by the class of the Listener of their own that they ask for.
	ClaimsByClass = "claim.class"
	// ClaimsByListener finds claims without a volume by the name of the existing Listener that they ask for.
	ClaimsByListener = "claim.listener"
	// PodsByUID finds a Pod with claims by its uid.
	PodsByUID = "pod.uid"
	// PodsByClaim finds Pods by the name of a claim that they mount, ephemeral ones included.
	PodsByClaim = "pod.claim"
	// PodListenersByListener finds PodListeners by the name of a Listener.
	PodListenersByListener = "podlisteners.listener"
	// PodListenersByNode finds PodListeners by the name of the Pod's node.
	PodListenersByNode = "podlisteners.node"
	// ObjectsByController finds the objects of an optional kind by the uid of what controls them. Register leaves it to
	// the caches of these kinds.
	ObjectsByController = "object.controller"
)

// Register adds all indexes. It takes the narrowest interface so that a fake client's indexer serves as well.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object  client.Object
		name    string
		extract client.IndexerFunc
	}{
		{&listenersv1alpha1.Listener{}, ListenersByClass, ListenerClass},
		{&corev1.PersistentVolume{}, VolumesByListener, VolumeListener},
		{&corev1.PersistentVolume{}, VolumesByNode, VolumeNodes},
		{&corev1.PersistentVolumeClaim{}, ClaimsByClass, unbound(names.AnnotationListenerClass)},
		{&corev1.PersistentVolumeClaim{}, ClaimsByListener, unbound(names.AnnotationListenerName)},
		{&corev1.Pod{}, PodsByUID, PodUID},
		{&corev1.Pod{}, PodsByClaim, PodClaims},
		{&listenersv1alpha1.PodListeners{}, PodListenersByListener, PodListenersListeners},
		{&listenersv1alpha1.PodListeners{}, PodListenersByNode, PodListenersNode},
	} {
		if err := indexer.IndexField(ctx, i.object, i.name, i.extract); err != nil {
			return fmt.Errorf("adding index %s: %w", i.name, err)
		}
	}
	return nil
}

// List reads a list from the cache without copying the objects, which must not be changed. It is for the map functions
// of watches: an error, which only a missing index can cause, is logged and leaves the list empty.
func List(ctx context.Context, cache client.Reader, list client.ObjectList, options ...client.ListOption) {
	if err := cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing from the cache", "list", fmt.Sprintf("%T", list))
	}
}

// ListenerClass extracts the name of a Listener's class.
func ListenerClass(o client.Object) []string {
	return nonEmpty(o.(*listenersv1alpha1.Listener).Class())
}

// VolumeListenerKey is the value of VolumesByListener for a Listener.
func VolumeListenerKey(listener types.NamespacedName) string {
	return listener.String()
}

// VolumeListener extracts the Listener of one of our PersistentVolumes.
func VolumeListener(o client.Object) []string {
	labels := o.GetLabels()
	namespace, name := labels[names.LabelListenerNamespace], labels[names.LabelListenerName]
	if namespace == "" || name == "" {
		return nil
	}
	return []string{VolumeListenerKey(types.NamespacedName{Namespace: namespace, Name: name})}
}

// VolumeNodes extracts the nodes that one of our PersistentVolumes is reserved on: those that it is pinned to, else the
// one recorded at the last mount.
func VolumeNodes(o client.Object) []string {
	pv := o.(*corev1.PersistentVolume)
	if !claim.IsListenerVolume(pv) {
		return nil
	}
	if pinned := PinnedNodes(pv); len(pinned) > 0 {
		return pinned
	}
	return nonEmpty(pv.Annotations[names.AnnotationNode])
}

// PinnedNodes returns the nodes that a PersistentVolume's node affinity ties it to by names.TopologyKey, or nil.
func PinnedNodes(pv *corev1.PersistentVolume) []string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var nodes []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == names.TopologyKey && e.Operator == corev1.NodeSelectorOpIn {
				nodes = append(nodes, e.Values...)
			}
		}
	}
	return nodes
}

// PodUID extracts the uid of a Pod with claims; most Pods of a cluster have none.
func PodUID(o client.Object) []string {
	if len(PodClaims(o)) == 0 {
		return nil
	}
	return nonEmpty(string(o.GetUID()))
}

// unbound extracts an annotation of a claim that has no volume yet.
func unbound(key string) client.IndexerFunc {
	return func(o client.Object) []string {
		if o.(*corev1.PersistentVolumeClaim).Spec.VolumeName != "" {
			return nil
		}
		return nonEmpty(o.GetAnnotations()[key])
	}
}

// PodClaims extracts the claims that a Pod mounts.
func PodClaims(o client.Object) []string {
	pod := o.(*corev1.Pod)
	var claims []string
	for i := range pod.Spec.Volumes {
		if name := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			claims = append(claims, name)
		}
	}
	return claims
}

// ClaimName returns the claim behind a Pod's volume, which for an ephemeral volume is named after Pod and volume, or
// "".
func ClaimName(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	default:
		return ""
	}
}

// PodListenersListeners extracts the Listeners of a PodListeners.
func PodListenersListeners(o client.Object) []string {
	var listeners []string
	for _, l := range o.(*listenersv1alpha1.PodListeners).Spec.Listeners {
		listeners = append(listeners, nonEmpty(l.ListenerName)...)
	}
	return listeners
}

// PodListenersNode extracts the node of a PodListeners.
func PodListenersNode(o client.Object) []string {
	return nonEmpty(o.(*listenersv1alpha1.PodListeners).Spec.NodeName)
}

// Controller extracts the uid of what controls an object.
func Controller(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return nonEmpty(string(owner.UID))
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
