// Package metrics counts, for Prometheus, what is in the cluster: Listeners by class and state, volumes that are pinned
// to lost nodes, outdated Pods, and the conditions of the operator. It follows the events of the cache, so that a
// scrape reads no object. Only the leader has these metrics. The package must never write an object.
package metrics

import (
	"context"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
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
		Help: "Number of Pods whose addresses have changed since they started, and that their class lets restart.",
	}, nil)
	conditions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "listener_operator_condition",
		Help: "Whether a condition of ListenerOperator/cluster is true (1) or not (0), by its type.",
	}, []string{"type"})
)

func init() { metrics.Registry.MustRegister(listeners, lostVolumes, outdatedPods, conditions) }

// SetupWithManager adds the metrics to the manager.
func SetupWithManager(mgr manager.Manager) error {
	return mgr.Add(&exporter{cache: mgr.GetCache()})
}

// exporter counts while it runs.
type exporter struct{ cache cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable: each object is counted once.
func (e *exporter) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (e *exporter) Start(ctx context.Context) error {
	for _, kind := range []string{
		operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ConditionProgressing, operatorv1alpha1.ConditionDegraded, operatorv1alpha1.ConditionUpgradeable,
	} {
		conditions.WithLabelValues(kind) // present at zero
	}
	outdatedPods.WithLabelValues()
	for _, s := range []struct {
		object client.Object
		gauge  *prometheus.GaugeVec
		labels func(client.Object) [][]string
	}{
		{&listenersv1alpha1.Listener{}, listeners, func(o client.Object) [][]string { return listenerLabels(ctx, e.cache, o) }},
		{&corev1.PersistentVolume{}, lostVolumes, lostVolumeLabels},
		{&listenersv1alpha1.PodListeners{}, outdatedPods, outdatedPodLabels},
		{&operatorv1alpha1.ListenerOperator{}, conditions, conditionLabels},
	} {
		informer, err := e.cache.GetInformer(ctx, s.object)
		if err != nil {
			return fmt.Errorf("getting the informer of %T: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(newCount(s.gauge, s.labels).handler())
		if err != nil {
			return fmt.Errorf("watching %T: %w", s.object, err)
		}
		defer func() {
			_ = informer.RemoveEventHandler(registration)
			s.gauge.Reset()
		}()
	}
	<-ctx.Done()
	return nil
}

// listenerLabels returns the class and the state of a Listener. Each value is a series, so they are none that users can
// choose: the class is empty unless it exists, and the reason unless it is one of the operator's.
func listenerLabels(ctx context.Context, reader client.Reader, o client.Object) [][]string {
	l := o.(*listenersv1alpha1.Listener)
	if l.Status == nil {
		return [][]string{{"", "false", ""}}
	}
	class, reason := l.Class(), l.Status.Summary.Reason
	if !reasons.Has(reason) {
		reason = ""
	}
	if reason == "" || reader.Get(ctx, client.ObjectKey{Name: class}, &listenersv1alpha1.ListenerClass{}) != nil {
		class = ""
	}
	ready := meta.IsStatusConditionTrue(l.Status.Conditions, listenersv1alpha1.ListenerReady)
	return [][]string{{class, strconv.FormatBool(ready), reason}}
}

// lostVolumeLabels returns the lost nodes that a volume is pinned to.
func lostVolumeLabels(o client.Object) [][]string {
	pv := o.(*corev1.PersistentVolume)
	if !claim.IsListenerVolume(pv) || pv.Annotations[names.AnnotationLostSince] == "" {
		return nil
	}
	var labels [][]string
	for _, node := range index.PinnedNodes(pv) {
		labels = append(labels, []string{node})
	}
	return labels
}

// outdatedPodLabels counts a Pod whose addresses have changed since it started.
func outdatedPodLabels(o client.Object) [][]string {
	if len(o.(*listenersv1alpha1.PodListeners).Spec.Outdated()) == 0 {
		return nil
	}
	return [][]string{{}}
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
