package volume

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

var waitingClaims = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "listener_operator_waiting_claims",
	Help: "Number of claims that cannot be provisioned until a user or administrator acts, by the reason of their event.",
}, []string{"reason"})

func init() { metrics.Registry.MustRegister(waitingClaims) }

// showFrequentReasons makes the most frequent reasons present at zero, in the leader alone: only there claims wait.
func showFrequentReasons(context.Context) error {
	for _, reason := range []string{
		listenersv1alpha1.ReasonInvalidClaim, listenersv1alpha1.ReasonClassNotFound, listenersv1alpha1.ReasonListenerNotFound,
		listenersv1alpha1.ReasonNamespaceNotAllowed, listenersv1alpha1.ReasonNoPorts,
	} {
		waitingClaims.WithLabelValues(reason)
	}
	return nil
}

// waiting counts the claims that wait. The zero value is empty.
type waiting struct {
	mu      sync.Mutex
	reasons map[types.NamespacedName]string
}

// set sets why a claim waits. An empty reason means that it does not.
func (w *waiting) set(claim types.NamespacedName, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.reasons[claim]; before != "" {
		waitingClaims.WithLabelValues(before).Dec()
	}
	delete(w.reasons, claim)
	if reason == "" {
		return
	}
	if w.reasons == nil {
		w.reasons = map[types.NamespacedName]string{}
	}
	w.reasons[claim] = reason
	waitingClaims.WithLabelValues(reason).Inc()
}
