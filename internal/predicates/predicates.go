// Package predicates has watch predicates that controllers share. They compare versions of an object, and nothing else.
package predicates

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Changed passes objects that are created or deleted, and updates that change what value returns.
func Changed[T client.Object](value func(T) any) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(value(e.ObjectOld.(T)), value(e.ObjectNew.(T)))
	}}
}

func ExistenceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// NodeAddressesChanged passes Nodes that are created, deleted, or change their addresses or what overrides them.
func NodeAddressesChanged() predicate.Predicate {
	return Changed(func(n *corev1.Node) any {
		return []any{n.Annotations[names.AnnotationAdvertisedAddress], n.Status.Addresses}
	})
}

func NodeReadinessChanged() predicate.Predicate {
	return Changed(func(n *corev1.Node) any { return claim.NodeReady(n) })
}

// NodeSchedulingChanged passes Nodes that are created, deleted, or change what decides which Pods they take.
func NodeSchedulingChanged() predicate.Predicate {
	return Changed(func(n *corev1.Node) any { return []any{n.Spec.Unschedulable, n.Labels, n.Spec.Taints} })
}

// NotInInitialList drops the objects that exist when a watch starts. It is for watches of dependencies, if all objects
// are requested anyway: in a large cluster, to map each dependency to the same requests takes longer than to reconcile.
func NotInInitialList() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}
}

func Deleted() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// StatusIgnored drops updates that change nothing but the status of a PersistentVolume or PersistentVolumeClaim. It
// passes the updates by which a cache repeats an object.
func StatusIgnored() predicate.Predicate {
	return predicate.Or(predicate.Not(predicate.ResourceVersionChangedPredicate{}), Changed(withoutStatus))
}

// withoutStatus returns the metadata and the spec of an object, apart from what each write changes.
func withoutStatus(o client.Object) any {
	var metadata metav1.ObjectMeta
	var spec any
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		metadata, spec = o.ObjectMeta, o.Spec
	case *corev1.PersistentVolumeClaim:
		metadata, spec = o.ObjectMeta, o.Spec
	}
	metadata.ResourceVersion, metadata.ManagedFields = "", nil
	return []any{metadata, spec}
}
