// Package listenerclass creates the ListenerClasses of the preset that ListenerOperator/cluster names (contract 1.5).
//
// It must never change a class that exists: classes are policy, and belong to the cluster's administrators from the
// moment they are created. So they have no owner either, and stay when the operator goes. A class that an administrator
// deleted is created again when the operator starts and when the preset changes, and not before; preset "none" is for
// those who want to do without.
package listenerclass

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/retry"
)

// Reconciler is the controller of presets.
type Reconciler struct {
	// Client reads ListenerOperators, and creates ListenerClasses.
	Client client.Client
}

// SetupWithManager registers the controller. It acts when the operator starts, when the configuration is created, and
// when the preset or the management state changes.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("listenerclass").
		WithOptions(controller.Options{RateLimiter: retry.Limiter[reconcile.Request]()}).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(chosen())).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// chosen passes configurations that are new, to the operator at least, and those in which another preset was chosen.
func chosen() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*operatorv1alpha1.ListenerOperator).Spec, e.ObjectNew.(*operatorv1alpha1.ListenerOperator).Spec
			return before.Preset != after.Preset || before.ManagementState != after.ManagementState
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// Reconcile creates the classes of the preset that are missing, unless the operator is not to manage what it installs.
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
		return reconcile.Result{}, reconcile.TerminalError(err) // the API server admits only presets that exist
	}
	var errs []error
	for _, class := range classes {
		errs = append(errs, r.ensure(ctx, class))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// ensure creates the class if there is none of its name. It asks the API server rather than the cache, which may not
// know yet.
func (r *Reconciler) ensure(ctx context.Context, class *listenersv1alpha1.ListenerClass) error {
	err := r.Client.Create(ctx, class, client.FieldOwner(names.FieldManagerOperator))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating listener class %s: %w", class.Name, err)
	}
	log.FromContext(ctx).Info("Created ListenerClass", "ListenerClass", class.Name)
	return nil
}
