package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

type outcome struct {
	// stackable is what of Stackable's listener operator runs, because of which nothing was done.
	stackable stackable.Installation
	// foreign is the message about an object of another installation, because of which nothing was installed.
	foreign string
	// users are the users of volumes because of which nothing was removed.
	users users
	// deselected are the users of volumes because of which agents stay on nodes that the configuration does not select.
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
