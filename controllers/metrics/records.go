package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// unusedDays are the numbers of days after which a Listener without Pods counts.
var unusedDays = []int{1, 7, 30}

// records has what metrics that are computed at each scrape depend on. Event handlers keep it current. It is safe for
// concurrent use.
type records struct {
	reader client.Reader
	clock  clock.PassiveClock

	mu        sync.Mutex
	listeners map[types.NamespacedName]record
	// services are those with addresses of a load balancer, by the name that a Listener and its Service have.
	services map[types.NamespacedName]balanced
	// balancing are the classes whose Listeners have had such an address. Their series stay.
	balancing sets.Set[string]
}

// record is a Listener.
type record struct {
	uid types.UID
	// class is empty unless the class exists: users write its name.
	class string
	// waiting is since when the Listener waits for a load balancer, or zero.
	waiting time.Time
	// holds is what a Listener that no Pod has mounted since a time takes from others, or empty.
	holds  string
	unused time.Time
}

// balanced is a Service with addresses of a load balancer.
type balanced struct {
	controller types.UID
	addresses  []string
}

func newRecords(reader client.Reader, c clock.PassiveClock) *records {
	return &records{
		reader: reader, clock: c, listeners: map[types.NamespacedName]record{}, services: map[types.NamespacedName]balanced{}, balancing: sets.New[string](),
	}
}

// setService handles a change of a Service.
func (r *records) setService(service *corev1.Service, exists bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(service)
	delete(r.services, key)
	owner := metav1.GetControllerOf(service)
	if !exists || owner == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	var addresses []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		for _, address := range []string{ingress.IP, ingress.Hostname} {
			if address != "" {
				addresses = append(addresses, address)
			}
		}
	}
	if len(addresses) > 0 {
		r.services[key] = balanced{owner.UID, addresses}
	}
}

// setListener handles a change of a Listener.
func (r *records) setListener(ctx context.Context, listener *listenersv1alpha1.Listener, exists bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(listener)
	delete(r.listeners, key)
	if !exists {
		return
	}
	l, status := record{uid: listener.UID}, ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	if class, err := lookup.Get(ctx, r.reader, client.ObjectKey{Name: listener.Class()}, &listenersv1alpha1.ListenerClass{}); err == nil && class != nil {
		l.class = class.Name
		if status.UnusedSince != nil && status.ServiceName != nil {
			l.holds, l.unused = backends.All().Of(class).ScarceOf(class), status.UnusedSince.Time
		}
	}
	ready := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady)
	if ready != nil && status.Summary.Reason == listenersv1alpha1.ReasonWaitingForLoadBalancer {
		l.waiting = ready.LastTransitionTime.Time
	}
	r.listeners[key] = l
}

// collect takes time for each Listener, but reads no object.
func (r *records) collect(collected chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type series struct {
		class, holds string
		days         int
	}
	addresses, longest, unused, now := map[string]sets.Set[string]{}, map[string]time.Duration{}, map[series]int{}, r.clock.Now()
	for key, l := range r.listeners {
		if s := r.services[key]; len(s.addresses) > 0 && s.controller == l.uid {
			r.balancing.Insert(l.class)
			addresses[l.class] = sets.New(s.addresses...).Union(addresses[l.class])
		}
		if !l.waiting.IsZero() {
			longest[l.class] = max(longest[l.class], now.Sub(l.waiting))
		}
		for _, days := range unusedDays {
			if s := (series{l.class, l.holds, days}); l.holds != "" && now.Sub(l.unused) >= time.Duration(days)*24*time.Hour {
				unused[s]++
			} else if l.holds != "" {
				unused[s] += 0 // present at zero
			}
		}
	}
	gauge := func(kind *prometheus.Desc, value float64, labels ...string) {
		collected <- prometheus.MustNewConstMetric(kind, prometheus.GaugeValue, value, labels...)
	}
	for class := range r.balancing {
		gauge(addressesInUse, float64(len(addresses[class])), class)
		longest[class] += 0 // present at zero
	}
	for class, duration := range longest {
		gauge(longestWait, duration.Seconds(), class)
	}
	for s, n := range unused {
		gauge(unusedCount, float64(n), s.class, s.holds, strconv.Itoa(s.days))
	}
}
