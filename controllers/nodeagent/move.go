package nodeagent

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// leftAgents are the DaemonSets that the configuration has in other namespaces: the operator was uninstalled there
// without them, and is now installed here.
func (r *Reconciler) leftAgents(ctx context.Context, o *observed) ([]part, error) {
	var all appsv1.DaemonSetList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the node agents of all namespaces: %w", err)
	}
	var left []part
	for i := range all.Items {
		agents := &all.Items[i]
		if agents.Name == names.NodeAgent && agents.Namespace != r.Namespace && metav1.IsControlledBy(agents, o.config) {
			left = append(left, part{component: agentsComponent(), object: agents})
		}
	}
	return left, nil
}

// move deletes agents that were left in other namespaces, and returns which is not gone yet, or "". There must not be
// two agents on a node: they would take the kubelet's socket away from each other.
func (r *Reconciler) move(ctx context.Context, o *observed) (string, error) {
	left, err := r.leftAgents(ctx, o)
	if err != nil {
		return "", err
	}
	for _, p := range left {
		if err := r.leave(ctx, p); err != nil {
			return "", err
		}
	}
	if len(left) == 0 {
		return "", nil
	}
	return client.ObjectKeyFromObject(left[0].object).String(), nil
}

// leave deletes the agents of another namespace, unless the operator is still installed there, and would bring them
// back. Otherwise nothing is lost with them: their tokens went with their ServiceAccount, which comes and goes with the
// operator.
func (r *Reconciler) leave(ctx context.Context, agents part) error {
	key := client.ObjectKeyFromObject(agents.object)
	account, err := r.agentAccount(ctx, key.Namespace)
	if err != nil {
		return err
	}
	if account != "" {
		return fmt.Errorf("DaemonSet %s is there already, and so is its ServiceAccount: if the operator is still installed in namespace %s, uninstall it there; "+
			"otherwise delete this ServiceAccount or this DaemonSet", key, key.Namespace)
	}
	return r.delete(ctx, agents)
}
