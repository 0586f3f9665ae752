// Package listener gives each Listener its Service, and reports in the Listener's status how to reach it (contract 1.5).
//
// It must never touch a Service that is not the Listener's own, nor write the Listener's spec or metadata, which belong to whoever
// made the Listener. Nothing here polls: whatever a Listener waits for is watched.
package listener

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
)

// Reconciler is the controller of Listeners. It becomes usable by SetupWithManager.
type Reconciler struct {
	// Client reads from the manager's cache, which must have the indexes of internal/index and hold all Services, and writes.
	Client client.Client
	// Events tells users of a change in a Listener's conditions.
	Events events.EventRecorder

	// live reads without the cache.
	live     client.Reader
	services *apply.Applier
}

// Reconcile brings the Service and the status of a Listener up to date. Whatever the Listener's author can mend is told by its
// conditions; the error is for what may pass by itself.
func (r *Reconciler) Reconcile(ctx context.Context, listener *v1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // the Service is garbage-collected with it
	}
	o, err := r.observe(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	refusal, serviceErr := r.ensureService(ctx, o)
	return reconcile.Result{}, errors.Join(serviceErr, r.report(ctx, o, refusal, serviceErr))
}
