package volume

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

var waitingClaims = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "listener_operator_waiting_claims",
	Help: "Number of claims that cannot be provisioned until a user or administrator acts, by the reason of their " +
		"event.",
}, []string{"reason"})

func init() { metrics.Registry.MustRegister(waitingClaims) }

// showFrequentReasons makes the most frequent reasons present at zero, in the leader alone: only there claims wait.
func showFrequentReasons(context.Context) error {
	for _, reason := range []string{
		listenersv1alpha1.ReasonInvalidClaim, listenersv1alpha1.ReasonClassNotFound,
		listenersv1alpha1.ReasonListenerNotFound,
		listenersv1alpha1.ReasonNamespaceNotAllowed, listenersv1alpha1.ReasonNoPorts,
	} {
		waitingClaims.WithLabelValues(reason)
	}
	return nil
}

func (r *Reconciler) setWaiting(key types.NamespacedName, reason string) {
	if before, ok := r.waiting.LoadAndDelete(key); ok {
		waitingClaims.WithLabelValues(before.(string)).Dec()
	}
	if reason != "" {
		r.waiting.Store(key, reason)
		waitingClaims.WithLabelValues(reason).Inc()
	}
}
