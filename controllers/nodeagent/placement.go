package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
)

// keepPlacement keeps the placement of the agents if the desired one would remove an agent from a node where Pods use
// volumes, and returns these Pods: without an agent, they could not even terminate.
func (r *Reconciler) keepPlacement(ctx context.Context, o *observed) (users, error) {
	desired := installation.DesiredPlacement(o.config.Spec.NodeAgent, o.settings.OperatorPod)
	current := installation.PlacementOf(o.agents())
	if o.agents().Name == "" || equality.Semantic.DeepEqual(desired, current) {
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
		losing[nodes.Items[i].Name] = has && !keeps
	}
	maps.DeleteFunc(all.pods, func(_, node string) bool { return !losing[node] })
	deselected := users{pods: all.pods}
	if deselected.any() {
		o.settings.Placement = &current
	}
	return deselected, nil
}
