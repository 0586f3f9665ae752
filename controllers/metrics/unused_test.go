package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// unusedOnly collects the metric of unused Listeners.
type unusedOnly struct{ *records }

func (unusedOnly) Describe(descriptions chan<- *prometheus.Desc) {
	leaderCollector{}.Describe(descriptions)
}
func (u unusedOnly) Collect(collected chan<- prometheus.Metric) { u.collect(collected) }

func TestListenersThatNoPodHasMountedCountByDays(t *testing.T) {
	c, clock := fakeclient.New(t, interceptor.Funcs{}), testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	u := newRecords(c, clock)
	changed := handler(func(l *listenersv1alpha1.Listener, exists bool) { u.setListener(t.Context(), l, exists) })
	for name, spec := range map[string]listenersv1alpha1.ListenerClassSpec{
		"public": {ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer}, "nodes": {ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		"tcp":     {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTCP}},
		"tls":     {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTLS}},
		"cluster": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	} {
		if err := c.Create(t.Context(), &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	add := func(name, class string, days int) *listenersv1alpha1.Listener {
		l := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class}}
		l.Status = &listenersv1alpha1.ListenerStatus{ServiceName: &name}
		if days >= 0 {
			l.Status.UnusedSince = ptr.To(metav1.NewTime(clock.Now().Add(-time.Duration(days) * 24 * time.Hour)))
		}
		changed.OnAdd(l, false)
		return l
	}
	expect := func(what string, want map[string]float64) {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(unusedOnly{u})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() { // whose labels are sorted by name
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[2].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	add("used", "public", -1)
	old := add("old", "public", 8)
	add("older", "public", 31)
	add("new", "nodes", 0)
	add("gateway", "tcp", 2)
	add("host", "tls", 40)
	add("inside", "cluster", 40)
	add("gone", "deleted", 40)
	rejected := add("rejected", "nodes", 40)
	rejected.Status.ServiceName = nil
	changed.OnUpdate(rejected, rejected)
	expect("at first", map[string]float64{
		"public LoadBalancer 1": 2, "public LoadBalancer 7": 2, "public LoadBalancer 30": 1,
		"nodes NodePort 1": 0, "nodes NodePort 7": 0, "nodes NodePort 30": 0, "tcp GatewayPort 1": 1, "tcp GatewayPort 7": 0, "tcp GatewayPort 30": 0,
	})
	clock.SetTime(clock.Now().Add(24 * time.Hour))
	old.Status.UnusedSince = nil
	changed.OnUpdate(old, old)
	expect("a day later, when one is used again", map[string]float64{
		"public LoadBalancer 1": 1, "public LoadBalancer 7": 1, "public LoadBalancer 30": 1,
		"nodes NodePort 1": 1, "nodes NodePort 7": 0, "nodes NodePort 30": 0, "tcp GatewayPort 1": 1, "tcp GatewayPort 7": 0, "tcp GatewayPort 30": 0,
	})
	changed.OnDelete(old)
}
