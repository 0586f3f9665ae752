// Package metrics counts, for Prometheus, what is in the cluster: Listeners by class and state, those that no Pod
// mounts, addresses of load balancers, volumes that are pinned to lost nodes, outdated Pods, and the conditions of the
// operator. Objects are counted when they change, so that a scrape takes no time for each. Only the leader has these
// metrics. The package must never write an object.
package metrics

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
)

var (
	listeners = prometheus.NewDesc("listener_operator_listeners",
		"Number of Listeners by class, whether they are ready, and the reason.", []string{"class", "ready", "reason"},
		nil)
	lostVolumes = prometheus.NewDesc("listener_operator_lost_volumes",
		"Number of PersistentVolumes that are pinned to a lost node, whose Pods cannot start, by node.",
		[]string{"node"}, nil)
	outdatedPods = prometheus.NewDesc("listener_operator_outdated_pods",
		"Number of Pods whose addresses have changed since they started, by whether their class lets them restart.",
		[]string{"on_change"}, nil)
	conditions = prometheus.NewDesc("listener_operator_condition",
		"Whether a condition of ListenerOperator/cluster is true (1) or not (0), by its type.", []string{"type"}, nil)
	addressesInUse = prometheus.NewDesc("listener_operator_load_balancer_addresses",
		"Number of different addresses of load balancers that Listeners have, by class. Which addresses are left in "+
			"a pool, only the controller of the load balancer knows.", []string{"class"}, nil)
	longestWait = prometheus.NewDesc("listener_operator_load_balancer_longest_wait_seconds",
		"For how long the Listener has had no address that has waited longest for a load balancer, by class; 0 or "+
			"absent if none waits.", []string{"class"}, nil)
	unused = prometheus.NewDesc("listener_operator_unused_listeners",
		"Number of Listeners that no Pod has mounted for so many days, and that hold a load balancer, node ports or "+
			"ports of a Gateway, by class.", []string{"class", "holds", "days"}, nil)
)

// SetupWithManager adds the metrics to the manager, which has them while it leads: each object is counted once.
func SetupWithManager(mgr manager.Manager) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return export(ctx, mgr.GetCache(), metrics.Registry)
	}))
}

func export(ctx context.Context, informers cache.Informers, registry prometheus.Registerer) error {
	c := newCollector(clock.RealClock{})
	if err := c.watch(ctx, informers); err != nil {
		return err
	}
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("registering the metrics of the cluster: %w", err)
	}
	defer registry.Unregister(c)
	<-ctx.Done()
	return nil
}

// collector has what objects count as, by kind. A scrape evaluates what depends on time and on several kinds.
type collector struct {
	clock      clock.PassiveClock
	classes    tally[*listenersv1alpha1.ListenerClass, class]
	listeners  tally[*listenersv1alpha1.Listener, listener]
	addresses  tally[*corev1.Service, address]
	lostNodes  tally[*corev1.PersistentVolume, string]
	outdated   tally[*listenersv1alpha1.PodListeners, string]
	conditions tally[*operatorv1alpha1.ListenerOperator, string]

	mu     sync.Mutex
	values map[series]float64
	// different are addresses with their class, which each scrape counts.
	different sets.Set[[2]string]
}

type series struct {
	metric *prometheus.Desc
	labels [3]string
	number int
}

func seriesOf(metric *prometheus.Desc, labels ...string) series {
	s := series{metric: metric, number: len(labels)}
	copy(s.labels[:], labels)
	return s
}

func newCollector(now clock.PassiveClock) *collector {
	c := &collector{clock: now, values: map[series]float64{}, different: sets.New[[2]string]()}
	c.classes.start(&c.mu, classOf)
	c.listeners.start(&c.mu, listenerOf)
	c.addresses.start(&c.mu, addressesOf)
	c.lostNodes.start(&c.mu, lostNodesOf)
	c.outdated.start(&c.mu, outdatedOf)
	c.conditions.start(&c.mu, conditionsOf)
	return c
}

// watch has the informers of a cache count their objects, and waits for those that exist.
func (c *collector) watch(ctx context.Context, informers cache.Informers) error {
	var synced []toolscache.InformerSynced
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&listenersv1alpha1.ListenerClass{}: &c.classes, &listenersv1alpha1.Listener{}: &c.listeners,
		&corev1.Service{}:          &c.addresses,
		&corev1.PersistentVolume{}: &c.lostNodes, &listenersv1alpha1.PodListeners{}: &c.outdated,
		&operatorv1alpha1.ListenerOperator{}: &c.conditions,
	} {
		informer, err := informers.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("reading %T from the cache: %w", object, err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("counting %T in the cache: %w", object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	toolscache.WaitForCacheSync(ctx.Done(), synced...)
	return nil
}

func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range []*prometheus.Desc{listeners, lostVolumes, outdatedPods, conditions, addressesInUse, longestWait,
		unused} {
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
	c.addListeners()
	c.addAll(lostVolumes, c.lostNodes.number)
	c.addAll(outdatedPods, c.outdated.number, string(listenersv1alpha1.OnAddressChangeRestart),
		string(listenersv1alpha1.OnAddressChangeRewrite))
	c.addAll(conditions, c.conditions.number, operatorv1alpha1.ConditionAvailable,
		operatorv1alpha1.ConditionProgressing,
		operatorv1alpha1.ConditionDegraded, operatorv1alpha1.ConditionUpgradeable)
	for s, value := range c.values {
		collected <- prometheus.MustNewConstMetric(s.metric, prometheus.GaugeValue, value, s.labels[:s.number]...)
	}
}

func (c *collector) add(value float64, metric *prometheus.Desc, labels ...string) {
	c.values[seriesOf(metric, labels...)] += value
}

func (c *collector) addAll(metric *prometheus.Desc, numbers map[string]int, present ...string) {
	for _, label := range present {
		c.add(0, metric, label)
	}
	for label, number := range numbers {
		c.add(float64(number), metric, label)
	}
}

// addListeners adds Listeners and the addresses of their load balancers. Each value of a label is a series, so they are
// none that users can choose: a class is empty unless it exists.
func (c *collector) addListeners() {
	classes, now := map[string]class{}, c.clock.Now()
	for class := range c.classes.number {
		classes[class.name] = class
		c.addUnused(class, 0, 0) // present at zero
	}
	for l, number := range c.listeners.number {
		class := classes[l.class]
		c.addState(l, class.name, number)
		if !l.waiting.IsZero() {
			wait := seriesOf(longestWait, class.name)
			c.values[wait] = max(c.values[wait], now.Sub(l.waiting).Seconds())
		}
		if !l.unused.IsZero() {
			c.addUnused(class, number, now.Sub(l.unused))
		}
	}
	clear(c.different)
	for a := range c.addresses.number {
		for _, l := range c.listeners.counted[a.listener] {
			c.different.Insert([2]string{classes[l.class].name, a.address})
		}
	}
	for different := range c.different {
		c.add(1, addressesInUse, different[0])
		c.add(0, longestWait, different[0]) // present at zero
	}
}

// addState adds a number of Listeners. Their reason counts if it is one of the operator's.
func (c *collector) addState(l listener, class string, number int) {
	if !known().Has(l.reason) {
		class, l.reason = "", ""
	}
	c.add(float64(number), listeners, class, strconv.FormatBool(l.ready), l.reason)
}

// unusedDays are the numbers of days after which a Listener without Pods counts.
var unusedDays = []int{1, 7, 30}

// addUnused adds a number of Listeners that no Pod has mounted for so long, if they hold what others could have.
func (c *collector) addUnused(class class, number int, unusedFor time.Duration) {
	for _, days := range unusedDays {
		if class.holds != "" && (number == 0 || unusedFor >= time.Duration(days)*24*time.Hour) {
			c.add(float64(number), unused, class.name, class.holds, strconv.Itoa(days))
		}
	}
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

// class is what a ListenerClass counts as, with what its Listeners hold.
type class struct{ name, holds string }

func classOf(c *listenersv1alpha1.ListenerClass) []class {
	return []class{{name: c.Name, holds: backends.All().Of(c).ScarceOf(c)}}
}

type listener struct {
	class, reason string
	ready         bool
	// waiting and unused are since when it has waited for a load balancer, and no Pod has mounted it.
	waiting, unused time.Time
}

func listenerOf(l *listenersv1alpha1.Listener) []listener {
	status := ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{})
	ready := ptr.Deref(meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady), metav1.Condition{})
	counts := listener{class: l.Class(), reason: status.Summary.Reason, ready: ready.Status == metav1.ConditionTrue}
	if counts.reason == listenersv1alpha1.ReasonWaitingForLoadBalancer {
		counts.waiting = ready.LastTransitionTime.Time
	}
	if status.UnusedSince != nil && status.ServiceName != nil {
		counts.unused = status.UnusedSince.Time
	}
	return []listener{counts}
}

type address struct {
	listener toolscache.ObjectName
	address  string
}

func addressesOf(service *corev1.Service) (addresses []address) {
	owner := exposure.ControllingListener(service)
	if owner == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		for _, value := range []string{ingress.IP, ingress.Hostname} {
			if value != "" {
				addresses = append(addresses, address{toolscache.NewObjectName(service.Namespace, owner.Name), value})
			}
		}
	}
	return addresses
}

func lostNodesOf(pv *corev1.PersistentVolume) []string {
	if !claim.IsListenerVolume(pv) || pv.Annotations[names.AnnotationLostSince] == "" {
		return nil
	}
	return claim.PinnedNodes(pv)
}

func outdatedOf(pod *listenersv1alpha1.PodListeners) []string {
	switch {
	case len(pod.Spec.NeedsRestart()) > 0:
		return []string{string(listenersv1alpha1.OnAddressChangeRestart)}
	case len(pod.Spec.Outdated()) > 0:
		return []string{string(listenersv1alpha1.OnAddressChangeRewrite)}
	}
	return nil
}

func conditionsOf(configuration *operatorv1alpha1.ListenerOperator) (types []string) {
	for _, condition := range configuration.Status.Conditions {
		if condition.Status == metav1.ConditionTrue {
			types = append(types, condition.Type)
		}
	}
	return types
}

// tally counts the objects of a kind by what they count as, and handles the events of their informer.
type tally[T any, K comparable] struct {
	of func(T) []K

	mu *sync.Mutex
	// counted is what each object counts as. The version that an informer deletes may be another one than it added.
	counted map[toolscache.ObjectName][]K
	number  map[K]int
}

func (t *tally[T, K]) start(mu *sync.Mutex, of func(T) []K) {
	*t = tally[T, K]{of: of, mu: mu, counted: map[toolscache.ObjectName][]K{}, number: map[K]int{}}
}

func (t *tally[T, K]) OnAdd(o any, _ bool) { t.count(o, t.of(o.(T))) }

func (t *tally[T, K]) OnUpdate(_, o any) { t.count(o, t.of(o.(T))) }

func (t *tally[T, K]) OnDelete(o any) { t.count(o, nil) }

func (t *tally[T, K]) count(o any, now []K) {
	name, err := toolscache.DeletionHandlingObjectToName(o)
	utilruntime.Must(err) // objects of an informer have names
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.counted[name] {
		if t.number[k]--; t.number[k] == 0 {
			delete(t.number, k)
		}
	}
	for _, k := range now {
		t.number[k]++
	}
	if t.counted[name] = now; len(now) == 0 {
		delete(t.counted, name)
	}
}
