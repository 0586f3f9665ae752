package nodeagent

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
)

// driftRepairs counts since the operator started. Changes that others made while it did not run are repaired as well,
// but cannot be distinguished from those that a new version of the operator makes.
var driftRepairs = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_drift_repairs_total",
	Help: "Number of times that the operator repaired an object that it had installed, because another writer had " +
		"changed or deleted it.",
}, []string{"kind", "name"})

func init() {
	metrics.Registry.MustRegister(driftRepairs)
	for _, c := range installation.Components() {
		driftRepairs.WithLabelValues(c.Kind, c.Name) // present at zero, so that Prometheus notices the first repair
	}
}
