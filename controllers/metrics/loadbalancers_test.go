package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// balancing is a cache with Listeners, of which every change is handled.
type balancing struct {
	*testing.T
	client.Client
	*records
	clock                 *testingclock.FakePassiveClock
	onListener, onService toolscache.ResourceEventHandler
}

func newBalancing(t *testing.T, classes ...string) *balancing {
	t.Helper()
	b := &balancing{T: t, Client: fakeclient.New(t, interceptor.Funcs{}), clock: testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0))}
	for _, name := range classes {
		b.create(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	b.records = newRecords(b.Client, b.clock)
	b.onListener = handler(func(l *listenersv1alpha1.Listener, exists bool) { b.setListener(t.Context(), l, exists) })
	b.onService = handler(b.setService)
	return b
}

func (b *balancing) create(o client.Object) {
	b.Helper()
	if err := b.Create(b.Context(), o); err != nil {
		b.Fatal(err)
	}
}

// listener creates a Listener, which has the reason for so long.
func (b *balancing) listener(name, class, reason string, age time.Duration) *listenersv1alpha1.Listener {
	b.Helper()
	l := listener(types.UID("uid-of-"+name), class, reason, metav1.ConditionFalse)
	l.Namespace, l.Name = "shop", name
	l.Status.Conditions[0].LastTransitionTime = metav1.NewTime(b.clock.Now().Add(-age))
	b.create(l)
	b.onListener.OnAdd(l, false)
	return l
}

// service adds the Service of a Listener, with the addresses of its load balancer.
func (b *balancing) service(name string, addresses ...string) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Namespace, s.Name = "shop", name
	owner := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, listenersv1alpha1.GroupVersion.WithKind("Listener"))}
	for _, address := range addresses {
		ingress := corev1.LoadBalancerIngress{Hostname: address}
		if strings.HasPrefix(address, "192.") {
			ingress = corev1.LoadBalancerIngress{IP: address}
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, ingress)
	}
	b.onService.OnAdd(s, false)
	return s
}

// Describe implements prometheus.Collector.
func (b *balancing) Describe(descriptions chan<- *prometheus.Desc) {
	leaderCollector{}.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (b *balancing) Collect(collected chan<- prometheus.Metric) { b.collect(collected) }

// expect compares the metrics, by name and class.
func (b *balancing) expect(what string, want map[string]float64) {
	b.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(b)
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "listener_operator_load_balancer_")
			got[name+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnAddressThatListenersShareCountsOnce(t *testing.T) {
	b := newBalancing(t, "shared", "own")
	for _, name := range []string{"a", "b", "c", "d"} {
		b.listener(name, map[string]string{"d": "own"}[name]+map[bool]string{true: "shared"}[name != "d"], "AddressesAssigned", 0)
	}
	b.service("a", "192.0.2.1")
	second := b.service("b", "192.0.2.1")
	third := b.service("c", "192.0.2.2")
	last := b.service("d", "192.0.2.9", "lb.example.com")
	b.expect("four Services", map[string]float64{"addresses shared": 2, "addresses own": 2, "longest_wait_seconds shared": 0, "longest_wait_seconds own": 0})

	b.onService.OnDelete(second)
	b.onService.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: third})
	internal := last.DeepCopy()
	internal.Spec.Type = corev1.ServiceTypeClusterIP
	b.onService.OnUpdate(last, internal)
	b.expect("of one address that two had", map[string]float64{"addresses shared": 1, "addresses own": 0, "longest_wait_seconds shared": 0, "longest_wait_seconds own": 0})
}

func TestServicesOfOthersDoNotCount(t *testing.T) {
	b := newBalancing(t, "public")
	b.listener("web", "public", "AddressesAssigned", 0)
	foreign := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	foreign.Namespace, foreign.Name = "shop", "web"
	foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	b.onService.OnAdd(foreign, true)
	b.service("gone", "192.0.2.2") // there is no such Listener
	b.expect("Services of others", map[string]float64{})
}

func TestAddressesFollowTheClassOfTheirListener(t *testing.T) {
	b := newBalancing(t, "one", "two")
	l := b.listener("web", "one", "AddressesAssigned", 0)
	b.service("web", "192.0.2.1")
	b.expect("at first", map[string]float64{"addresses one": 1, "longest_wait_seconds one": 0})
	moved := l.DeepCopy()
	*moved.Spec.ClassName = "two"
	b.onListener.OnUpdate(l, moved)
	b.expect("after the class was changed", map[string]float64{"addresses one": 0, "addresses two": 1, "longest_wait_seconds one": 0, "longest_wait_seconds two": 0})
}

func TestTheLongestWaitForALoadBalancerIsMeasured(t *testing.T) {
	b := newBalancing(t, "public")
	old := b.listener("old", "public", "WaitingForLoadBalancer", time.Hour)
	b.listener("new", "public", "WaitingForLoadBalancer", time.Minute)
	b.listener("other", "public", "WaitingForPods", 2*time.Hour)
	b.expect("two wait", map[string]float64{"longest_wait_seconds public": 3600})
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	b.expect("a minute later", map[string]float64{"longest_wait_seconds public": 3660})
	b.onListener.OnDelete(old)
	b.expect("one is deleted", map[string]float64{"longest_wait_seconds public": 120})
}

// Tenants write the class of a Listener.
func TestTenantsCannotAddSeriesOfLoadBalancers(t *testing.T) {
	b := newBalancing(t)
	for i := range 100 {
		name := fmt.Sprint("web-", i)
		b.listener(name, fmt.Sprint("users-can-name-any-", i), "WaitingForLoadBalancer", time.Minute)
		b.service(name, "192.0.2.1")
	}
	b.expect("classes that do not exist", map[string]float64{"addresses ": 1, "longest_wait_seconds ": 60})
}
