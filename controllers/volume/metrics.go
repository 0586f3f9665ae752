package volume

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// provisioningErrors are those that the provisioner retries by itself.
var provisioningErrors = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "listener_operator_provisioning_errors_total",
	Help: "Number of attempts to provision a claim that failed because of an error, and are repeated. Claims that wait for something are not among them.",
})

// waitingClaimsMetric counts the claims of the provisioner that runs in this process.
var waitingClaimsMetric = &waitingCollector{desc: prometheus.NewDesc("listener_operator_waiting_claims",
	"Number of claims that cannot be provisioned until a user or administrator acts, by the reason of their event.", []string{"reason"}, nil)}

func init() { metrics.Registry.MustRegister(provisioningErrors, waitingClaimsMetric) }

// waitingCollector implements prometheus.Collector. list is nil while the provisioner does not run.
type waitingCollector struct {
	desc *prometheus.Desc
	list atomic.Pointer[func() []pendingClaim]
}

// Describe implements prometheus.Collector.
func (c *waitingCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.desc }

// Collect implements prometheus.Collector. The most frequent reasons are always present.
func (c *waitingCollector) Collect(collected chan<- prometheus.Metric) {
	list := c.list.Load()
	if list == nil {
		return
	}
	counts := map[string]float64{
		listenersv1alpha1.ReasonInvalidClaim: 0, listenersv1alpha1.ReasonClassNotFound: 0, listenersv1alpha1.ReasonListenerNotFound: 0,
		listenersv1alpha1.ReasonNamespaceNotAllowed: 0, listenersv1alpha1.ReasonNoPorts: 0,
	}
	for _, claim := range (*list)() {
		counts[claim.reason]++
	}
	for reason, n := range counts {
		collected <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, n, reason)
	}
}
