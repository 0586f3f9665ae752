// Package claim reads what a claim asks for, and decides what the Listener of a class-based claim looks like. It is
// pure: the provisioner and the podlisteners controller, which both make such Listeners, agree by sharing it.
package claim

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Selector is what a claim asks for: a Listener of its own, of a class, or an existing Listener. One of the two is set.
type Selector struct {
	// Class is the name of the class of the claim's own Listener.
	Class string
	// Listener is the name of an existing Listener in the claim's namespace.
	Listener string
}

// Errors of ParseSelector.
var (
	// ErrNoSelector means that neither annotation is there.
	ErrNoSelector = fmt.Errorf("the claim has neither the annotation %s nor %s: set the one that names the class or the Listener to use",
		names.AnnotationListenerClass, names.AnnotationListenerName)
	// ErrBothSelectors means that both annotations are there. It comes with the selector of the class, which won when
	// volumes with both were provisioned (contract 1.3), so that such volumes go on working.
	ErrBothSelectors = fmt.Errorf("the claim has both the annotations %s and %s: remove one of them",
		names.AnnotationListenerClass, names.AnnotationListenerName)
)

// ParseSelector reads the annotations of a claim, or the attributes of a volume, which are those annotations as they
// were when the volume was provisioned.
func ParseSelector(annotations map[string]string) (Selector, error) {
	class, listener := annotations[names.AnnotationListenerClass], annotations[names.AnnotationListenerName]
	switch {
	case class != "" && listener != "":
		return Selector{Class: class}, ErrBothSelectors
	case class == "" && listener == "":
		return Selector{}, ErrNoSelector
	default:
		return Selector{Class: class, Listener: listener}, nil
	}
}

// IsListenerVolume reports whether a PersistentVolume belongs to our CSI driver, whichever operator provisioned it.
func IsListenerVolume(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == names.Driver
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

// ListenerName is the name of the Listener that a claim with this selector uses: a Listener of its own is named like
// the claim.
func (s Selector) ListenerName(claimName string) string {
	if s.Class != "" {
		return claimName
	}
	return s.Listener
}

// PodPorts are the ports of a Listener that is made for a Pod: all of its containers' ports, but not those of init
// containers. A port without a name is called "port-" and its number (contract 1.4).
func PodPorts(pod *corev1.Pod) []listenersv1alpha1.ListenerPort {
	var ports []listenersv1alpha1.ListenerPort
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			port := listenersv1alpha1.ListenerPort{Name: p.Name, Port: p.ContainerPort}
			if port.Name == "" {
				port.Name = fmt.Sprintf("port-%d", p.ContainerPort)
			}
			if p.Protocol != "" {
				port.Protocol = &p.Protocol
			}
			ports = append(ports, port)
		}
	}
	return ports
}

// PodFinished reports whether a Pod has run to its end, which is final. A finished Pod mounts nothing, although it and
// its PodListeners exist.
func PodFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// OwnedBy tells whether a Listener was made for the claim, or for an earlier claim of the same name, rather than by a
// user. Such a Listener has volumes or claims as its owners, and nothing else.
func OwnedBy(listener *listenersv1alpha1.Listener, claim *corev1.PersistentVolumeClaim) bool {
	for _, owner := range listener.OwnerReferences {
		switch {
		case owner.APIVersion != "v1":
			return false
		case owner.Kind == "PersistentVolume":
		case owner.Kind == "PersistentVolumeClaim" && owner.Name == claim.Name:
		default:
			return false
		}
	}
	return len(listener.OwnerReferences) > 0
}

// Owns tells whether a Listener was made for a claim of its own name, rather than by a user.
func Owns(listener *listenersv1alpha1.Listener) bool {
	return OwnedBy(listener, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: listener.Name}})
}

// Listener is the desired Listener of a class-based claim that pod mounts. It carries the claim's labels but never its
// owners: consumers delete what has both (contract 1.1, rule 5). pv is nil while there is no volume yet.
func Listener(
	claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, class string, ports []listenersv1alpha1.ListenerPort,
) *unstructured.Unstructured {
	owners := []any{owner("PersistentVolumeClaim", claim.Name, claim.UID)}
	if pv != nil {
		owners = append(owners, owner("PersistentVolume", pv.Name, pv.UID))
	}
	desired := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": listenersv1alpha1.GroupVersion.String(),
		"kind":       "Listener",
		"metadata": map[string]any{
			"name":            claim.Name,
			"namespace":       claim.Namespace,
			"ownerReferences": owners,
		},
		"spec": map[string]any{
			"className":                class,
			"ports":                    portList(ports),
			"publishNotReadyAddresses": true,
		},
	}}
	if len(claim.Labels) > 0 {
		desired.SetLabels(claim.Labels)
	}
	return desired
}

func owner(kind, name string, uid types.UID) any {
	return map[string]any{"apiVersion": "v1", "kind": kind, "name": name, "uid": string(uid)}
}

func portList(ports []listenersv1alpha1.ListenerPort) []any {
	list := make([]any, 0, len(ports))
	for _, p := range ports {
		port := map[string]any{"name": p.Name, "port": int64(p.Port)}
		if p.Protocol != nil {
			port["protocol"] = string(*p.Protocol)
		}
		list = append(list, port)
	}
	return list
}
