package nodeagent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

// prune deletes what an earlier version, or an earlier configuration, installed and this one does not: objects with the
// label of managed objects that the configuration controls, of the kinds of the components. A kind that is no longer
// installed has to stay among the components, and each former name in the operator's RBAC rules, for as long as such
// objects may exist.
func (r *Reconciler) prune(ctx context.Context, o *observed) error {
	desired, listed := map[string]bool{}, map[string]bool{}
	for _, c := range o.components {
		desired[c.Kind+"/"+c.Name] = true
	}
	for _, c := range installation.Components() {
		// Optional kinds may only be read by name.
		if listed[c.Kind] || !c.Optional.Empty() {
			continue
		}
		listed[c.Kind] = true
		objects, err := r.managed(ctx, c)
		if err != nil {
			return err
		}
		for _, item := range objects {
			object := item.(client.Object)
			if desired[c.Kind+"/"+object.GetName()] || !metav1.IsControlledBy(object, o.config) {
				continue
			}
			if err := r.delete(ctx, c.Kind, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// managed returns the objects of a component's kind with the label of managed objects, from the cache.
func (r *Reconciler) managed(ctx context.Context, c installation.Component) ([]runtime.Object, error) {
	kind, err := apiutil.GVKForObject(c.Empty(), r.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("looking up the kind %s: %w", c.Kind, err)
	}
	list, err := r.Client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("looking up the kind %sList: %w", c.Kind, err)
	}
	labels, namespace := client.MatchingLabels{installation.LabelManagedBy: names.Operator}, client.InNamespace(c.Key(r.Namespace).Namespace)
	if err := r.Client.List(ctx, list.(client.ObjectList), labels, namespace); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", c.Kind, err)
	}
	return meta.ExtractList(list)
}
