package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// loadBalancers has the addresses of load balancers that Listeners have, and the Listeners that wait for one. Event
// handlers keep it current. It is safe for concurrent use. Names of classes are empty unless the class exists.
type loadBalancers struct {
	reader client.Reader
	clock  clock.PassiveClock

	mu sync.Mutex
	// services are those of Listeners whose load balancer has assigned an address, by the name that both have.
	services map[types.NamespacedName]balanced
	// inUse is how many Services have each address, by class.
	inUse map[string]map[string]int
	// waiting is since when Listeners wait, and of which class they are.
	waiting map[types.NamespacedName]wait
}

// balanced are the addresses of a Service, and the class of its Listener.
type balanced struct {
	class     string
	addresses []string
}

// wait is since when a Listener of a class has had no address.
type wait struct {
	class string
	since time.Time
}

func newLoadBalancers(reader client.Reader, c clock.PassiveClock) *loadBalancers {
	return &loadBalancers{
		reader: reader, clock: c, services: map[types.NamespacedName]balanced{}, inUse: map[string]map[string]int{}, waiting: map[types.NamespacedName]wait{},
	}
}

// existingClass returns the name of the class of a Listener, which users write, or "" if no such class exists.
func existingClass(ctx context.Context, reader client.Reader, listener *listenersv1alpha1.Listener) string {
	class, err := lookup.Get(ctx, reader, client.ObjectKey{Name: listener.Class()}, &listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return ""
	}
	return class.Name
}

// setService handles a change of a Service. The class is read after the lock: an event of the Listener that is not in
// the cache yet comes later.
func (l *loadBalancers) setService(ctx context.Context, service *corev1.Service, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(service)
	var addresses []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		for _, address := range []string{ingress.IP, ingress.Hostname} {
			if address != "" {
				addresses = append(addresses, address)
			}
		}
	}
	owner := metav1.GetControllerOf(service)
	if !exists || len(addresses) == 0 || service.Spec.Type != corev1.ServiceTypeLoadBalancer || owner == nil {
		l.set(key, balanced{})
		return
	}
	listener, err := lookup.WithUID(ctx, l.reader, key, owner.UID, &listenersv1alpha1.Listener{})
	if err != nil || listener == nil {
		l.set(key, balanced{})
		return
	}
	l.set(key, balanced{existingClass(ctx, l.reader, listener), addresses})
}

// set makes the addresses of a Service those that it has now.
func (l *loadBalancers) set(key types.NamespacedName, now balanced) {
	before := l.services[key]
	if before.class == now.class && slices.Equal(before.addresses, now.addresses) {
		return
	}
	for _, address := range before.addresses {
		used := l.inUse[before.class]
		if used[address]--; used[address] == 0 {
			delete(used, address)
		}
	}
	delete(l.services, key)
	if len(now.addresses) == 0 {
		return
	}
	l.services[key] = now
	if l.inUse[now.class] == nil {
		l.inUse[now.class] = map[string]int{}
	}
	for _, address := range now.addresses {
		l.inUse[now.class][address]++
	}
}

// setListener handles a change of a Listener.
func (l *loadBalancers) setListener(ctx context.Context, listener *listenersv1alpha1.Listener, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(listener)
	service, balances := l.services[key]
	waits := exists && ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Summary.Reason == listenersv1alpha1.ReasonWaitingForLoadBalancer
	delete(l.waiting, key)
	if !exists || !balances && !waits {
		return
	}
	class := existingClass(ctx, l.reader, listener)
	if balances {
		l.set(key, balanced{class, service.addresses})
	}
	if ready := meta.FindStatusCondition(ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Conditions, listenersv1alpha1.ListenerReady); waits && ready != nil {
		l.waiting[key] = wait{class, ready.LastTransitionTime.Time}
	}
}

// handler returns an event handler that calls set for each object.
func handler[T client.Object](ctx context.Context, set func(ctx context.Context, o T, exists bool)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(ctx, o.(T), true) },
		UpdateFunc: func(_, o any) { set(ctx, o.(T), true) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			set(ctx, o.(T), false)
		},
	}
}

// collect takes time for each class and each Listener that waits.
func (l *loadBalancers) collect(collected chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := map[string]time.Duration{}
	for class, addresses := range l.inUse {
		longest[class] = 0
		collected <- prometheus.MustNewConstMetric(addressesInUse, prometheus.GaugeValue, float64(len(addresses)), class)
	}
	now := l.clock.Now()
	for _, w := range l.waiting {
		longest[w.class] = max(longest[w.class], now.Sub(w.since))
	}
	for class, duration := range longest {
		collected <- prometheus.MustNewConstMetric(longestWait, prometheus.GaugeValue, duration.Seconds(), class)
	}
}
