package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// effectiveManagementState returns Removed for a configuration that is being deleted, whatever it sets: otherwise the
// garbage collector would delete the components, in no order and while volumes are in use.
func effectiveManagementState(config *operatorv1alpha1.ListenerOperator) operatorv1alpha1.ManagementState {
	if !config.DeletionTimestamp.IsZero() {
		return operatorv1alpha1.Removed
	}
	return config.Spec.ManagementState
}

// remove deletes the components, one at a time and in reverse order, unless volumes are in use: without an agent, their
// Pods could neither start nor terminate. After the StorageClass, the first one, no new volumes can appear. The policy
// that confines the agents is deleted after their last Pod. Objects that another installation controls stay.
func (r *Reconciler) remove(ctx context.Context, o *observed) outcome {
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

// deleteLast deletes the last component that is not an extra, and all extras after it.
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
func (r *Reconciler) maintain(ctx context.Context, o *observed) error {
	if o.config.Spec.ManagementState == operatorv1alpha1.Unmanaged || o.foreignMessage() != "" {
		return nil
	}
	return r.applyAll(ctx, o, func(c component) bool { return !c.Extra && c.Kind != "StorageClass" && !c.isOrphan(o.config) }).err
}

func (o *observed) owned() []component {
	return slices.DeleteFunc(slices.Clone(o.components), func(c component) bool {
		return c.object == nil || !metav1.IsControlledBy(c.object, o.config)
	})
}

func (c component) isOrphan(config *operatorv1alpha1.ListenerOperator) bool {
	return c.object != nil && !metav1.IsControlledBy(c.object, config) && c.ForeignMessage(config, c.object) == ""
}

// delete deletes an object. A DaemonSet exists until its Pods are deleted.
func (r *Reconciler) delete(ctx context.Context, kind string, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	var options []client.DeleteOption
	if kind == "DaemonSet" {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := r.applier.Delete(ctx, object, options...); err != nil {
		return err
	}
	delete(r.replacements, kind+"/"+object.GetName()) // to create it again is no repair
	log.FromContext(ctx).Info("Deleted", kind, object.GetName())
	return nil
}

// addFinalizer adds the operator's finalizer. Server-side apply preserves others, even those that the cache lacks yet.
func (r *Reconciler) addFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	if controllerutil.ContainsFinalizer(config, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	desired := apply.Object(operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"), client.ObjectKeyFromObject(config))
	desired.SetFinalizers([]string{operatorv1alpha1.FinalizerNodeAgent})
	if _, err := r.applier.Apply(ctx, desired, config); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	controllerutil.AddFinalizer(config, operatorv1alpha1.FinalizerNodeAgent)
	return nil
}

// removeFinalizer removes the operator's finalizer when nothing is installed any more. Server-side apply would keep it
// if another field manager, for example a backup that was restored, had applied it as well.
func (r *Reconciler) removeFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	released := config.DeepCopy()
	if !controllerutil.RemoveFinalizer(released, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	unchanged := client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, released, unchanged, client.FieldOwner(names.FieldManagerOperator))); err != nil {
		return fmt.Errorf("removing the finalizer from ListenerOperator %s: %w", config.Name, err)
	}
	config.Finalizers = released.Finalizers
	log.FromContext(ctx).Info("Removed all components")
	return nil
}

// deleteOtherAgents deletes agents of the configuration in other namespaces, where the operator was uninstalled without
// them, and returns the namespaced name of a DaemonSet that still exists, or "". Two agents on a node would replace
// each other's socket, and the old ones are of no use: their tokens became invalid with their ServiceAccount. While
// that exists, the operator may still be installed there, and would create them again.
func (r *Reconciler) deleteOtherAgents(ctx context.Context, o *observed) (moving string, _ error) {
	var all appsv1.DaemonSetList
	if err := r.Client.List(ctx, &all); err != nil {
		return "", fmt.Errorf("listing the node agents of all namespaces: %w", err)
	}
	for i := range all.Items {
		agents := &all.Items[i]
		if agents.Name != names.NodeAgent || agents.Namespace == r.Namespace || !metav1.IsControlledBy(agents, o.config) {
			continue
		}
		moving = client.ObjectKeyFromObject(agents).String()
		account, err := r.serviceAccount(ctx, agents.Namespace)
		if err != nil {
			return "", err
		}
		if account != "" {
			return "", fmt.Errorf("DaemonSet %s exists already, and so does its ServiceAccount: if the operator is still installed in namespace %s, uninstall it there; "+
				"otherwise delete this ServiceAccount or this DaemonSet", moving, agents.Namespace)
		}
		if err := r.delete(ctx, "DaemonSet", agents); err != nil {
			return "", err
		}
	}
	return moving, nil
}

// prune deletes what an earlier version, or an earlier configuration, installed and this one does not: objects with the
// label of managed objects that the configuration controls, of the kinds of the components. While such objects may
// exist, their kind has to stay among the components, and their name in the operator's RBAC rules.
func (r *Reconciler) prune(ctx context.Context, o *observed) error {
	desired, kinds := sets.New[string](), map[string]component{}
	for _, c := range o.components {
		if c.Optional.Empty() { // others may only be read by name
			desired.Insert(c.Kind + "/" + c.Name)
			kinds[c.Kind] = c
		}
	}
	var errs []error
	for kind, c := range kinds {
		objects, err := r.managed(ctx, c.Component)
		errs = append(errs, err)
		for _, item := range objects {
			if object := item.(client.Object); !desired.Has(kind+"/"+object.GetName()) && metav1.IsControlledBy(object, o.config) {
				errs = append(errs, r.delete(ctx, kind, object))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) managed(ctx context.Context, c installation.Component) ([]runtime.Object, error) {
	kind, err := apiutil.GVKForObject(c.Empty(), r.Client.Scheme())
	list, listErr := r.Client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := errors.Join(err, listErr); err != nil {
		return nil, fmt.Errorf("looking up the kind %s: %w", c.Kind, err)
	}
	labels, namespace := client.MatchingLabels{names.LabelManagedBy: names.Operator}, client.InNamespace(c.Key(r.Namespace).Namespace)
	if err := r.Client.List(ctx, list.(client.ObjectList), labels, namespace); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", c.Kind, err)
	}
	return meta.ExtractList(list)
}
