package nodeagent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/retry"
)

// SetupWithManager registers the controller and everything that it waits for, and the step that creates ListenerOperator/cluster when
// the operator first starts.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.live = mgr.GetAPIReader()
	r.applier = apply.New(r.Client, names.OwnerOperator)
	r.events = mgr.GetEventRecorder(names.EventReporter)
	r.clock = clock.RealClock{}
	if err := mgr.Add(&firstStart{writer: r.Client, live: r.live, namespace: r.Namespace}); err != nil {
		return fmt.Errorf("adding the first start's step: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("nodeagent").
		WithOptions(controller.Options{RateLimiter: retry.Limiter[reconcile.Request]()}).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.whileRemoving), builder.WithPredicates(freed()))
	for _, c := range components() {
		// By name, not by owner: a foreign object that makes way has to be noticed, too.
		b = b.Watches(c.empty(), handler.EnqueueRequestsFromMapFunc(theConfiguration), builder.WithPredicates(r.at(c)))
	}
	return b.Complete(reconcile.AsReconciler(r.Client, r))
}

// at passes the one object that is the component.
func (r *Reconciler) at(c component) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == c.key(r.Namespace)
	})
}

func theConfiguration(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}}}
}

// freed passes volumes that stop being in use.
func freed() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return inUse(e.ObjectOld.(*corev1.PersistentVolume)) && !inUse(e.ObjectNew.(*corev1.PersistentVolume))
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return inUse(e.Object.(*corev1.PersistentVolume)) },
	}
}

// whileRemoving asks for the configuration if its removal may be waiting for volumes.
func (r *Reconciler) whileRemoving(ctx context.Context, o client.Object) []reconcile.Request {
	var config operatorv1alpha1.ListenerOperator
	err := r.Client.Get(ctx, types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}, &config)
	if err != nil || config.Spec.ManagementState != operatorv1alpha1.Removed {
		return nil // from the cache, the only error is that there is none
	}
	return theConfiguration(ctx, o)
}
