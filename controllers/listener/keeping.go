package listener

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// keptPeriod is how long the Listener of an ephemeral claim is kept for the next Pod of the same name.
const keptPeriod = 10 * time.Minute

// keptNote is what the condition Ready says about a Listener that is kept.
var keptNote = fmt.Sprintf("; kept for the next Pod of the same name, and deleted if there is none for %d minutes", int(keptPeriod.Minutes()))

// keptFor returns how long a Listener that is kept for the next Pod of a name still is, or 0 if it is not kept.
// obsolete is why the Listener is to be deleted, or empty. The time is in the status, so a restart of the operator does
// not extend it.
func (s *snapshot) keptFor(now time.Time) (left time.Duration, obsolete string) {
	switch {
	case s.finished: // the Pod and its ephemeral claim may exist for days
		return 0, "its Pod has finished"
	case !s.awaiting:
		return 0, ""
	case s.listener.Status == nil || s.listener.Status.UnusedSince == nil:
		return keptPeriod, "" // the reconciliation sets it
	}
	if left = keptPeriod - now.Sub(s.listener.Status.UnusedSince.Time); left > 0 {
		return min(left, keptPeriod), ""
	}
	return 0, fmt.Sprintf("there was no Pod of its name for %d minutes", int(keptPeriod.Minutes()))
}

// deleteObsolete deletes the Listener of an ephemeral claim, with its Service, ports and load balancer.
func (r *Reconciler) deleteObsolete(ctx context.Context, listener *listenersv1alpha1.Listener, reason string) error {
	// Any other version may have the next claim as an owner.
	err := r.Client.Delete(ctx, listener.DeepCopy(), client.Preconditions{UID: &listener.UID, ResourceVersion: &listener.ResourceVersion})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Deleted a Listener that no Pod needs any more", "reason", reason)
	r.Events.Eventf(listener, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonListenerUnused, "Reconcile", "deleted, with its Service: %s", reason)
	return nil
}
