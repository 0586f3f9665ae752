package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
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

const workers = 16

func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.created = cache.NewExpiring()
	changes := predicates.NotInInitialList() // all claims are handled at the start
	created := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false }}
	deletedOrRestored := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return len(e.Object.GetOwnerReferences()) == 0 },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	unbound := predicate.Funcs{ // also when they have just got a volume
		CreateFunc: func(e event.CreateEvent) bool { return isUnbound(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isUnbound(e.ObjectOld) },
		DeleteFunc: func(e event.DeleteEvent) bool { return isUnbound(e.Object) },
	}
	b := requests.Controller(mgr, "volume", workers).
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(unbound))
	requests.Watch(b, &listenersv1alpha1.ListenerClass{}, r.classToClaims, changes,
		predicate.GenerationChangedPredicate{})
	requests.Watch(b, &listenersv1alpha1.Listener{}, r.listenerToClaims, changes)
	// A class-based claim waits for nothing else of the Listener of its name: its own, or one from a backup.
	requests.Watch(b, &listenersv1alpha1.Listener{}, index.Request, deletedOrRestored)
	requests.Watch(b, &corev1.Pod{}, index.PodToClaims, changes, created)
	requests.Watch(b, tenancy.Namespace(), r.namespaceToClaims, changes, predicate.LabelChangedPredicate{})
	requests.Watch(b, &storagev1.StorageClass{}, r.storageClassToClaims, changes, created)
	requests.Watch(b, &corev1.PersistentVolume{}, index.VolumeToClaim, predicates.Deleted())
	return errors.Join(
		b.Complete(requests.Requeue(mgr, "volume", r)),
		requests.Controller(mgr, "releasedvolume", workers).
			For(&corev1.PersistentVolume{}, builder.WithPredicates(predicate.NewPredicateFuncs(concernsDeleter))).
			Complete(requests.Requeue(mgr, "releasedvolume",
				reconcile.AsReconciler(mgr.GetClient(), deleter{mgr.GetClient()}))),
		mgr.Add(manager.RunnableFunc(showFrequentReasons)),
	)
}

func isUnbound(o client.Object) bool { return o.(*corev1.PersistentVolumeClaim).Spec.VolumeName == "" }

// classToClaims maps a class to the claims of the class, and to those that name a Listener of the class.
func (r *Reconciler) classToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.claims(ctx, client.MatchingFields{index.ClaimsByClass: o.GetName()}),
		index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.listenerToClaims,
			client.MatchingFields{index.ListenersByClass: o.GetName()})...)
}

func (r *Reconciler) listenerToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return r.claims(ctx, client.MatchingFields{index.ClaimsByListener: o.GetName()},
		client.InNamespace(o.GetNamespace()))
}

// namespaceToClaims maps a namespace to its claims without a volume, because classes may select namespaces by labels.
func (r *Reconciler) namespaceToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return r.claims(ctx, client.InNamespace(o.GetName()))
}

// storageClassToClaims maps a StorageClass, for example one that was created again, to all claims without a volume.
func (r *Reconciler) storageClassToClaims(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.claims(ctx)
}

func (r *Reconciler) claims(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return index.Requests[corev1.PersistentVolumeClaimList](ctx, r.Client,
		func(ctx context.Context, pvc client.Object) []reconcile.Request {
			if !isUnbound(pvc) {
				return nil
			}
			return index.Request(ctx, pvc)
		}, options...)
}

// deleter deletes volumes that were released. They have no storage, and their Listeners are garbage-collected.
type deleter struct{ client client.Client }

// Reconcile deletes a released volume, and removes the finalizer by which Stackable's listener operator delayed that.
func (d deleter) Reconcile(ctx context.Context, pv *corev1.PersistentVolume) (reconcile.Result, error) {
	observed := pv
	pv = pv.DeepCopy()
	if controllerutil.RemoveFinalizer(pv, volumehelpers.PVDeletionProtectionFinalizer) {
		patch := client.MergeFromWithOptions(observed, client.MergeFromWithOptimisticLock{})
		if err := client.IgnoreNotFound(d.client.Patch(ctx, pv, patch,
			client.FieldOwner(names.FieldManagerVolume))); err != nil {
			return reconcile.Result{}, fmt.Errorf("removing a finalizer of PersistentVolume %s: %w", pv.Name, err)
		}
	}
	if !isReleased(pv) {
		return reconcile.Result{}, nil
	}
	// Any other version may have to be retained.
	err := d.client.Delete(ctx, pv, client.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("deleting PersistentVolume %s: %w", pv.Name, err)
	}
	log.FromContext(ctx).Info("Deleted a volume that was released")
	return reconcile.Result{}, nil
}

// concernsDeleter reports whether there is something to do about a volume of this operator or of Stackable's.
func concernsDeleter(o client.Object) bool {
	pv := o.(*corev1.PersistentVolume)
	return claim.IsListenerVolume(pv) && pv.Annotations[volumehelpers.AnnDynamicallyProvisioned] == names.Driver &&
		(isReleased(pv) || controllerutil.ContainsFinalizer(pv, volumehelpers.PVDeletionProtectionFinalizer))
}

func isReleased(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && pv.DeletionTimestamp == nil
}
