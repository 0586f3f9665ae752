package listener

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// controls reports whether the Listener controls the object, whatever API version its owner reference names. An object
// of another namespace it never controls, although that may name its UID.
func controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := controllingListener(o)
	return owner != nil && owner.UID == listener.UID && o.GetNamespace() == listener.Namespace
}

// isRestored reports whether an object was generated for a Listener of this name, and comes from a backup: it has the
// labels of such an object and no owners, which backups drop. An object that people write has no such labels.
func isRestored(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	labels := o.GetLabels()
	return len(o.GetOwnerReferences()) == 0 && labels[names.LabelManagedBy] == names.ServiceManagedBy &&
		labels["app.kubernetes.io/name"] == names.ServiceAppName && labels["app.kubernetes.io/instance"] == names.ListenerLabel(listener.Name)
}

// controlledByNamesake reports whether a Listener of the same name, but not this one, controls the object.
func controlledByNamesake(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := controllingListener(o)
	return owner != nil && owner.Name == listener.Name && owner.UID != listener.UID
}

// beingDeleted reports whether an object of the Listener, or of an earlier Listener of this name, is being deleted.
func beingDeleted(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return controlledByNamesake(listener, o) || controls(listener, o) && !o.GetDeletionTimestamp().IsZero()
}

// controllingListener returns the owner reference to the Listener that controls an object, or nil.
func controllingListener(o metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(o)
	kind := listenersv1alpha1.GroupVersion.WithKind("Listener").GroupKind()
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kind {
		return nil
	}
	return owner
}

// listenerOf returns the namespace and the name of the Listener that controls an object. ok is false if none does.
func listenerOf(o metav1.Object) (listener types.NamespacedName, ok bool) {
	owner := controllingListener(o)
	if owner == nil {
		return listener, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, true
}

// describeController describes the controller of an object in a message.
func describeController(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "has no controller"
	}
	return fmt.Sprintf("is controlled by %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
}
