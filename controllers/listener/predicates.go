package listener

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// controlledOrDeleted passes objects that a Listener controls or has controlled, and the deletion of any object, which
// may have had a name that a Listener needs. If objects are exclusive, it passes changes of any of them, too.
func controlledOrDeleted(exclusive bool) predicate.Predicate {
	controlled := func(o client.Object) bool { return controllingListener(o) != nil }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return controlled(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return exclusive || controlled(e.ObjectOld) || controlled(e.ObjectNew) },
	}
}

// podMattersToListener passes Pods with claims that are created or deleted, begin to terminate, have just finished, or
// whose labels changed, which a Listener may select, but for those that name a mounted Listener.
func podMattersToListener() predicate.Predicate {
	claims := func(o client.Object) bool { return len(index.PodClaims(o)) > 0 }
	ownLabels := func(o client.Object) map[string]string {
		labels := maps.Clone(o.GetLabels())
		maps.DeleteFunc(labels, func(label, _ string) bool { return strings.HasPrefix(label, names.PodMountLabelPrefix) })
		return labels
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return claims(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return claims(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			return claims(after) && (before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
				claim.PodFinished(before) != claim.PodFinished(after) || !maps.Equal(ownLabels(before), ownLabels(after)))
		},
	}
}

// specLabelsOrStatusChanged passes Listeners whose spec, deletion timestamp or labels, which the Service inherits,
// changed, and those whose status another writer has overwritten. It does not pass what this controller writes.
func specLabelsOrStatusChanged() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{},
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			listener := o.(*listenersv1alpha1.Listener)
			return listener.Status == nil || listener.Status.ObservedGeneration != listener.Generation
		}),
	)
}

// reservationChanged passes listener volumes that are created, deleted or released, or have another Listener or node.
func reservationChanged() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return claim.IsListenerVolume(o.(*corev1.PersistentVolume)) }),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return !slices.Equal(index.VolumeListener(e.ObjectOld), index.VolumeListener(e.ObjectNew)) ||
				!slices.Equal(index.VolumeNodes(e.ObjectOld), index.VolumeNodes(e.ObjectNew)) ||
				!released(e.ObjectOld) && released(e.ObjectNew)
		}},
	)
}

func released(o client.Object) bool {
	return o.(*corev1.PersistentVolume).Status.Phase == corev1.VolumeReleased
}

// clusterDomainChanged passes a ListenerOperator that is created, is deleted, or has another cluster domain.
func clusterDomainChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		domain := func(o client.Object) string { return o.(*operatorv1alpha1.ListenerOperator).Spec.ClusterDomain }
		return domain(e.ObjectOld) != domain(e.ObjectNew)
	}}
}

// trimmedChanged passes objects that are created or deleted, or differ in more than their version.
func trimmedChanged() predicate.Predicate {
	unversioned := func(o client.Object) client.Object {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		return o
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !equality.Semantic.DeepEqual(unversioned(e.ObjectOld), unversioned(e.ObjectNew))
		},
	}
}
