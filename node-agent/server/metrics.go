package server

import (
	"context"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are the metrics of an agent. Everybody who reaches the agent's port may read them, so they must not contain
// names.
type metrics struct {
	registry  *prometheus.Registry
	inFlight  prometheus.Gauge
	durations *prometheus.HistogramVec
}

// newMetrics returns metrics in which the codes of the driver have series from the start.
func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "listener_node_agent_mounts_in_flight",
			Help: "Requests of the kubelet to publish a volume that have not been answered, most of which wait for " +
				"addresses.",
		}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "listener_node_agent_mount_duration_seconds",
			Help: "How long requests of the kubelet to publish a volume took, by the gRPC code of the answer.",
			// A volume whose addresses are known takes milliseconds. For others, the agent waits ten seconds if the Pod
			// has no PodListeners object, and otherwise almost as long as the kubelet, which waits for two minutes.
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120},
		}, []string{"code"}),
	}
	for _, code := range []codes.Code{codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.Internal,
		codes.InvalidArgument} {
		m.durations.WithLabelValues(code.String())
	}
	m.registry.MustRegister(m.inFlight, m.durations, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// intercept observes the requests to publish volumes.
func (m *metrics) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if _, ok := request.(*csi.NodePublishVolumeRequest); !ok {
		return handler(ctx, request)
	}
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	began := time.Now()
	response, err := handler(ctx, request)
	m.durations.WithLabelValues(status.Code(err).String()).Observe(time.Since(began).Seconds())
	return response, err
}

// handler serves the metrics. It does not compress them, which would take memory on each node.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}
