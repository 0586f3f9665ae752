// Package listenerclass creates the ListenerClasses of the preset in ListenerOperator/cluster (contract: preset
// classes), and reports settings of classes that have no effect.
//
// It must never change a class that exists: classes are policies of the administrators, who may change them at any
// time. They have no owner, so they remain when the operator is uninstalled. The operator recreates a class that an
// administrator has deleted when it starts and when the preset changes; the preset "none" prevents that.
package listenerclass

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

//go:embed presets/*.yaml
var presets embed.FS

// Preset returns the ListenerClasses of a preset: none of PresetNone, and an error if the preset does not exist.
func Preset(preset operatorv1alpha1.Preset) ([]listenersv1alpha1.ListenerClass, error) {
	if preset == operatorv1alpha1.PresetNone {
		return nil, nil
	}
	file, err := presets.ReadFile(fmt.Sprintf("presets/%s.yaml", preset))
	if err != nil {
		return nil, fmt.Errorf("reading preset %q: %w", preset, err)
	}
	var classes listenersv1alpha1.ListenerClassList
	if err := yaml.UnmarshalStrict(file, &classes); err != nil {
		return nil, fmt.Errorf("decoding preset %q: %w", preset, err)
	}
	return classes.Items, nil
}

type Reconciler struct {
	Client client.Client
}

// SetupWithManager registers the controller, for a configuration that is new or changes its preset or management state.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	changed := predicates.Changed(func(c *operatorv1alpha1.ListenerOperator) any {
		return []any{c.Spec.Preset, c.Spec.ManagementState}
	})
	return requests.Controller(mgr, "listenerclass", 1).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(changed)).
		Complete(requests.Requeue(mgr, "listenerclass", reconcile.AsReconciler(r.Client, r)))
}

// Reconcile creates the missing classes of the preset, if the management state is Managed. Whether a class exists it
// leaves to the API server, because the cache may be outdated.
func (r *Reconciler) Reconcile(ctx context.Context,
	config *operatorv1alpha1.ListenerOperator) (reconcile.Result, error) {
	state := config.Spec.ManagementState
	if state == operatorv1alpha1.Unmanaged || state == operatorv1alpha1.Removed || !config.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	classes, err := Preset(config.Spec.Preset)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err) // the CRD only allows presets that exist
	}
	var errs []error
	for i := range classes {
		switch err := r.Client.Create(ctx, &classes[i], client.FieldOwner(names.FieldManagerOperator)); {
		case err == nil:
			log.FromContext(ctx).Info("Created ListenerClass", "ListenerClass", classes[i].Name)
		case !apierrors.IsAlreadyExists(err):
			errs = append(errs, fmt.Errorf("creating ListenerClass %s: %w", classes[i].Name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// Warner emits an event on each ListenerClass with settings that have no effect, when it is written and at the start.
type Warner struct {
	Client client.Client
	Events events.EventRecorder
}

func (w *Warner) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("listenerclass-warnings").
		For(&listenersv1alpha1.ListenerClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(w.Client, w))
}

func (w *Warner) Reconcile(_ context.Context, class *listenersv1alpha1.ListenerClass) (reconcile.Result, error) {
	if ignored := exposure.IgnoredSettings(class); len(ignored) > 0 {
		w.Events.Eventf(class, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonSettingsIgnored, "Reconcile", "%s",
			message.Printable(strings.Join(ignored, "; "), message.MaxEvent))
	}
	return reconcile.Result{}, nil
}
