package claim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Request is what a volume of a Pod requests, which has a claim or is inline.
type Request struct {
	Namespace string
	// Name is the name of the claim. An inline volume has the name that its claim would have if it were ephemeral.
	Name string
	// Annotations are those of the claim, or the attributes of the inline volume.
	Annotations map[string]string
	// Labels are those of the claim. An inline volume has the label that names a certificate, if an attribute does.
	Labels map[string]string
	// Owners own a Listener that is created for the request: the claim and its PersistentVolume, or the Pod.
	Owners []metav1.OwnerReference
	Inline bool
}

// OfClaim returns the request of a claim. pv is nil until its volume is provisioned.
func OfClaim(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) Request {
	r := Request{Namespace: claim.Namespace, Name: claim.Name, Annotations: claim.Annotations, Labels: claim.Labels,
		Owners: []metav1.OwnerReference{ownerOf("PersistentVolumeClaim", claim)}}
	if pv != nil {
		r.Owners = append(r.Owners, ownerOf("PersistentVolume", pv))
	}
	return r
}

// OfInline returns the request of an inline volume of a Pod.
func OfInline(pod *corev1.Pod, volume *corev1.Volume) Request {
	r := Request{Namespace: pod.Namespace, Name: NameOf(pod, volume), Annotations: volume.CSI.VolumeAttributes,
		Owners: []metav1.OwnerReference{ownerOf("Pod", pod)}, Inline: true}
	if certificate := r.Annotations[names.LabelCertificate]; certificate != "" {
		r.Labels = map[string]string{names.LabelCertificate: certificate}
	}
	return r
}

func ownerOf(kind string, o metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}

// Field returns what the keys of Annotations are for users.
func (r Request) Field() string {
	if r.Inline {
		return "attribute"
	}
	return "annotation"
}

// Selector returns what is requested, or an error that also says what the author may have meant instead.
func (r Request) Selector() (Selector, error) {
	selector, err := ParseSelector(r.Annotations)
	if errors.Is(err, ErrNoSelector) {
		err = fmt.Errorf("%w%s", err, r.DidYouMean())
	}
	return selector, err
}

// DidYouMean returns what is wrong with an annotation, label or attribute of a request that names no class and no
// Listener, or "". It begins with a separator.
func (r Request) DidYouMean() string {
	problem := attributeProblem(r.Annotations)
	if !r.Inline {
		object := &metav1.ObjectMeta{Annotations: r.Annotations, Labels: r.Labels}
		problem, _, _ = strings.Cut(strings.Join(keys.Problems("a claim", object), "\n"), "\n")
	}
	return strings.TrimSuffix("; "+problem, "; ")
}

// InlineProblem returns what is wrong with the attributes of an inline volume of a Pod, or "". existing is its
// Listener, or nil.
func (r Request) InlineProblem(pod *corev1.Pod, existing *listenersv1alpha1.Listener) string {
	selector, err := r.Selector()
	if err != nil {
		return err.Error()
	}
	if problem := cmp.Or(attributeProblem(r.Annotations), extraAttribute(r.Annotations, selector)); problem != "" {
		return problem
	}
	switch keep := r.Annotations[names.AttributeKeep]; {
	case len(validation.IsValidLabelValue(r.Annotations[names.LabelCertificate])) > 0:
		return fmt.Sprintf("the attribute %s is not the name of a certificate; correct it", names.LabelCertificate)
	case keep == "", keep == "false", keep == "true" && KeepFor(pod, r.Name, existing).IsKept():
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
				"Listener %s; remove the attribute", key, message.Printable(selector.Listener, maxName))
		}
	}
	return ""
}

// Ports returns the ports of the Listener of a class-based request: those that names.AnnotationPorts lists, in its
// order, or else all of the Pod. problem names the listed ports that the Pod does not have, or is empty.
func (r Request) Ports(pod *corev1.Pod) (ports []listenersv1alpha1.ListenerPort, problem string) {
	all := PodPorts(pod)
	listed := keys.List(r.Annotations[names.AnnotationPorts])
	if len(listed) == 0 {
		return all, ""
	}
	byName, seen := map[string]listenersv1alpha1.ListenerPort{}, sets.New[string]()
	var existing, missing []string
	for _, p := range all {
		byName[p.Name] = p
		existing = append(existing, p.Name)
	}
	for _, name := range listed {
		p, exists := byName[name]
		switch {
		case seen.Has(name):
		case exists:
			ports = append(ports, p)
		default:
			missing = append(missing, fmt.Sprintf("%q", message.Printable(name, maxName)))
		}
		seen.Insert(name)
	}
	if len(missing) > 0 {
		problem = fmt.Sprintf("the %s %s lists %s, but the containers of Pod %s have only the ports %s; correct the "+
			"%[1]s", r.Field(), names.AnnotationPorts, message.List(missing), pod.Name, message.List(existing))
	}
	return ports, problem
}

// OtherUser returns why the Listener of a request's name is not for the request, which is of a Pod, or "": a user has
// created it, it is kept for another Pod, or another claim or Pod owns it. An earlier Pod of the same name is no other.
func (r Request) OtherUser(listener *listenersv1alpha1.Listener, pod *corev1.Pod) string {
	i := slices.IndexFunc(listener.OwnerReferences, func(o metav1.OwnerReference) bool {
		return isPod(o) && (!r.Inline || o.Name != pod.Name) ||
			r.Inline && o.APIVersion == "v1" && o.Kind == "PersistentVolumeClaim"
	})
	switch kept := listener.Annotations[names.AnnotationKeptFor]; {
	case !OwnsListener(listener):
		return "was not created for a claim or volume"
	case kept != "" && kept != pod.Name:
		return fmt.Sprintf("is kept for volume %s of Pod %s", strings.TrimPrefix(listener.Name, kept+"-"),
			message.Printable(kept, maxName))
	case i >= 0:
		return fmt.Sprintf("belongs to %s %s", listener.OwnerReferences[i].Kind, listener.OwnerReferences[i].Name)
	}
	return ""
}

// Listener returns the desired Listener of a class-based request. It has the labels of the claim but never its owners:
// consumers delete what has both (contract: labels and the owner reference). The name and the index of the Pod come
// from podLabels: the labels of the Pod, or else of the existing Listener.
func (r Request) Listener(class string, ports []listenersv1alpha1.ListenerPort,
	podLabels map[string]string) *unstructured.Unstructured {
	list := []any{}
	for _, p := range ports {
		port := map[string]any{"name": p.Name, "port": int64(p.Port)}
		if p.Protocol != nil {
			port["protocol"] = string(*p.Protocol)
		}
		list = append(list, port)
	}
	desired := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": listenersv1alpha1.GroupVersion.String(),
		"kind":       "Listener",
		"metadata": map[string]any{
			"name": r.Name, "namespace": r.Namespace,
			"annotations": map[string]any{names.AnnotationClaim: r.Name},
		},
		"spec": map[string]any{"className": class, "ports": list, "publishNotReadyAddresses": true},
	}}
	desired.SetOwnerReferences(r.Owners)
	all := map[string]string{}
	for _, key := range []string{appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel} {
		if value, ok := podLabels[key]; ok {
			all[key] = value
		}
	}
	maps.Copy(all, r.Labels)
	if len(all) > 0 {
		desired.SetLabels(all)
	}
	return desired
}
