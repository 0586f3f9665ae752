package nodeagent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/listener-operator/listener-operator/internal/names"
)

// prune deletes what an earlier version, or an earlier configuration, had installed and this one has not: objects with
// our label that belong to the configuration, of the kinds that are installed. A kind that is not installed any more
// stays in components, as does each old name in the operator's rights, for as long as there may be such objects.
func (r *Reconciler) prune(ctx context.Context, o *observed) error {
	wanted, listed := map[string]bool{}, map[string]bool{}
	for _, p := range o.parts {
		wanted[p.kind+"/"+p.name] = true
	}
	for _, c := range components() {
		// Optional kinds may only be read by name.
		if listed[c.kind] || !c.optional.Empty() {
			continue
		}
		listed[c.kind] = true
		objects, err := r.labelled(ctx, c)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if wanted[c.kind+"/"+object.GetName()] || !metav1.IsControlledBy(object, o.config) {
				continue
			}
			stray := component{kind: c.kind, name: object.GetName()}
			if err := r.delete(ctx, part{component: stray, object: object}); err != nil {
				return err
			}
		}
	}
	return nil
}

// labelled returns the objects of a component's kind that have our label, from the cache.
func (r *Reconciler) labelled(ctx context.Context, c component) ([]client.Object, error) {
	list, err := r.listOf(c)
	if err != nil {
		return nil, err
	}
	if err := r.Client.List(ctx, list, client.MatchingLabels{labelManagedBy: names.Operator}, client.InNamespace(c.key(r.Namespace).Namespace)); err != nil {
		return nil, fmt.Errorf("listing each %s: %w", c.kind, err)
	}
	var objects []client.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects, err
}

// listOf returns an empty list of a component's kind.
func (r *Reconciler) listOf(c component) (client.ObjectList, error) {
	kind, err := apiutil.GVKForObject(c.empty(), r.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("looking up the kind %s: %w", c.kind, err)
	}
	kind.Kind += "List"
	list, err := r.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("looking up the kind %s: %w", kind.Kind, err)
	}
	return list.(client.ObjectList), nil
}
