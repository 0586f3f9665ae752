package listenerclass

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
)

// Warner emits an event on each ListenerClass with settings that have no effect, when the class is written and when the
// operator starts.
type Warner struct {
	// Client reads ListenerClasses.
	Client client.Client
	// Events emits the events of classes.
	Events events.EventRecorder
}

// SetupWithManager registers the controller.
func (w *Warner) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("listenerclass-warnings").
		For(&listenersv1alpha1.ListenerClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(w.Client, w))
}

// Reconcile emits the event.
func (w *Warner) Reconcile(_ context.Context, class *listenersv1alpha1.ListenerClass) (reconcile.Result, error) {
	if ignored := exposure.IgnoredSettings(class); len(ignored) > 0 {
		w.Events.Eventf(class, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonSettingsIgnored, "Reconcile", "%s",
			message.Printable(strings.Join(ignored, "; "), message.MaxEvent))
	}
	return reconcile.Result{}, nil
}
