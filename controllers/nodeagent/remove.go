package nodeagent

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// wanted returns the management state that counts. A deletion means Removed whatever is set: the garbage collector,
// which would take away instead what is installed, asks neither for an order nor for volumes in use.
func wanted(config *operatorv1alpha1.ListenerOperator) operatorv1alpha1.ManagementState {
	if !config.DeletionTimestamp.IsZero() {
		return operatorv1alpha1.Removed
	}
	return config.Spec.ManagementState
}

// remove takes away what is installed, one object after the other and last first, unless volumes are in use: without an
// agent, their Pods could neither start nor end. The StorageClass is the first to go: only then do no volumes appear
// any more, and the next pass is certain that there are none. The policy that confines the agents goes after their last
// Pod. What another installation controls stays.
func (r *Reconciler) remove(ctx context.Context, o *observed) outcome {
	owned := o.owned()
	switch {
	case len(owned) == 0 && !held(o.config):
		return outcome{}
	case controllerutil.ContainsFinalizer(o.config, metav1.FinalizerOrphanDependents):
		return outcome{} // kubectl delete --cascade=orphan: the garbage collector takes the owner off everything
	case len(owned) == 0 && o.orphans():
		return outcome{err: r.release(ctx, o.config)}
	}
	users, err := r.users(ctx)
	switch {
	case err != nil:
		return outcome{err: err}
	case users.any():
		return outcome{users: users, err: r.keepUp(ctx, o)}
	case len(owned) > 0:
		return outcome{err: r.deleteLast(ctx, owned)} // the next pass follows when it is gone
	}
	if moving, err := r.move(ctx, o); err != nil || moving != "" {
		return outcome{moving: moving, err: err}
	}
	if err := r.prune(ctx, o); err != nil {
		return outcome{err: err}
	}
	return outcome{err: r.release(ctx, o.config)}
}

// deleteLast deletes the last part that volumes need, and before it the extras, which nothing waits for.
func (r *Reconciler) deleteLast(ctx context.Context, owned []part) error {
	for _, p := range slices.Backward(owned) {
		if err := r.delete(ctx, p); err != nil || !p.extra {
			return err
		}
	}
	return nil
}

// keepUp repairs what volumes in use need while a removal waits for them, which is not the StorageClass. A deletion in
// the foreground takes parts of it away, because it makes the garbage collector start before the finalizer is gone.
func (r *Reconciler) keepUp(ctx context.Context, o *observed) error {
	if o.config.Spec.ManagementState == operatorv1alpha1.Unmanaged || o.foreign() != "" {
		return nil
	}
	if moving, err := r.move(ctx, o); err != nil || moving != "" {
		return err
	}
	if _, err := r.keepAgents(ctx, o); err != nil {
		return err
	}
	for i, p := range o.parts {
		if p.extra || p.kind == "StorageClass" || p.orphan(o.config) {
			continue
		}
		if err := r.apply(ctx, o, &o.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// owned returns the parts that exist and belong to the configuration.
func (o *observed) owned() []part {
	return slices.DeleteFunc(slices.Clone(o.parts), func(p part) bool {
		return p.object == nil || !metav1.IsControlledBy(p.object, o.config)
	})
}

// orphan tells whether the part exists and belongs to nobody.
func (p part) orphan(config *operatorv1alpha1.ListenerOperator) bool {
	return p.object != nil && !metav1.IsControlledBy(p.object, config) && p.foreign(config, p.object) == ""
}

// orphans tells whether there are such parts.
func (o *observed) orphans() bool {
	return slices.ContainsFunc(o.parts, func(p part) bool { return p.orphan(o.config) })
}

// delete deletes a part. A DaemonSet is gone only once its Pods are.
func (r *Reconciler) delete(ctx context.Context, p part) error {
	if !p.object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	var options []client.DeleteOption
	if p.kind == "DaemonSet" {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := r.applier.Delete(ctx, p.object, options...); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted", p.kind, p.name)
	return nil
}

// held tells whether the configuration has our finalizer.
func held(config *operatorv1alpha1.ListenerOperator) bool {
	return controllerutil.ContainsFinalizer(config, operatorv1alpha1.FinalizerNodeAgent)
}

// hold adds our finalizer, before anything is installed. Server-side apply leaves those of others alone, whatever the
// cache knows of them.
func (r *Reconciler) hold(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	if held(config) {
		return nil
	}
	desired := &unstructured.Unstructured{}
	desired.SetGroupVersionKind(operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))
	desired.SetName(config.Name)
	desired.SetFinalizers([]string{operatorv1alpha1.FinalizerNodeAgent})
	if _, err := r.applier.Apply(ctx, desired, config); err != nil {
		return fmt.Errorf("adding the finalizer to ListenerOperator %s: %w", config.Name, err)
	}
	controllerutil.AddFinalizer(config, operatorv1alpha1.FinalizerNodeAgent)
	return nil
}

// release takes our finalizer off, when nothing is installed any more. It does so even if somebody else, such as a
// restored backup, applied the finalizer, too, which server-side apply would not.
func (r *Reconciler) release(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	released := config.DeepCopy()
	if !controllerutil.RemoveFinalizer(released, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	unchanged := client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, released, unchanged, client.FieldOwner(names.FieldManagerOperator))); err != nil {
		return fmt.Errorf("taking the finalizer off ListenerOperator %s: %w", config.Name, err)
	}
	config.Finalizers = released.Finalizers
	log.FromContext(ctx).Info("Removed all that was installed")
	return nil
}
