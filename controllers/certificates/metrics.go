package certificates

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
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
	for _, result := range []string{"issued", "denied"} {
		decisions.WithLabelValues(result) // present at zero
	}
}

// waiting are the requests that wait for longer than usual.
type waiting struct{ requests sync.Map }

func (w *waiting) add(request types.NamespacedName) {
	if _, waits := w.requests.LoadOrStore(request, nil); !waits {
		waitingRequests.Inc()
	}
}

func (w *waiting) remove(request types.NamespacedName) {
	if _, waits := w.requests.LoadAndDelete(request); waits {
		waitingRequests.Dec()
	}
}
