// Package metrics counts, for Prometheus, what is in the cluster: Listeners by class and state, those that no Pod
// mounts, addresses of load balancers, volumes that are pinned to lost nodes, outdated Pods, and the conditions of the
// operator. Each scrape counts the objects in the cache, without copying them. Only the leader has these metrics. The
// package must never write an object.
package metrics

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

var (
	listeners = prometheus.NewDesc("listener_operator_listeners",
		"Number of Listeners by class, whether they are ready, and the reason.", []string{"class", "ready", "reason"}, nil)
	lostVolumes = prometheus.NewDesc("listener_operator_lost_volumes",
		"Number of PersistentVolumes that are pinned to a lost node, whose Pods cannot start, by node.", []string{"node"}, nil)
	outdatedPods = prometheus.NewDesc("listener_operator_outdated_pods",
		"Number of Pods whose addresses have changed since they started, by whether their class lets them restart.", []string{"on_change"}, nil)
	conditions = prometheus.NewDesc("listener_operator_condition",
		"Whether a condition of ListenerOperator/cluster is true (1) or not (0), by its type.", []string{"type"}, nil)
	addressesInUse = prometheus.NewDesc("listener_operator_load_balancer_addresses",
		"Number of different addresses of load balancers that Listeners have, by class. Which addresses are left in a pool, only the controller of the load balancer knows.", []string{"class"}, nil)
	longestWait = prometheus.NewDesc("listener_operator_load_balancer_longest_wait_seconds",
		"For how long the Listener has had no address that has waited longest for a load balancer, by class; 0 or absent if none waits.", []string{"class"}, nil)
	unused = prometheus.NewDesc("listener_operator_unused_listeners",
		"Number of Listeners that no Pod has mounted for so many days, and that hold a load balancer, node ports or ports of a Gateway, by class.", []string{"class", "holds", "days"}, nil)
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

type collector struct {
	// list reads the objects of a kind, which must not be changed.
	list  func(client.ObjectList)
	clock clock.PassiveClock

	mu     sync.Mutex
	values map[series]float64
}

// series is a gauge with values of its labels, joined.
type series struct {
	metric *prometheus.Desc
	labels string
}

// separator is between the values of labels. None has it.
const separator = "\x00"

// newCollector returns a collector of what a cache has until ctx is done.
func newCollector(ctx context.Context, cache client.Reader, c clock.PassiveClock) *collector {
	return &collector{list: func(list client.ObjectList) { index.List(ctx, cache, list) }, clock: c, values: map[series]float64{}}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range []*prometheus.Desc{listeners, lostVolumes, outdatedPods, conditions, addressesInUse, longestWait, unused} {
		descriptions <- m
	}
}

// Collect implements prometheus.Collector. A series without objects stays at zero, as Prometheus expects.
func (c *collector) Collect(collected chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.values {
		c.values[s] = 0
	}
	c.countListeners()
	c.countLostVolumes()
	c.countOutdatedPods()
	c.countConditions()
	for s, value := range c.values {
		collected <- prometheus.MustNewConstMetric(s.metric, prometheus.GaugeValue, value, strings.Split(s.labels, separator)...)
	}
}

// add adds to a series, which exists from then on.
func (c *collector) add(value float64, metric *prometheus.Desc, labels ...string) {
	c.values[series{metric, strings.Join(labels, separator)}] += value
}

// each calls a function with each object of a kind, given an empty list.
func each[T client.Object](c *collector, list client.ObjectList, do func(T)) {
	c.list(list)
	_ = meta.EachListItem(list, func(o runtime.Object) error { do(o.(T)); return nil }) // which has no error of its own
}

// unusedDays are the numbers of days after which a Listener without Pods counts.
var unusedDays = []int{1, 7, 30}

// countListeners counts Listeners by their state, the addresses of their load balancers, those that no Pod mounts, and
// measures the longest wait for a load balancer. Each value of a label is a series, so they are none that users can
// choose: a class is empty unless it exists.
func (c *collector) countListeners() {
	classes, balanced := c.classes(), c.loadBalancerAddresses()
	counted, longest, now := sets.New[[2]string](), map[string]time.Duration{}, c.clock.Now()
	each(c, &listenersv1alpha1.ListenerList{}, func(l *listenersv1alpha1.Listener) {
		status, class := ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{}), classes[l.Class()]
		c.countState(&status, class.Name)
		for _, address := range balanced[l.UID] {
			c.add(0, longestWait, class.Name) // present at zero
			if different := [2]string{class.Name, address}; !counted.Has(different) {
				counted.Insert(different)
				c.add(1, addressesInUse, class.Name)
			}
		}
		ready := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady)
		if ready != nil && status.Summary.Reason == listenersv1alpha1.ReasonWaitingForLoadBalancer {
			longest[class.Name] = max(longest[class.Name], now.Sub(ready.LastTransitionTime.Time))
		}
		c.countUnused(&status, &class, now)
	})
	for class, duration := range longest {
		c.add(duration.Seconds(), longestWait, class)
	}
}

func (c *collector) classes() map[string]listenersv1alpha1.ListenerClass {
	classes := map[string]listenersv1alpha1.ListenerClass{}
	each(c, &listenersv1alpha1.ListenerClassList{}, func(class *listenersv1alpha1.ListenerClass) { classes[class.Name] = *class })
	return classes
}

// countState counts a Listener. Its reason counts if it is one of the operator's.
func (c *collector) countState(status *listenersv1alpha1.ListenerStatus, class string) {
	ready, reason := meta.IsStatusConditionTrue(status.Conditions, listenersv1alpha1.ListenerReady), status.Summary.Reason
	if !known().Has(reason) {
		class, reason = "", ""
	}
	c.add(1, listeners, class, strconv.FormatBool(ready), reason)
}

var known = sync.OnceValue(func() sets.Set[string] {
	all := sets.New[string]()
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			all.Insert(r.Name)
		}
	}
	return all
})

// countUnused counts a Listener that holds what others could have, if no Pod has mounted it for long.
func (c *collector) countUnused(status *listenersv1alpha1.ListenerStatus, class *listenersv1alpha1.ListenerClass, now time.Time) {
	if status.UnusedSince == nil || status.ServiceName == nil || class.Name == "" {
		return
	}
	holds := backends.All().Of(class).ScarceOf(class)
	if holds == "" {
		return
	}
	for _, days := range unusedDays {
		counts := 0.0 // present at zero
		if now.Sub(status.UnusedSince.Time) >= time.Duration(days)*24*time.Hour {
			counts = 1
		}
		c.add(counts, unused, class.Name, holds, strconv.Itoa(days))
	}
}

func (c *collector) loadBalancerAddresses() map[types.UID][]string {
	addresses := map[types.UID][]string{}
	each(c, &corev1.ServiceList{}, func(service *corev1.Service) {
		owner := metav1.GetControllerOfNoCopy(service)
		if owner == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			return
		}
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			for _, address := range []string{ingress.IP, ingress.Hostname} {
				if address != "" {
					addresses[owner.UID] = append(addresses[owner.UID], address)
				}
			}
		}
	})
	return addresses
}

func (c *collector) countLostVolumes() {
	each(c, &corev1.PersistentVolumeList{}, func(pv *corev1.PersistentVolume) {
		if claim.IsListenerVolume(pv) && pv.Annotations[names.AnnotationLostSince] != "" {
			for _, node := range claim.PinnedNodes(pv) {
				c.add(1, lostVolumes, node)
			}
		}
	})
}

func (c *collector) countOutdatedPods() {
	restart, rewrite := string(listenersv1alpha1.OnAddressChangeRestart), string(listenersv1alpha1.OnAddressChangeRewrite)
	c.add(0, outdatedPods, restart) // present at zero
	c.add(0, outdatedPods, rewrite)
	each(c, &listenersv1alpha1.PodListenersList{}, func(pod *listenersv1alpha1.PodListeners) {
		switch spec := &pod.Spec; {
		case len(spec.NeedsRestart()) > 0:
			c.add(1, outdatedPods, restart)
		case len(spec.Outdated()) > 0:
			c.add(1, outdatedPods, rewrite)
		}
	})
}

func (c *collector) countConditions() {
	for _, kind := range []string{
		operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ConditionProgressing, operatorv1alpha1.ConditionDegraded, operatorv1alpha1.ConditionUpgradeable,
	} {
		c.add(0, conditions, kind) // present at zero
	}
	each(c, &operatorv1alpha1.ListenerOperatorList{}, func(configuration *operatorv1alpha1.ListenerOperator) {
		for _, condition := range configuration.Status.Conditions {
			if condition.Status == metav1.ConditionTrue {
				c.add(1, conditions, condition.Type)
			}
		}
	})
}
