package claim

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// IsListenerVolume reports whether a PersistentVolume belongs to the CSI driver, whichever operator provisioned it.
func IsListenerVolume(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == names.Driver
}

// VolumeName returns the name of the PersistentVolume that is provisioned for a claim (contract: provisioning).
func VolumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// OtherVolume returns why the operator cannot create the volume of a claim again: the claim names another one; or "".
func OtherVolume(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.VolumeName == VolumeName(claim) {
		return ""
	}
	return fmt.Sprintf("PersistentVolume %s does not exist, and would not be the one of this claim, %s: the claim "+
		"was created with spec.volumeName, as a backup or a copy has it; delete the claim, and create it without "+
		"this field", claim.Spec.VolumeName, VolumeName(claim))
}

// Volume returns the volume of a claim for a Listener, with the current annotations (contract: provisioning).
func Volume(claim *corev1.PersistentVolumeClaim, listener string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: VolumeName(claim),
			Labels: map[string]string{names.LabelListenerNamespace: claim.Namespace,
				names.LabelListenerName: names.ListenerLabel(listener)},
			Annotations: map[string]string{volumehelpers.AnnDynamicallyProvisioned: names.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID,
			},
			StorageClassName: volumehelpers.GetPersistentVolumeClaimClass(claim),
			AccessModes:      claim.Spec.AccessModes,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:           names.Driver,
				VolumeHandle:     VolumeName(claim),
				VolumeAttributes: maps.Clone(claim.Annotations),
			}},
		},
	}
}

// IsBoundTo reports whether a PersistentVolume is a listener volume which is bound to the claim.
func IsBoundTo(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return IsListenerVolume(pv) && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID
}

// VolumeSelector reads the selector that a listener volume was provisioned with. Any other volume has none.
func VolumeSelector(pv *corev1.PersistentVolume) (Selector, error) {
	if !IsListenerVolume(pv) {
		return Selector{}, ErrNoSelector
	}
	selector, err := ParseSelector(pv.Spec.CSI.VolumeAttributes)
	if errors.Is(err, ErrBothSelectors) {
		err = nil
	}
	return selector, err
}

// VolumeNodes returns the nodes that a listener volume is pinned to, or else the one on which it was last mounted.
func VolumeNodes(pv *corev1.PersistentVolume) []string {
	if !IsListenerVolume(pv) {
		return nil
	}
	if pinned := PinnedNodes(pv); len(pinned) > 0 {
		return pinned
	}
	if node := pv.Annotations[names.AnnotationNode]; node != "" {
		return []string{node}
	}
	return nil
}

// PinnedNodes returns the nodes to which the node affinity of a PersistentVolume restricts it by names.TopologyKey.
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

// NodeAffinity returns the node affinity that pins a PersistentVolume to a node.
func NodeAffinity(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// WillBeDeleted reports whether the garbage collector is going to delete the Listener of an earlier claim of this name:
// neither this claim nor its volume owns it, and nothing keeps it for the next Pod.
func WillBeDeleted(listener *listenersv1alpha1.Listener, claim *corev1.PersistentVolumeClaim) bool {
	return len(listener.OwnerReferences) > 0 && !KeepOf(listener).IsKept() &&
		!slices.ContainsFunc(listener.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == claim.UID || o.Kind == "PersistentVolume" && o.Name == VolumeName(claim)
		})
}
