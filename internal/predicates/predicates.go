// Package predicates has the filters of watches that several controllers share. It decides from two versions of an object alone.
package predicates

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// NodeReaddressed passes Nodes that come, go, or change their addresses, but not their heartbeats.
func NodeReaddressed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*corev1.Node).Status.Addresses, e.ObjectNew.(*corev1.Node).Status.Addresses)
	}}
}
