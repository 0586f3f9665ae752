// Package metrics counts, for Prometheus, what is in the cluster: Listeners by class and state, those that no Pod
// mounts, addresses of load balancers, volumes that are pinned to lost nodes, outdated Pods, and the conditions of the
// operator. Each scrape counts the objects in the cache, without copying them. Only the leader has these metrics. The
// package must never write an object.
package metrics

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/index"
)

// maxLabels is the largest number of labels that a metric has.
const maxLabels = 3

// metric is a gauge with labels.
type metric struct {
	description *prometheus.Desc
	labels      int
}

func newMetric(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), len(labels)}
}

var (
	listeners = newMetric("listener_operator_listeners",
		"Number of Listeners by class, whether they are ready, and the reason.", "class", "ready", "reason")
	lostVolumes = newMetric("listener_operator_lost_volumes",
		"Number of PersistentVolumes that are pinned to a lost node, whose Pods cannot start, by node.", "node")
	outdatedPods = newMetric("listener_operator_outdated_pods",
		"Number of Pods whose addresses have changed since they started, by whether their class lets them restart.", "on_change")
	conditions = newMetric("listener_operator_condition",
		"Whether a condition of ListenerOperator/cluster is true (1) or not (0), by its type.", "type")
	addressesInUse = newMetric("listener_operator_load_balancer_addresses",
		"Number of different addresses of load balancers that Listeners have, by class. Which addresses are left in a pool, only the controller of the load balancer knows.", "class")
	longestWait = newMetric("listener_operator_load_balancer_longest_wait_seconds",
		"For how long the Listener has had no address that has waited longest for a load balancer, by class; 0 or absent if none waits.", "class")
	unused = newMetric("listener_operator_unused_listeners",
		"Number of Listeners that no Pod has mounted for so many days, and that hold a load balancer, node ports or ports of a Gateway, by class.", "class", "holds", "days")
)

// SetupWithManager adds the metrics to the manager, which has them while it leads: each object is counted once.
func SetupWithManager(mgr manager.Manager) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return export(ctx, mgr.GetCache(), metrics.Registry) }))
}

// export counts what a cache has until ctx is done.
func export(ctx context.Context, cache client.Reader, registry prometheus.Registerer) error {
	c := newCollector(ctx, cache, clock.RealClock{})
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("registering the metrics of the cluster: %w", err)
	}
	defer registry.Unregister(c)
	<-ctx.Done()
	return nil
}

// collector counts at each scrape.
type collector struct {
	// list reads the objects of a kind, which must not be changed.
	list  func(client.ObjectList)
	clock clock.PassiveClock

	mu     sync.Mutex
	values map[series]float64
}

// series is a metric with values of its labels.
type series struct {
	metric metric
	labels [maxLabels]string
}

// newCollector returns a collector of what a cache has until ctx is done.
func newCollector(ctx context.Context, cache client.Reader, c clock.PassiveClock) *collector {
	return &collector{list: func(list client.ObjectList) { index.List(ctx, cache, list) }, clock: c, values: map[series]float64{}}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range []metric{listeners, lostVolumes, outdatedPods, conditions, addressesInUse, longestWait, unused} {
		descriptions <- m.description
	}
}

// Collect implements prometheus.Collector. A series that no object counts in any more stays at zero, as Prometheus
// expects.
func (c *collector) Collect(collected chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.values {
		c.values[s] = 0
	}
	c.count()
	for s, value := range c.values {
		collected <- prometheus.MustNewConstMetric(s.metric.description, prometheus.GaugeValue, value, s.labels[:s.metric.labels]...)
	}
}

// add adds to a series, which exists from then on.
func (c *collector) add(value float64, m metric, labels ...string) {
	s := series{metric: m}
	copy(s.labels[:], labels)
	c.values[s] += value
}
