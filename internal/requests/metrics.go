package requests

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// conflicts counts what would otherwise be errors of controllers.
var conflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_conflicts_total",
	Help: "Number of reconciliations that are repeated because the observed object was outdated, by controller. They " +
		"are no errors.",
}, []string{"controller"})

func init() { metrics.Registry.MustRegister(conflicts) }
