package listener

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

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

// leading are the ranges of the replica that leads, or nil.
var leading atomic.Pointer[portRanges]

func init() { metrics.Registry.MustRegister(addressChanges, rangeCollector{}) }

// rangeCollector collects the metrics of ranges, in the leader alone: only there the allocators know the numbers. A
// scrape reads no object, and takes time for each port in use and each class with a range, not for each Listener.
type rangeCollector struct{}

// Describe implements prometheus.Collector.
func (rangeCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- rangeSize
	descriptions <- rangeLeft
}

// Collect implements prometheus.Collector.
func (rangeCollector) Collect(collected chan<- prometheus.Metric) {
	if p := leading.Load(); p != nil {
		p.collect(collected)
	}
}

// export makes the ranges those of the metrics until ctx is done.
func (p *portRanges) export(ctx context.Context) error {
	leading.Store(p)
	<-ctx.Done()
	leading.CompareAndSwap(p, nil)
	return nil
}

func (p *portRanges) collect(collected chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, allocator := range []*portallocator.Allocator{p.nodePorts, p.sharedPorts} {
		var ranges []classRange
		var numbers []utilnet.PortRange
		for _, all := range p.classes {
			for _, r := range all {
				if r.allocator == allocator {
					ranges, numbers = append(ranges, r), append(numbers, r.numbers)
				}
			}
		}
		for i, left := range allocator.Left(numbers) {
			r := &ranges[i]
			collected <- prometheus.MustNewConstMetric(rangeSize, prometheus.GaugeValue, float64(r.numbers.Size), r.class, r.kind)
			collected <- prometheus.MustNewConstMetric(rangeLeft, prometheus.GaugeValue, float64(left), r.class, r.kind)
		}
	}
}
