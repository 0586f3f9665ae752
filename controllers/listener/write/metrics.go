package write

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// addressChanges counts what clients notice. The first addresses of a Listener are no change.
var addressChanges = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "listener_operator_address_changes_total",
	Help: "Number of times that a Listener that had addresses got others, or lost them.",
})

func init() { metrics.Registry.MustRegister(addressChanges) }
