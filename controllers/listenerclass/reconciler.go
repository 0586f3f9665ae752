// Package listenerclass creates the ListenerClasses of the preset in ListenerOperator/cluster (contract: preset
// classes), and reports settings of classes that have no effect.
//
// It must never change a class that exists: classes are policies of the administrators, who may change them at any
// time. They have no owner, so they remain when the operator is uninstalled. The operator recreates a class that an
// administrator has deleted when it starts and when the preset changes; the preset "none" prevents that.
package listenerclass

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Reconciler creates the classes of presets.
type Reconciler struct {
	// Client reads ListenerOperators, and creates ListenerClasses.
	Client client.Client
}

// SetupWithManager registers the controller. It reconciles when the operator starts, when the configuration is created,
// and when the preset or the management state changes.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	return requests.Controller(mgr, "listenerclass", 1).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(presetOrManagementStateChanged())).
		Complete(requests.Requeue("listenerclass", reconcile.AsReconciler(r.Client, r)))
}

// presetOrManagementStateChanged passes configurations that are added to the cache, or whose preset or management state
// changes.
func presetOrManagementStateChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*operatorv1alpha1.ListenerOperator).Spec, e.ObjectNew.(*operatorv1alpha1.ListenerOperator).Spec
			return before.Preset != after.Preset || before.ManagementState != after.ManagementState
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// Reconcile creates the missing classes of the preset, if the management state is Managed.
func (r *Reconciler) Reconcile(ctx context.Context, config *operatorv1alpha1.ListenerOperator) (reconcile.Result, error) {
	switch config.Spec.ManagementState {
	case operatorv1alpha1.Unmanaged, operatorv1alpha1.Removed:
		return reconcile.Result{}, nil
	}
	if !config.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	classes, err := Preset(config.Spec.Preset)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err) // the CRD only allows presets that exist
	}
	var errs []error
	for _, class := range classes {
		errs = append(errs, r.ensure(ctx, class))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// ensure creates the class if no class of its name exists. It relies on the API server, because the cache may be
// outdated.
func (r *Reconciler) ensure(ctx context.Context, class *listenersv1alpha1.ListenerClass) error {
	err := r.Client.Create(ctx, class, client.FieldOwner(names.FieldManagerOperator))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating ListenerClass %s: %w", class.Name, err)
	}
	log.FromContext(ctx).Info("Created ListenerClass", "ListenerClass", class.Name)
	return nil
}
