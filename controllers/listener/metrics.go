package listener

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/holdings"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/registry"
)

var (
	rangeSize = prometheus.NewDesc("listener_operator_port_range_size",
		"Number of ports in a range that a ListenerClass lists, by class and kind: NodePort for nodePorts.range, "+
			"SharedPort for loadBalancer.sharing.portRange.", []string{"class", "kind"}, nil)
	rangeLeft = prometheus.NewDesc("listener_operator_port_range_left",
		"Number of ports of the range that a Listener could still get. Ranges of classes may overlap: do not add "+
			"them up. Node ports that any Service of the cluster has are not left. What the operator does not know "+
			"counts as left: node ports outside the cluster's own range, and ports that Services of others have at a "+
			"shared address.", []string{"class", "kind"}, nil)
)

// leading collects the metrics of ranges in the replica that leads, or is nil: only there the registry knows the
// numbers. A scrape takes time for each port in use and each class, not for each Listener.
var leading atomic.Pointer[func(chan<- prometheus.Metric)]

func init() { metrics.Registry.MustRegister(prometheus.CollectorFunc(collectLeading)) }

func collectLeading(collected chan<- prometheus.Metric) {
	if collect := leading.Load(); collect != nil {
		(*collect)(collected)
	}
}

type rangeMetrics struct {
	client   client.Reader
	registry *registry.Registry
}

func (m rangeMetrics) export(ctx context.Context) error {
	collect := func(collected chan<- prometheus.Metric) { m.collect(ctx, collected) }
	leading.Store(&collect)
	<-ctx.Done()
	leading.CompareAndSwap(&collect, nil)
	return nil
}

func (m rangeMetrics) collect(ctx context.Context, collected chan<- prometheus.Metric) {
	var classes listenersv1alpha1.ListenerClassList
	index.List(ctx, m.client, &classes)
	for _, rangeOf := range []func(*listenersv1alpha1.ListenerClass) holdings.PortRange{
		holdings.NodePortRange, holdings.SharedPortRange,
	} {
		var ranges []holdings.PortRange
		var numbers []registry.Range
		for i := range classes.Items {
			of := rangeOf(&classes.Items[i])
			if parsed, err := of.Parse(); err == nil && parsed.Size > 0 { // Listeners report an error
				ranges, numbers = append(ranges, of), append(numbers, parsed)
			}
		}
		for i, left := range m.registry.Left(numbers) {
			class, scarce := ranges[i].Class, string(ranges[i].Scarce)
			collected <- prometheus.MustNewConstMetric(rangeSize, prometheus.GaugeValue, float64(numbers[i].Size),
				class, scarce)
			collected <- prometheus.MustNewConstMetric(rangeLeft, prometheus.GaugeValue, float64(left), class, scarce)
		}
	}
}
