package nodeagent

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// otherAgents returns the DaemonSets of the configuration in other namespaces: the operator was uninstalled there
// without them, and is now installed here.
func (r *Reconciler) otherAgents(ctx context.Context, o *observed) ([]*appsv1.DaemonSet, error) {
	var all appsv1.DaemonSetList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the node agents of all namespaces: %w", err)
	}
	var others []*appsv1.DaemonSet
	for i := range all.Items {
		agents := &all.Items[i]
		if agents.Name == names.NodeAgent && agents.Namespace != r.Namespace && metav1.IsControlledBy(agents, o.config) {
			others = append(others, agents)
		}
	}
	return others, nil
}

// deleteOtherAgents deletes agents in other namespaces, and returns the namespaced name of one that still exists, or
// "". There must not be two agents on a node: they would replace each other's socket.
func (r *Reconciler) deleteOtherAgents(ctx context.Context, o *observed) (string, error) {
	others, err := r.otherAgents(ctx, o)
	if err != nil || len(others) == 0 {
		return "", err
	}
	for _, agents := range others {
		if err := r.deleteAgentsOf(ctx, agents); err != nil {
			return "", err
		}
	}
	return client.ObjectKeyFromObject(others[0]).String(), nil
}

// deleteAgentsOf deletes the agents of an operator that was uninstalled from another namespace. If the operator is
// still installed there, it would create them again. Otherwise they are of no use: their tokens became invalid with
// their ServiceAccount, which is installed and uninstalled together with the operator.
func (r *Reconciler) deleteAgentsOf(ctx context.Context, agents *appsv1.DaemonSet) error {
	key := client.ObjectKeyFromObject(agents)
	account, err := r.serviceAccount(ctx, key.Namespace)
	if err != nil {
		return err
	}
	if account != "" {
		return fmt.Errorf("DaemonSet %s exists already, and so does its ServiceAccount: if the operator is still installed in namespace %s, uninstall it there; "+
			"otherwise delete this ServiceAccount or this DaemonSet", key, key.Namespace)
	}
	return r.delete(ctx, "DaemonSet", agents)
}
