package listener

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// controls reports whether an object belongs to the Listener: the Listener controls it, whatever API version its owner
// reference names, or it comes from a backup. An object of another namespace it never controls, although that may name
// its UID.
func controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.UID == listener.UID && o.GetNamespace() == listener.Namespace || isRestored(listener, o)
}

// isRestored reports whether an object was generated for a Listener of this name, and comes from a backup.
func isRestored(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return exposure.RestoredFor(o) == names.ListenerLabel(listener.Name) && o.GetNamespace() == listener.Namespace
}

// controlledByNamesake reports whether a Listener of the same name, but not this one, controls the object.
func controlledByNamesake(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.Name == listener.Name && owner.UID != listener.UID
}

// beingDeleted reports whether an object of the Listener, or of an earlier Listener of this name, is being deleted.
func beingDeleted(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return controlledByNamesake(listener, o) || controls(listener, o) && !o.GetDeletionTimestamp().IsZero()
}

// listenerOf returns the key of the Listener that an object belongs to by exposure.ListenerOf. ok is false if there is
// none.
func listenerOf(o metav1.Object) (listener types.NamespacedName, ok bool) {
	name := exposure.ListenerOf(o)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// describeController describes the controller of an object in a message.
func describeController(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "has no controller"
	}
	return fmt.Sprintf("is controlled by %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
}
