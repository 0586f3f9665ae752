package nodeagent

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// remove deletes the components, one at a time and in reverse order, unless volumes are in use: without an agent, their
// Pods could neither start nor terminate. After the StorageClass, the first one, no new volumes can appear. The policy
// that confines the agents is deleted after their last Pod. Objects that another installation controls stay.
func (r *Reconciler) remove(ctx context.Context, o *observation) outcome {
	owned := o.owned()
	switch {
	case len(owned) == 0 && !controllerutil.ContainsFinalizer(o.config, operatorv1alpha1.FinalizerNodeAgent):
		return outcome{}
	case controllerutil.ContainsFinalizer(o.config, metav1.FinalizerOrphanDependents):
		return outcome{} // kubectl delete --cascade=orphan: the garbage collector removes all owner references
	case len(owned) == 0 && slices.ContainsFunc(o.components, func(c component) bool { return c.isOrphan(o.config) }):
		return outcome{err: r.removeFinalizer(ctx, o.config)}
	}
	users, err := r.users(ctx)
	switch {
	case err != nil:
		return outcome{err: err}
	case users.any():
		return outcome{users: users, err: r.maintain(ctx, o)}
	case len(owned) > 0:
		return outcome{err: r.deleteLast(ctx, owned)} // its deletion triggers the next reconciliation
	}
	if moving, err := r.deleteOtherAgents(ctx, o); err != nil || moving != "" {
		return outcome{moving: moving, err: err}
	}
	if err := r.prune(ctx, o); err != nil {
		return outcome{err: err}
	}
	return outcome{err: r.removeFinalizer(ctx, o.config)}
}

func (r *Reconciler) deleteLast(ctx context.Context, owned []component) error {
	for _, c := range slices.Backward(owned) {
		if err := r.delete(ctx, c.Kind, c.object); err != nil || !c.Extra {
			return err
		}
	}
	return nil
}

// maintain repairs the components that volumes in use need while their removal waits, which the StorageClass is not.
// With foreground deletion, the garbage collector deletes components before the finalizer is removed.
func (r *Reconciler) maintain(ctx context.Context, o *observation) error {
	if o.config.Spec.ManagementState == operatorv1alpha1.Unmanaged || o.foreignMessage() != "" {
		return nil
	}
	return r.applyAll(ctx, o, func(c component) bool {
		return !c.Extra && c.Kind != "StorageClass" && !c.isOrphan(o.config)
	}).err
}

// removeFinalizer removes the operator's finalizer when nothing is installed any more. Server-side apply would keep it
// if another field manager, for example a backup that was restored, had applied it as well.
func (r *Reconciler) removeFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	released := config.DeepCopy()
	if !controllerutil.RemoveFinalizer(released, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	unchanged := client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, released, unchanged,
		client.FieldOwner(names.FieldManagerOperator))); err != nil {
		return fmt.Errorf("removing the finalizer from ListenerOperator %s: %w", config.Name, err)
	}
	config.Finalizers = released.Finalizers
	log.FromContext(ctx).Info("Removed all components")
	return nil
}
