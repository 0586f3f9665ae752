package certificates

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// decisions counts the PodCertificateRequests that were decided.
var decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_certificate_requests_total",
	Help: "Number of PodCertificateRequests that were decided, by result: issued or denied.",
}, []string{"result"})

// authorityExpiry is when the newest root expires.
var authorityExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "listener_operator_certificate_authority_expiry_timestamp_seconds",
	Help: "When the newest certificate authorities expire, in seconds since the epoch, or 0 if there are none.",
})

func init() {
	metrics.Registry.MustRegister(decisions, authorityExpiry)
	for _, result := range []string{"issued", "denied"} {
		decisions.WithLabelValues(result) // present at zero
	}
}
