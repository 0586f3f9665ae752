package exposure

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// ControllingListener returns the owner reference to the Listener that controls an object, or nil.
func ControllingListener(o metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(o)
	kind := listenersv1alpha1.GroupVersion.WithKind("Listener").GroupKind()
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kind {
		return nil
	}
	return owner
}

// ListenerOf returns the name of the Listener that controls an object, or RestoredFor of it.
func ListenerOf(o metav1.Object) string {
	if owner := ControllingListener(o); owner != nil {
		return owner.Name
	}
	return RestoredFor(o)
}

func SetOwner(o metav1.Object, listener *listenersv1alpha1.Listener) {
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(listener,
		listenersv1alpha1.GroupVersion.WithKind("Listener"))})
}
