package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// IsInline reports whether a volume of a Pod is an inline volume of the CSI driver.
func IsInline(volume *corev1.Volume) bool {
	return volume.CSI != nil && volume.CSI.Driver == names.Driver
}

// Inline returns the claim that an inline volume stands for, which does not exist: the one that the volume would get if
// it were ephemeral. Its annotations are the attributes of the volume, and the Pod's uid is its uid.
func Inline(pod *corev1.Pod, volume *corev1.Volume) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: NameOf(pod, volume), UID: pod.UID, Annotations: volume.CSI.VolumeAttributes,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
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

// inlineAttributes are the attributes that an inline volume may have.
var inlineAttributes = []string{
	names.AnnotationListenerClass, names.AnnotationListenerName, names.AnnotationPorts, names.AttributeKeep, names.LabelCertificate,
}

// InlineProblem returns what is wrong with the attributes of an inline volume of a Pod, or "". claim is the one that
// the volume stands for. Unlike annotations, which others may add, attributes without a domain are the driver's.
func InlineProblem(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) string {
	attributes := claim.Annotations
	selector, err := Requested(claim)
	if err != nil {
		return err.Error()
	}
	if problem := extraAttribute(attributes, selector); problem != "" {
		return problem
	}
	switch keep := attributes[names.AttributeKeep]; {
	case len(validation.IsValidLabelValue(attributes[names.LabelCertificate])) > 0:
		return fmt.Sprintf("the attribute %s is not the name of a certificate; correct it", names.LabelCertificate)
	case keep == "", keep == "false", keep == "true" && Keeper(pod, claim.Name) != nil:
		return ""
	case keep != "true":
		return fmt.Sprintf("the attribute %s is %q, and must be true or false", names.AttributeKeep, message.Printable(keep, maxName))
	default:
		return fmt.Sprintf("the attribute %s keeps the Listener for the next Pod of the same name, but no controller creates one: the name of the Pod is random, "+
			"or it has no controller; remove the attribute, or use a StatefulSet", names.AttributeKeep)
	}
}

// extraAttribute returns what is wrong with an attribute: it is unknown, or not for volumes of a named Listener; or "".
func extraAttribute(attributes map[string]string, selector Selector) string {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		domain, _, qualified := strings.Cut(strings.ToLower(key), "/")
		if !slices.Contains(inlineAttributes, key) && (!qualified || strings.HasPrefix(domain, "listener") || nearest(key) != "") {
			return fmt.Sprintf("the attribute %s is unknown; the driver knows %s", message.Printable(key, maxName), strings.Join(inlineAttributes, ", "))
		}
	}
	for _, key := range inlineAttributes[2:] {
		if _, ok := attributes[key]; ok && selector.Listener != "" {
			return fmt.Sprintf("the attribute %s is for volumes with a Listener of their own, and this one uses Listener %s; remove the attribute",
				key, message.Printable(selector.Listener, maxName))
		}
	}
	return ""
}
