package nodeagent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

// ensureOperatorPolicy creates the policy that confines the operator, and its binding, if they do not exist. It never
// modifies existing ones, even those of other clients.
func (r *Reconciler) ensureOperatorPolicy(ctx context.Context, o *observed) error {
	for _, c := range installation.OperatorPolicy() {
		existing, err := r.get(ctx, c)
		if err != nil {
			return err
		}
		if existing != nil {
			continue
		}
		desired, err := c.Desired(o.config, o.settings)
		if err != nil {
			return err
		}
		// Without the label of managed objects, because the operator may neither repair nor prune it.
		desired.SetLabels(installation.OperatorLabels())
		err = r.Client.Create(ctx, desired, client.FieldOwner(names.FieldManagerOperator))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s %s: %w", c.Kind, c.Name, err)
		}
		log.FromContext(ctx).Info("Created", c.Kind, c.Name)
	}
	return nil
}
