package podlisteners

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Receive does what an event with a Pod does, and returns its request.
func (r *Reconciler) Receive(ctx context.Context, pod *corev1.Pod) reconcile.Request {
	return r.podToPodListeners(ctx, pod)[0]
}
