package exposure

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Labels returns the labels of an object that is generated for a Listener: those of the Listener, overridden by those
// of the class for this kind of object, overridden by three of the recommended labels, which describe the object
// itself.
func Labels(listener *listenersv1alpha1.Listener, class map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, listener.Labels)
	maps.Copy(labels, class)
	labels["app.kubernetes.io/name"] = names.ServiceAppName
	labels["app.kubernetes.io/instance"] = listener.Name
	labels["app.kubernetes.io/managed-by"] = names.ServiceManagedBy
	return labels
}

// SetOwner makes the Listener the controller of an object that is generated for it.
func SetOwner(o metav1.Object, listener *listenersv1alpha1.Listener) {
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: listenersv1alpha1.GroupVersion.String(), Kind: "Listener", Name: listener.Name, UID: listener.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}})
}
