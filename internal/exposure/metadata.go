package exposure

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// NewObject returns an object that is generated for a Listener, in its namespace and with it as the controller. labels
// are those of the class for this kind of object.
func NewObject(l *Listener, kind schema.GroupVersionKind, name string, labels, annotations map[string]string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(l.Namespace)
	o.SetName(name)
	o.SetLabels(Labels(l.Listener, labels))
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	SetOwner(o, l.Listener)
	return o
}

// SetOwner makes the Listener the controller of an object that is generated for it.
func SetOwner(o metav1.Object, listener *listenersv1alpha1.Listener) {
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))})
}
