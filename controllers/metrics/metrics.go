// Package metrics counts, for Prometheus, what is in the cluster: Listeners by class and state, those that no Pod
// mounts, addresses of load balancers, volumes that are pinned to lost nodes, outdated Pods, and the conditions of the
// operator. It follows the events of the cache, so that a scrape reads no object. Only the leader has these metrics.
// The package must never write an object.
package metrics

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

var (
	listeners = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "listener_operator_listeners",
		Help: "Number of Listeners by class, whether they are ready, and the reason.",
	}, []string{"class", "ready", "reason"})
	lostVolumes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "listener_operator_lost_volumes",
		Help: "Number of PersistentVolumes that are pinned to a lost node, whose Pods cannot start, by node.",
	}, []string{"node"})
	outdatedPods = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "listener_operator_outdated_pods",
		Help: "Number of Pods whose addresses have changed since they started, by whether their class lets them restart.",
	}, []string{"on_change"})
	conditions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "listener_operator_condition",
		Help: "Whether a condition of ListenerOperator/cluster is true (1) or not (0), by its type.",
	}, []string{"type"})
	addressesInUse = prometheus.NewDesc("listener_operator_load_balancer_addresses",
		"Number of different addresses of load balancers that Listeners have, by class. Which addresses are left in a pool, only the controller of the load balancer knows.",
		[]string{"class"}, nil)
	longestWait = prometheus.NewDesc("listener_operator_load_balancer_longest_wait_seconds",
		"For how long the Listener has had no address that has waited longest for a load balancer, by class; 0 or absent if none waits.",
		[]string{"class"}, nil)
	unusedCount = prometheus.NewDesc("listener_operator_unused_listeners",
		"Number of Listeners that no Pod has mounted for so many days, and that hold a load balancer, node ports or ports of a Gateway, by class.",
		[]string{"class", "holds", "days"}, nil)
)

func init() {
	metrics.Registry.MustRegister(listeners, lostVolumes, outdatedPods, conditions, leaderCollector{})
}

// SetupWithManager adds the metrics to the manager, which runs them while it leads: each object is counted once.
func SetupWithManager(mgr manager.Manager) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return export(ctx, mgr.GetCache()) }))
}

// export counts until ctx is done.
func export(ctx context.Context, objects cache.Cache) error {
	for _, kind := range []string{
		operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ConditionProgressing, operatorv1alpha1.ConditionDegraded, operatorv1alpha1.ConditionUpgradeable,
	} {
		conditions.WithLabelValues(kind) // present at zero
	}
	for _, onChange := range []listenersv1alpha1.OnAddressChange{listenersv1alpha1.OnAddressChangeRestart, listenersv1alpha1.OnAddressChangeRewrite} {
		outdatedPods.WithLabelValues(string(onChange))
	}
	for _, gauge := range []*prometheus.GaugeVec{listeners, lostVolumes, outdatedPods, conditions} {
		defer gauge.Reset()
	}
	recorded := newRecords(objects, clock.RealClock{})
	leading.Store(recorded)
	defer leading.CompareAndSwap(recorded, nil)
	for _, s := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&listenersv1alpha1.Listener{}, count(listeners, func(o client.Object) [][]string { return listenerLabels(ctx, objects, o) })},
		{&listenersv1alpha1.Listener{}, handler(func(l *listenersv1alpha1.Listener, exists bool) { recorded.setListener(ctx, l, exists) })},
		{&corev1.Service{}, handler(recorded.setService)},
		{&corev1.PersistentVolume{}, count(lostVolumes, lostVolumeLabels)},
		{&listenersv1alpha1.PodListeners{}, count(outdatedPods, outdatedPodLabels)},
		{&operatorv1alpha1.ListenerOperator{}, count(conditions, conditionLabels)},
	} {
		informer, err := objects.GetInformer(ctx, s.object)
		if err != nil {
			return fmt.Errorf("getting the informer of %T: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(s.handler)
		if err != nil {
			return fmt.Errorf("watching %T: %w", s.object, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	<-ctx.Done()
	return nil
}

// leading are the records of the replica that leads, or nil.
var leading atomic.Pointer[records]

// leaderCollector collects the metrics that are computed at each scrape.
type leaderCollector struct{}

// Describe implements prometheus.Collector.
func (leaderCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{addressesInUse, longestWait, unusedCount} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (leaderCollector) Collect(collected chan<- prometheus.Metric) {
	if recorded := leading.Load(); recorded != nil {
		recorded.collect(collected)
	}
}

// count returns a handler that counts objects by the values of labels. An object counts once for each of its sets of
// values. A set that no object has any more stays at zero, as Prometheus expects.
func count(gauge *prometheus.GaugeVec, labels func(client.Object) [][]string) toolscache.ResourceEventHandler {
	counted := map[types.UID][][]string{} // the sets with which an object counts; an informer calls its handlers one at a time
	return handler(func(object client.Object, exists bool) {
		for _, values := range counted[object.GetUID()] {
			gauge.WithLabelValues(values...).Dec()
		}
		delete(counted, object.GetUID())
		if sets := labels(object); exists && len(sets) > 0 {
			counted[object.GetUID()] = sets
			for _, values := range sets {
				gauge.WithLabelValues(values...).Inc()
			}
		}
	})
}

// handler returns an event handler that calls set for each object.
func handler[T client.Object](set func(o T, exists bool)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o.(T), true) },
		UpdateFunc: func(_, o any) { set(o.(T), true) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			set(o.(T), false)
		},
	}
}

// listenerLabels returns the class and the state of a Listener. Each value is a series, so they are none that users can
// choose: the class is empty unless it exists, and the reason unless it is one of the operator's.
func listenerLabels(ctx context.Context, reader client.Reader, o client.Object) [][]string {
	l := o.(*listenersv1alpha1.Listener)
	if l.Status == nil {
		return [][]string{{"", "false", ""}}
	}
	class, reason := l.Class(), l.Status.Summary.Reason
	if !known().Has(reason) {
		reason = ""
	}
	if reason == "" || reader.Get(ctx, client.ObjectKey{Name: class}, &listenersv1alpha1.ListenerClass{}) != nil {
		class = ""
	}
	ready := meta.IsStatusConditionTrue(l.Status.Conditions, listenersv1alpha1.ListenerReady)
	return [][]string{{class, strconv.FormatBool(ready), reason}}
}

// known are the reasons that the API declares.
var known = sync.OnceValue(func() sets.Set[string] {
	all := sets.New[string]()
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			all.Insert(r.Name)
		}
	}
	return all
})

// lostVolumeLabels returns the lost nodes that a volume is pinned to.
func lostVolumeLabels(o client.Object) [][]string {
	pv := o.(*corev1.PersistentVolume)
	if !claim.IsListenerVolume(pv) || pv.Annotations[names.AnnotationLostSince] == "" {
		return nil
	}
	var labels [][]string
	for _, node := range claim.PinnedNodes(pv) {
		labels = append(labels, []string{node})
	}
	return labels
}

// outdatedPodLabels counts a Pod whose addresses have changed since it started.
func outdatedPodLabels(o client.Object) [][]string {
	switch spec := &o.(*listenersv1alpha1.PodListeners).Spec; {
	case len(spec.NeedsRestart()) > 0:
		return [][]string{{string(listenersv1alpha1.OnAddressChangeRestart)}}
	case len(spec.Outdated()) > 0:
		return [][]string{{string(listenersv1alpha1.OnAddressChangeRewrite)}}
	default:
		return nil
	}
}

// conditionLabels returns the types of the conditions of the operator that are true.
func conditionLabels(o client.Object) [][]string {
	var labels [][]string
	for _, c := range o.(*operatorv1alpha1.ListenerOperator).Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			labels = append(labels, []string{c.Type})
		}
	}
	return labels
}
