package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// deleter deletes volumes that were released. They have no storage, and their Listeners are garbage-collected.
type deleter struct{ client client.Client }

// Reconcile deletes a released volume, and removes the finalizer by which Stackable's listener operator delayed that.
func (d deleter) Reconcile(ctx context.Context, pv *corev1.PersistentVolume) (reconcile.Result, error) {
	observed := pv
	pv = pv.DeepCopy()
	if controllerutil.RemoveFinalizer(pv, volumehelpers.PVDeletionProtectionFinalizer) {
		patch := client.MergeFromWithOptions(observed, client.MergeFromWithOptimisticLock{})
		if err := client.IgnoreNotFound(d.client.Patch(ctx, pv, patch, client.FieldOwner(names.FieldManagerVolume))); err != nil {
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

// isReleased reports whether a volume is to be deleted, because its claim was.
func isReleased(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && pv.DeletionTimestamp == nil
}
