package restart

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_evictions_total",
	Help: "Number of evictions of Pods whose addresses changed, by result: evicted, or refused, for example by a " +
		"PodDisruptionBudget.",
}, []string{"result"})

func init() {
	metrics.Registry.MustRegister(evictions)
	for _, result := range []string{"evicted", "refused"} {
		evictions.WithLabelValues(result) // present at zero
	}
}
