package listener

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// addressChanges counts what clients notice. The first addresses of a Listener are no change.
var addressChanges = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "listener_operator_address_changes_total",
	Help: "Number of times that a Listener that had addresses got others, or lost them.",
})

var (
	rangeSize = prometheus.NewDesc("listener_operator_port_range_size",
		"Number of ports in a range that a ListenerClass lists, by class and kind: NodePort for nodePorts.range, SharedPort for loadBalancer.sharing.portRange.",
		[]string{"class", "kind"}, nil)
	rangeLeft = prometheus.NewDesc("listener_operator_port_range_left",
		"Number of ports of the range that a Listener could still get. Ranges of classes may overlap: do not add them up. Node ports that any Service of the cluster "+
			"has are not left. What the operator does not know counts as left: node ports outside the cluster's own range, and ports that Services of others have "+
			"at a shared address.",
		[]string{"class", "kind"}, nil)
)

// leading collects the metrics of ranges in the replica that leads, or is nil: only there the allocators know the
// numbers. A scrape takes time for each port in use and each class, not for each Listener.
var leading atomic.Pointer[func(chan<- prometheus.Metric)]

func init() { metrics.Registry.MustRegister(addressChanges, prometheus.CollectorFunc(collectLeading)) }

func collectLeading(collected chan<- prometheus.Metric) {
	if collect := leading.Load(); collect != nil {
		(*collect)(collected)
	}
}

// rangeMetrics are the metrics of ranges.
type rangeMetrics struct {
	client                 client.Reader
	nodePorts, sharedPorts *portallocator.Allocator
}

// export exports the metrics until ctx is done.
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
	for allocator, rangeOf := range map[*portallocator.Allocator]func(*listenersv1alpha1.ListenerClass) portRange{
		m.nodePorts: nodePortRange, m.sharedPorts: sharedPortRange,
	} {
		var ranges []portRange
		var numbers []utilnet.PortRange
		for i := range classes.Items {
			of := rangeOf(&classes.Items[i])
			if parsed, err := of.parse(); err == nil && parsed.Size > 0 { // Listeners report an error
				ranges, numbers = append(ranges, of), append(numbers, parsed.PortRange)
			}
		}
		for i, left := range allocator.Left(numbers) {
			collected <- prometheus.MustNewConstMetric(rangeSize, prometheus.GaugeValue, float64(numbers[i].Size), ranges[i].class, ranges[i].metric)
			collected <- prometheus.MustNewConstMetric(rangeLeft, prometheus.GaugeValue, float64(left), ranges[i].class, ranges[i].metric)
		}
	}
}
