package claim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/message"
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

func IsInline(volume *corev1.Volume) bool {
	return volume.CSI != nil && volume.CSI.Driver == names.Driver
}

// Inline returns the claim that an inline volume stands for, which does not exist: the one that the volume would get if
// it were ephemeral. Its annotations are the attributes of the volume, and the Pod's uid is its uid.
func Inline(pod *corev1.Pod, volume *corev1.Volume) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: NameOf(pod, volume), UID: pod.UID, Annotations: volume.CSI.VolumeAttributes,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod,
			corev1.SchemeGroupVersion.WithKind("Pod"))},
	}}
	if certificate := pvc.Annotations[names.LabelCertificate]; certificate != "" {
		pvc.Labels = map[string]string{names.LabelCertificate: certificate}
	}
	return pvc
}

// InlinePod returns the owner reference to the Pod whose inline volume a claim stands for, or nil if the claim exists.
func InlinePod(claim *corev1.PersistentVolumeClaim) *metav1.OwnerReference {
	if pod := EphemeralPod(claim); pod != nil && pod.UID == claim.UID {
		return pod
	}
	return nil
}

// Field returns what the keys of a claim's annotations are: annotations, or attributes of an inline volume.
func Field(claim *corev1.PersistentVolumeClaim) string {
	if InlinePod(claim) != nil {
		return "attribute"
	}
	return "annotation"
}

// InlineProblem returns what is wrong with the attributes of an inline volume of a Pod, or "". claim is the one that
// the volume stands for, and existing its Listener, or nil.
func InlineProblem(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, existing *listenersv1alpha1.Listener) string {
	attributes := claim.Annotations
	selector, err := Requested(claim)
	if err != nil {
		return err.Error()
	}
	if problem := cmp.Or(attributeProblem(attributes), extraAttribute(attributes, selector)); problem != "" {
		return problem
	}
	switch keep := attributes[names.AttributeKeep]; {
	case len(validation.IsValidLabelValue(attributes[names.LabelCertificate])) > 0:
		return fmt.Sprintf("the attribute %s is not the name of a certificate; correct it", names.LabelCertificate)
	case keep == "", keep == "false", keep == "true" && KeepFor(pod, claim.Name, existing).IsKept():
		return ""
	default:
		return fmt.Sprintf("the attribute %s keeps the Listener for the next Pod of the same name, but no controller "+
			"creates one: the name of the Pod is random, or it has no controller; remove the attribute, or use a "+
			"StatefulSet", names.AttributeKeep)
	}
}

// attributeProblem returns what is wrong with an attribute of an inline volume, whatever the others are, or "".
func attributeProblem(attributes map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if problem := keys.Problem(keys.Volume, key, attributes[key]); problem != "" {
			return problem
		}
	}
	return ""
}

// extraAttribute returns that an attribute is not for volumes of a named Listener, or "".
func extraAttribute(attributes map[string]string, selector Selector) string {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		own := key != names.AnnotationListenerName && keys.Belongs(keys.Volume, key)
		if own && attributes[key] != "" && selector.Listener != "" {
			return fmt.Sprintf("the attribute %s is for volumes with a Listener of their own, and this one uses "+
				"Listener %s; remove the attribute",
				key, message.Printable(selector.Listener, maxName))
		}
	}
	return ""
}
