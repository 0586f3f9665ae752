package podlisteners

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	changes := predicates.NotInInitialList() // the first two watches enqueue all requests at the start
	const workers = 16                       // as many Pods as a node commonly starts at once
	nodeToPodListeners := index.Mapping[listenersv1alpha1.PodListenersList](r.Client, index.Request,
		index.PodListenersByNode)
	b := requests.Controller(mgr, "podlisteners", workers).For(&listenersv1alpha1.PodListeners{})
	requests.Watch(b, &corev1.Pod{}, r.podToPodListeners, podToMountChanged())
	requests.Watch(b, &corev1.PersistentVolumeClaim{}, r.claimToPodListeners, changes, predicates.StatusIgnored())
	requests.Watch(b, &corev1.PersistentVolume{}, r.volumeToPodListeners, changes, predicates.StatusIgnored())
	requests.Watch(b, &listenersv1alpha1.Listener{}, r.listenerToPodListeners, changes)
	requests.Watch(b, &listenersv1alpha1.ListenerClass{}, r.classToPodListeners, changes)
	requests.Watch(b, tenancy.Namespace(), r.namespaceToPodListeners, changes, predicate.LabelChangedPredicate{})
	requests.Watch(b, &corev1.Node{}, nodeToPodListeners, changes, predicates.NodeAddressesChanged())
	return b.Complete(requests.Requeue(mgr, "podlisteners", r))
}

// podToMountChanged passes Pods with claims when they are added, because earlier changes of others were not mapped to
// them, are bound, accepted, finish, restart a container, are being deleted, because a mount may wait, get a
// controller, which keeps Listeners, or lose or change a mount label. The reconciler itself adds such labels.
func podToMountChanged() predicate.Predicate {
	mounts := predicate.NewPredicateFuncs(func(o client.Object) bool { return len(claim.NamesOf(o.(*corev1.Pod))) > 0 })
	lostLabel := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		mounted := labels.Set(maps.Clone(e.ObjectOld.GetLabels()))
		maps.DeleteFunc(mounted, func(key, _ string) bool { return !strings.HasPrefix(key, names.PodMountLabelPrefix) })
		return !mounted.AsSelector().Matches(labels.Set(e.ObjectNew.GetLabels()))
	}}
	return predicate.And(mounts, predicate.Or(lostLabel, predicates.Changed(func(pod *corev1.Pod) any {
		return []any{pod.Spec.NodeName, pod.DeletionTimestamp == nil, claim.PodAccepted(pod), claim.PodFinished(pod),
			pod.OwnerReferences, allRestarts(pod)}
	})))
}

// allRestarts returns how often the containers of a Pod have restarted.
func allRestarts(pod *corev1.Pod) (count int32) {
	for i := range pod.Status.ContainerStatuses {
		count += pod.Status.ContainerStatuses[i].RestartCount
	}
	return count
}

// podToPodListeners maps a Pod to its PodListeners, and records its name, by which the reconciler finds it.
func (r *Reconciler) podToPodListeners(_ context.Context, o client.Object) []reconcile.Request {
	r.podNames.Store(o.GetUID(), o.GetName())
	return index.RequestsFor(o.GetNamespace(), listenersv1alpha1.PodListenersName(o.GetUID()))
}

// podsToPodListeners returns the requests for the Pods that have a value in an index.
func (r *Reconciler) podsToPodListeners(ctx context.Context, field, value string,
	options ...client.ListOption) []reconcile.Request {
	return index.Requests[corev1.PodList](ctx, r.Client, r.podToPodListeners,
		append(options, client.MatchingFields{field: value})...)
}

func (r *Reconciler) claimToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return r.podsToPodListeners(ctx, index.PodsByClaim, o.GetName(), client.InNamespace(o.GetNamespace()))
}

func (r *Reconciler) volumeToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return r.podsToPodListeners(ctx, index.PodsByClaim, ref.Name, client.InNamespace(ref.Namespace))
}

// listenerToPodListeners maps a Listener also to the Pods with inline volumes: its own, those that name it, and copies.
func (r *Reconciler) listenerToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return slices.Concat(
		index.Requests[corev1.PersistentVolumeList](ctx, r.Client, r.volumeToPodListeners, index.VolumesOf(o)),
		r.claimToPodListeners(ctx, o),
		index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, index.Request,
			client.InNamespace(o.GetNamespace()), client.MatchingFields{index.PodListenersByListener: o.GetName()}),
		r.podsToPodListeners(ctx, index.PodsByInline, o.GetName(), client.InNamespace(o.GetNamespace())))
}

// classToPodListeners maps a class also to the claims and inline volumes that name it: their Listeners may have kept
// another one, and the volumes may have been refused.
func (r *Reconciler) classToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return slices.Concat(
		index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.listenerToPodListeners,
			client.MatchingFields{index.ListenersByClass: o.GetName()}),
		index.Requests[corev1.PersistentVolumeClaimList](ctx, r.Client, r.claimToPodListeners,
			client.MatchingFields{index.ClaimsByClass: o.GetName()}),
		r.podsToPodListeners(ctx, index.PodsByInline, o.GetName()))
}

// namespaceToPodListeners maps a namespace, because classes may select namespaces by labels.
func (r *Reconciler) namespaceToPodListeners(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, index.Request,
		client.InNamespace(o.GetName()))
}
