// Package claim interprets claims: which claims a Pod mounts, which Listener a claim requests, which PersistentVolumes
// are listener volumes and on which nodes, and which Listener a class-based claim gets. The provisioner and the
// podlisteners controller both apply such Listeners, and agree on them by this package. An inline volume requests a
// Listener as a claim does: see Request. The package is pure: it must never read or write the API.
package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Selector is what a claim requests: a Listener of its own, of a class, or an existing Listener. Either field is set.
type Selector struct {
	// Class is the name of a class. The claim gets a Listener of its own.
	Class    string
	Listener string
}

var (
	ErrNoSelector = fmt.Errorf("neither %s nor %s is set: set the one that names the class or the Listener to use",
		names.AnnotationListenerClass, names.AnnotationListenerName)
	// ErrBothSelectors means that both annotations are set. ParseSelector returns the class with it, by which
	// Stackable's listener operator provisioned such volumes (contract: provisioning).
	ErrBothSelectors = fmt.Errorf("both %s and %s are set: remove one of them",
		names.AnnotationListenerClass, names.AnnotationListenerName)
)

// ParseSelector reads the annotations of a claim, or the attributes of a volume, which once were those of its claim.
func ParseSelector(annotations map[string]string) (Selector, error) {
	class, listener := annotations[names.AnnotationListenerClass], annotations[names.AnnotationListenerName]
	switch {
	case class != "" && listener != "":
		return Selector{Class: class}, ErrBothSelectors
	case class == "" && listener == "":
		return Selector{}, ErrNoSelector
	}
	return Selector{Class: class, Listener: listener}, nil
}

// Follow returns the selector of a volume that was provisioned with s, and whose claim has these annotations now. Only
// the class is followed, so that the Listener stays; ignored reports any other change. Without a selector, s holds.
func (s Selector) Follow(annotations map[string]string) (now Selector, ignored bool) {
	requested, err := ParseSelector(annotations)
	switch {
	case errors.Is(err, ErrNoSelector):
		return s, false
	case s.Class != "" && requested.Class != "":
		return requested, false
	}
	return s, requested != s
}

// IsListenerClaim reports whether the driver provisions a claim. Kubernetes annotates a claim with its provisioner,
// unless its volume exists already at that time.
func IsListenerClaim(claim metav1.Object) bool {
	provisioner := claim.GetAnnotations()[names.AnnotationProvisioner]
	if provisioner == "" {
		_, err := ParseSelector(claim.GetAnnotations())
		return err == nil
	}
	return provisioner == names.Driver
}

// ListenerName returns the name of the Listener of a claim with this selector: that of the claim if it names a class.
func (s Selector) ListenerName(claimName string) string {
	if s.Class != "" {
		return claimName
	}
	return s.Listener
}

// ListenerNameProblem returns why no Listener can have this name, which a user has written into an annotation, or "".
func ListenerNameProblem(name string) string {
	problems := validation.IsDNS1123Subdomain(name)
	switch {
	case len(problems) == 0:
		return ""
	case strings.Contains(name, "/"):
		return fmt.Sprintf("%s is %q, and must be the name alone: a Pod can only use a Listener of its own "+
			"namespace; remove the namespace and the slash, or create a Listener in the Pod's namespace",
			names.AnnotationListenerName, message.Printable(name, maxName))
	}
	return fmt.Sprintf("the annotation %s is %q, which no Listener can have as its name: %s; write the name of the "+
		"Listener there", names.AnnotationListenerName, message.Printable(name, maxName), problems[0])
}

// maxName is the maximum length of a name in a message: that of names in Kubernetes.
const maxName = validation.DNS1123SubdomainMaxLength

// EphemeralPod returns the owner reference to the Pod of an ephemeral claim, or nil if the claim is not ephemeral.
// Kubernetes deletes the claim with this Pod, and no other one mounts it.
func EphemeralPod(claim metav1.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "Pod" {
		return owner
	}
	return nil
}

// OwnsListener reports whether a Listener was created for the claim of its name, rather than by a user: its annotation
// says so or, if Stackable's operator created it, its owners, which all are PersistentVolumes or claims.
func OwnsListener(listener *listenersv1alpha1.Listener) bool {
	return listener.Annotations[names.AnnotationClaim] == listener.Name || len(listener.OwnerReferences) > 0 &&
		!slices.ContainsFunc(listener.OwnerReferences,
			func(o metav1.OwnerReference) bool { return !isOfClaim(listener, o) })
}

// isOfClaim reports whether an owner of a Listener is a PersistentVolume or the claim of its name.
func isOfClaim(listener *listenersv1alpha1.Listener, o metav1.OwnerReference) bool {
	return o.APIVersion == "v1" && (o.Kind == "PersistentVolume" ||
		o.Kind == "PersistentVolumeClaim" && o.Name == listener.Name)
}

type Keep struct {
	// Pod is the name of the next Pod, or "" if the Listener is not kept. Earlier versions recorded owners alone.
	Pod string
	// Owners are the controller that creates the next Pod, and what controls that, or none if they were deleted.
	Owners []metav1.OwnerReference
}

func KeepOf(listener *listenersv1alpha1.Listener) (k Keep) {
	if !OwnsListener(listener) {
		return k
	}
	k.Pod = listener.Annotations[names.AnnotationKeptFor]
	for _, o := range listener.OwnerReferences {
		if !isOfClaim(listener, o) && !isPod(o) {
			k.Owners = append(k.Owners, o)
		}
	}
	return k
}

// IsKept reports whether the Listener of an ephemeral claim or an inline volume is kept for the next Pod of a name.
func (k Keep) IsKept() bool { return k.Pod != "" || len(k.Owners) > 0 }

// KeepFor returns how to keep the Listener of an ephemeral claim or an inline volume for the next Pod of a name.
// existing may be nil. One that is kept for the Pod already stays so when the Pod loses its controller.
func KeepFor(pod *corev1.Pod, claimName string, existing *listenersv1alpha1.Listener) (k Keep) {
	if existing != nil && existing.Annotations[names.AnnotationKeptFor] == pod.Name && asksToKeep(pod, claimName) {
		k = KeepOf(existing)
	}
	if keeper := Keeper(pod, claimName); keeper != nil {
		k.Pod = pod.Name
		k = k.With(keeper)
	}
	return k
}

// With adds an owner, unless it is nil or one of Stackable's operators, which delete what they own (contract).
func (k Keep) With(owner *metav1.OwnerReference) Keep {
	known := func(o metav1.OwnerReference) bool { return o.UID == owner.UID }
	if owner == nil || strings.Contains(owner.APIVersion, ".stackable.tech/") || slices.ContainsFunc(k.Owners, known) {
		return k
	}
	k.Owners = append(slices.Clip(k.Owners), metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind,
		Name: owner.Name, UID: owner.UID})
	return k
}

// Keeper returns the controller of a Pod that keeps the Listener of an ephemeral claim, or of an inline volume that
// requests it, for the next Pod of the name, or nil. Pods with random names have none, nor have those that Stackable's
// operators control: these delete what they own (contract: labels and the owner reference).
func Keeper(pod *corev1.Pod, claimName string) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil, isPod(*owner), !asksToKeep(pod, claimName):
		return nil
	case pod.GenerateName != "" && pod.Labels[appsv1.StatefulSetPodNameLabel] != pod.Name,
		strings.Contains(owner.APIVersion, ".stackable.tech/"):
		return nil
	}
	return &metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

func asksToKeep(pod *corev1.Pod, claimName string) bool {
	volumes, _ := Volumes(pod)
	return slices.ContainsFunc(volumes, func(v *corev1.Volume) bool {
		keeps := v.Ephemeral != nil || IsInline(v) && v.CSI.VolumeAttributes[names.AttributeKeep] == "true"
		return keeps && NameOf(pod, v) == claimName
	})
}

// Apply makes a desired Listener a kept one. Without Owners it has none at all, because the garbage collector would
// delete it with its Pod: the operator does so later.
func (k Keep) Apply(desired *unstructured.Unstructured) *unstructured.Unstructured {
	if k.Pod != "" {
		annotations := desired.GetAnnotations()
		annotations[names.AnnotationKeptFor] = k.Pod
		desired.SetAnnotations(annotations)
	}
	if len(k.Owners) == 0 && k.Pod != "" {
		desired.SetOwnerReferences(nil)
	} else {
		desired.SetOwnerReferences(append(desired.GetOwnerReferences(), k.Owners...))
	}
	return desired
}

func isPod(o metav1.OwnerReference) bool { return o.APIVersion == "v1" && o.Kind == "Pod" }

func HasOwner(listener *listenersv1alpha1.Listener, uid types.UID) bool {
	return slices.ContainsFunc(listener.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// ClassField returns where the class of a Listener is named. The Listener of a claim has the class of the claim.
func ClassField(listener *listenersv1alpha1.Listener) string {
	if OwnsListener(listener) {
		return names.AnnotationListenerClass + " of its claim or volume"
	}
	return "spec.className"
}
