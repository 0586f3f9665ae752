package nodeagent

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

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
