// Package predicates has the filters of watches that several controllers share. It decides from two versions of an
// object alone.
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

// AfterStart leaves out what is there when a watch begins. It is for watches of what the requests depend on, where all
// requests are made at that time by the watch of what they are about: in a large cluster, to find them again for each
// object takes longer than the work itself.
func AfterStart() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}
}
