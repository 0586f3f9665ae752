package certificates

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "listener_operator_certificate_requests_total",
	Help: "Number of PodCertificateRequests that were decided, by result: issued or denied.",
}, []string{"result"})

var waitingRequests = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "listener_operator_waiting_certificate_requests",
	Help: "Number of PodCertificateRequests that have waited for more than five seconds, mostly for an address.",
})

var authorityExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "listener_operator_certificate_authority_expiry_timestamp_seconds",
	Help: "When the newest certificate authorities expire, in seconds since the epoch, or 0 if there are none.",
})

func init() {
	metrics.Registry.MustRegister(decisions, waitingRequests, authorityExpiry)
	_, _ = decisions.WithLabelValues("issued"), decisions.WithLabelValues("denied") // present at zero
}
