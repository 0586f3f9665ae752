package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
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
			Help: "Requests of the kubelet to publish a volume that have not been answered, most of which wait for addresses.",
		}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "listener_node_agent_mount_duration_seconds",
			Help: "How long requests of the kubelet to publish a volume took, by the gRPC code of the answer.",
			// A volume whose addresses are known takes milliseconds. The agent waits for others up to ten seconds.
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15},
		}, []string{"code"}),
	}
	for _, code := range []codes.Code{codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.InvalidArgument} {
		m.durations.WithLabelValues(code.String())
	}
	m.registry.MustRegister(m.inFlight, m.durations, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// intercept observes the requests to publish volumes.
func (m *metrics) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
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

// ServeHTTP serves the metrics in the text format. promhttp would do the same with compression, which takes memory on
// each node.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	families, err := m.registry.Gather()
	if err != nil {
		http.Error(w, fmt.Sprintf("gathering metrics: %v", err), http.StatusInternalServerError)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return // the client is gone
		}
	}
}
