package nodeagent

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// deleteOtherAgents deletes agents of the configuration in other namespaces, and returns the namespaced name of a
// DaemonSet that still exists, or "": the operator was uninstalled there without them, and is now installed here. There
// must not be two agents on a node, which would replace each other's socket. If the operator is still installed there,
// it would create them again. Otherwise they are of no use: their tokens became invalid with their ServiceAccount,
// which is installed and uninstalled together with the operator.
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
