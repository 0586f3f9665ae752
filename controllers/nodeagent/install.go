package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

type outcome struct {
	// stackable is the part of Stackable's listener operator that still runs. Then nothing was done.
	stackable stackable.Installation
	// foreign is the message about an object of another installation. Then nothing was installed.
	foreign string
	// users still use volumes. Then nothing was removed.
	users users
	// deselected use volumes on nodes that the configuration does not select, so the agents stay there.
	deselected users
	// moving is the namespaced name of a DaemonSet in another namespace that has to be deleted before.
	moving string
	err    error
}

func (o outcome) beside() bool { return len(o.stackable.Workloads) > 0 }

func (r *Reconciler) install(ctx context.Context, o *observation) outcome {
	if message := o.foreignMessage(); message != "" {
		return outcome{foreign: message}
	}
	if err := r.addFinalizer(ctx, o.config); err != nil {
		return outcome{err: err}
	}
	done := r.applyAll(ctx, o, o.needs)
	for _, c := range o.owned() {
		if done.err == nil && !o.needs(c) {
			done.err = r.delete(ctx, c.Kind, c.object)
		}
	}
	if done.err == nil && done.moving == "" {
		done.err = r.prune(ctx, o)
	}
	return done
}

func (r *Reconciler) applyAll(ctx context.Context, o *observation, needed func(component) bool) outcome {
	moving, err := r.deleteOtherAgents(ctx, o)
	if err != nil || moving != "" {
		return outcome{moving: moving, err: err} // its deletion triggers the next reconciliation
	}
	deselected, err := r.keepPlacement(ctx, o)
	for i := range o.components {
		if c := &o.components[i]; err == nil && needed(*c) {
			err = r.apply(ctx, o, c)
		}
	}
	return outcome{deselected: deselected, err: err}
}

func (o *observation) needs(c component) bool {
	return !o.unmonitored || c.Optional.Group != names.KindServiceMonitor.Group
}

// keepPlacement keeps the placement of the agents if the desired one would remove an agent from a node where Pods use
// volumes, and returns these Pods: without an agent, they could not even terminate.
func (r *Reconciler) keepPlacement(ctx context.Context, o *observation) (users, error) {
	desired := installation.DesiredPlacement(o.config.Spec.NodeAgent, o.settings.OperatorPod)
	current := installation.PlacementOf(o.rollout.daemonSet)
	if o.rollout.daemonSet.Name == "" || equality.Semantic.DeepEqual(desired, current) {
		return users{}, nil
	}
	all, err := r.users(ctx)
	if err != nil {
		return users{}, err
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return users{}, fmt.Errorf("listing nodes: %w", err)
	}
	losing := map[string]bool{} // nodes that lose their agent
	for i := range nodes.Items {
		has, err := current.Selects(&nodes.Items[i])
		keeps, desiredErr := desired.Selects(&nodes.Items[i])
		if err := errors.Join(err, desiredErr); err != nil {
			return users{}, fmt.Errorf("evaluating the placement of agents for node %s: %w", nodes.Items[i].Name, err)
		}
		losing[nodes.Items[i].Name] = has && !keeps && installation.Unsuitable(&nodes.Items[i]) == ""
	}
	maps.DeleteFunc(all.pods, func(_, node string) bool { return !losing[node] })
	deselected := users{pods: all.pods}
	if deselected.any() {
		o.settings.Placement = &current
	}
	return deselected, nil
}

// addFinalizer adds the operator's finalizer. Server-side apply preserves others, even those that the cache lacks yet.
func (r *Reconciler) addFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	if controllerutil.ContainsFinalizer(config, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	desired := apply.Object(operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"),
		client.ObjectKeyFromObject(config))
	desired.SetFinalizers([]string{operatorv1alpha1.FinalizerNodeAgent})
	if _, err := r.applier.Apply(ctx, desired, config); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	controllerutil.AddFinalizer(config, operatorv1alpha1.FinalizerNodeAgent)
	return nil
}

// deleteOtherAgents deletes agents of the configuration in other namespaces, where the operator was uninstalled without
// them, and returns the namespaced name of a DaemonSet that still exists, or "". Two agents on a node would replace
// each other's socket, and the old ones are of no use: their tokens became invalid with their ServiceAccount. While
// that exists, the operator may still be installed there, and would create them again.
func (r *Reconciler) deleteOtherAgents(ctx context.Context, o *observation) (moving string, _ error) {
	var all appsv1.DaemonSetList
	if err := r.Client.List(ctx, &all); err != nil {
		return "", fmt.Errorf("listing the node agents of all namespaces: %w", err)
	}
	for i := range all.Items {
		agents := &all.Items[i]
		if agents.Name != names.NodeAgent || agents.Namespace == r.Namespace ||
			!metav1.IsControlledBy(agents, o.config) {
			continue
		}
		moving = client.ObjectKeyFromObject(agents).String()
		account, err := r.serviceAccount(ctx, agents.Namespace)
		if err != nil {
			return "", err
		}
		if account != "" {
			return "", fmt.Errorf("DaemonSet %s exists already, and so does its ServiceAccount: if the operator is "+
				"still installed in namespace %s, uninstall it there; otherwise delete this ServiceAccount or this "+
				"DaemonSet", moving, agents.Namespace)
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
func (r *Reconciler) prune(ctx context.Context, o *observation) error {
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
			if object := item.(client.Object); !desired.Has(kind+"/"+object.GetName()) &&
				metav1.IsControlledBy(object, o.config) {
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
	labels, namespace := client.MatchingLabels{names.LabelManagedBy: names.Operator},
		client.InNamespace(c.Key(r.Namespace).Namespace)
	if err := r.Client.List(ctx, list.(client.ObjectList), labels, namespace); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", c.Kind, err)
	}
	return meta.ExtractList(list)
}
