package metrics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// cluster has objects that are counted, and changes them as the informers of a cache do.
type cluster struct {
	testing.TB
	informers *informertest.FakeInformers
	clock     *testingclock.FakePassiveClock
	counts    *collector
	registry  *prometheus.Registry
}

// newCluster returns a cluster with these classes, which have addresses of load balancers.
func newCluster(t testing.TB, classes ...string) *cluster {
	t.Helper()
	c := &cluster{
		TB: t, informers: &informertest.FakeInformers{Scheme: fakeclient.Scheme()},
		clock: testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), registry: prometheus.NewRegistry(),
	}
	c.counts = newCollector(c.clock)
	check.Must(t, c.counts.watch(t.Context(), c.informers))
	c.registry.MustRegister(c.counts)
	for _, name := range classes {
		c.class(name, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer})
	}
	return c
}

func (c *cluster) informer(o client.Object) *controllertest.FakeInformer {
	c.Helper()
	informer, err := c.informers.FakeInformerFor(c.Context(), o)
	check.Must(c, err)
	return informer
}

func (c *cluster) create(o client.Object) { c.informer(o).Add(o) }

// change changes an object that exists.
func (c *cluster) change(o client.Object) { c.informer(o).Update(nil, o) }

func (c *cluster) delete(o client.Object) { c.informer(o).Delete(o) }

func (c *cluster) class(name string, spec listenersv1alpha1.ListenerClassSpec) {
	c.Helper()
	c.create(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
}

// listener creates a Listener of a class, with a status unless the reason is empty.
func (c *cluster) listener(name, class, reason string, ready metav1.ConditionStatus) *listenersv1alpha1.Listener {
	c.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name)}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class},
	}
	c.create(l)
	if reason != "" {
		l.Status = &listenersv1alpha1.ListenerStatus{
			Summary:    listenersv1alpha1.ListenerSummary{Reason: reason},
			Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerReady, Status: ready, LastTransitionTime: metav1.NewTime(c.clock.Now())}},
		}
		c.change(l)
	}
	return l
}

// waits creates a Listener that is not ready for a reason since so long.
func (c *cluster) waits(name, class, reason string, age time.Duration) *listenersv1alpha1.Listener {
	c.Helper()
	l := c.listener(name, class, reason, metav1.ConditionFalse)
	l.Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.clock.Now().Add(-age))
	c.change(l)
	return l
}

// service creates the Service of a Listener, with the addresses of its load balancer.
func (c *cluster) service(name string, addresses ...string) *corev1.Service {
	c.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	owner := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, listenersv1alpha1.GroupVersion.WithKind("Listener"))}
	for _, address := range addresses {
		ingress := corev1.LoadBalancerIngress{Hostname: address}
		if strings.HasPrefix(address, "192.") {
			ingress = corev1.LoadBalancerIngress{IP: address}
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, ingress)
	}
	c.create(s)
	return s
}

func ingress(address string) []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{{Address: address, AddressType: listenersv1alpha1.AddressTypeIP}}
}

// pod creates the addresses of a Pod at its start and now, and the volumes that restart it.
func (c *cluster) pod(name, start, now string, restart ...string) *listenersv1alpha1.PodListeners {
	c.Helper()
	p := &listenersv1alpha1.PodListeners{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.Listeners = map[string]listenersv1alpha1.PodListener{"listener": {IngressAddresses: ingress(now)}}
	p.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": ingress(start)}
	p.Spec.RestartOnChange = restart
	c.create(p)
	return p
}

// lostVolume creates a volume of a CSI driver that is pinned to a lost node.
func (c *cluster) lostVolume(name, driver string) *corev1.PersistentVolume {
	c.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{names.AnnotationLostSince: "2026-01-01T00:00:00Z"}},
		Spec: corev1.PersistentVolumeSpec{
			NodeAffinity: claim.NodeAffinity("node-1"), PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}},
		},
	}
	c.create(pv)
	return pv
}

// values returns the series whose metrics have a prefix, by the rest of their names and the values of their labels,
// which are sorted by the names of labels.
func (c *cluster) values(prefix string) map[string]float64 {
	c.Helper()
	families, err := c.registry.Gather()
	check.Must(c, err)
	got := map[string]float64{}
	for _, family := range families {
		rest, ok := strings.CutPrefix(family.GetName(), "listener_operator_"+prefix)
		if !ok {
			continue
		}
		for _, m := range family.GetMetric() {
			key := rest
			for _, l := range m.GetLabel() {
				key += "," + l.GetName() + "=" + l.GetValue()
			}
			got[strings.TrimPrefix(key, ",")] = m.GetGauge().GetValue()
		}
	}
	return got
}

// expect compares values.
func (c *cluster) expect(what, prefix string, want map[string]float64) {
	c.Helper()
	if diff := cmp.Diff(want, c.values(prefix)); diff != "" {
		c.Errorf("%s (-want +got):\n%.1000s", what, diff)
	}
}

func TestPodsWhoseAddressesHaveChangedAreCounted(t *testing.T) {
	c := newCluster(t)
	c.expect("none, which alerts compare", "outdated_pods", map[string]float64{"on_change=Restart": 0, "on_change=Rewrite": 0})
	c.pod("current", "192.0.2.1", "192.0.2.1")
	rewritten := c.pod("rewritten", "192.0.2.1", "192.0.2.2")
	returning := c.pod("returning", "192.0.2.1", "192.0.2.2", "listener")
	c.pod("restarting", "192.0.2.1", "192.0.2.2", "listener")
	c.expect("three have changed", "outdated_pods", map[string]float64{"on_change=Restart": 2, "on_change=Rewrite": 1})
	c.delete(rewritten)
	returning.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{IngressAddresses: ingress("192.0.2.1")}
	c.change(returning)
	c.expect("after deletion and change", "outdated_pods", map[string]float64{"on_change=Restart": 1, "on_change=Rewrite": 0})
}

// Alerts compare these series, so they exist while there is nothing to count, and go when another replica leads.
func TestSeriesExistWhileTheReplicaLeads(t *testing.T) {
	c := newCluster(t)
	c.registry = prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- export(ctx, c.informers, c.registry) }()
	g := NewWithT(t)
	g.Eventually(func() int { return len(c.values("")) }).WithTimeout(time.Minute).Should(Equal(6))
	cancel()
	g.Expect(<-ended).To(Succeed())
	g.Expect(c.values("")).To(BeEmpty())
}

func TestListenersAreCountedByClassReadyAndReason(t *testing.T) {
	c := newCluster(t, "public")
	first := c.listener("1", "public", "", "")
	c.listener("2", "public", "AddressesAssigned", metav1.ConditionTrue)
	third := c.listener("3", "users-can-name-any", "ClassNotFound", metav1.ConditionFalse)
	fourth := c.listener("4", "public", "WaitingForPods", metav1.ConditionFalse)
	c.expect("at first", "listeners", map[string]float64{
		"class=,ready=false,reason=":                       1,
		"class=public,ready=true,reason=AddressesAssigned": 1,
		"class=,ready=false,reason=ClassNotFound":          1,
		"class=public,ready=false,reason=WaitingForPods":   1,
	})
	first.Status = &listenersv1alpha1.ListenerStatus{
		Summary:    listenersv1alpha1.ListenerSummary{Reason: "AddressesAssigned"},
		Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue}},
	}
	c.change(first)
	c.delete(third)
	c.delete(fourth)
	c.expect("after changes", "listeners", map[string]float64{
		"class=,ready=false,reason=":                       0,
		"class=public,ready=true,reason=AddressesAssigned": 2,
		"class=,ready=false,reason=ClassNotFound":          0,
		"class=public,ready=false,reason=WaitingForPods":   0,
	})
}

// An informer that missed a deletion knows only the name.
func TestAListenerWhoseDeletionWasMissedDoesNotCount(t *testing.T) {
	c := newCluster(t, "public")
	c.listener("1", "public", "WaitingForPods", metav1.ConditionFalse)
	c.expect("before", "listeners", map[string]float64{"class=public,ready=false,reason=WaitingForPods": 1})
	c.counts.listeners.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/1"})
	c.expect("after", "listeners", map[string]float64{"class=public,ready=false,reason=WaitingForPods": 0})
}

// many returns a cluster with so many Listeners that no Pod mounts, each with an own time, half of which have an
// address of a load balancer, and half of which wait for one.
func many(t testing.TB, number int) *cluster {
	t.Helper()
	c := newCluster(t, "public")
	for i := range number {
		name, reason := fmt.Sprint("web-", i), "WaitingForLoadBalancer"
		if i%2 == 0 {
			reason = "AddressesAssigned"
			c.service(name, fmt.Sprintf("192.0.%d.%d", i/250, i%250))
		}
		l := c.waits(name, "public", reason, time.Duration(i)*time.Second)
		l.Status.ServiceName, l.Status.UnusedSince = &name, new(metav1.NewTime(c.clock.Now().Add(-time.Duration(i)*time.Hour)))
		c.change(l)
		c.lostVolume(name, names.Driver)
		c.pod(name, "192.0.2.1", "192.0.2.2", "listener")
	}
	return c
}

// scrape returns a function that collects all series.
func (c *cluster) scrape() func() {
	collected := make(chan prometheus.Metric, 100)
	return func() {
		c.counts.Collect(collected)
		for len(collected) > 0 {
			<-collected
		}
	}
}

func TestAScrapeAllocatesNothingForEachListener(t *testing.T) {
	few, lots := many(t, 10).scrape(), many(t, 2000).scrape()
	if few, lots := testing.AllocsPerRun(10, few), testing.AllocsPerRun(10, lots); few != lots {
		t.Errorf("%v allocations with 10 Listeners, and %v with 2000", few, lots)
	}
}

func BenchmarkScrapeOf10000Listeners(b *testing.B) {
	scrape := many(b, 10_000).scrape()
	b.ReportAllocs()
	for b.Loop() {
		scrape()
	}
}

func TestAListenerCountsForItsClassAsSoonAsThatExists(t *testing.T) {
	c := newCluster(t)
	c.listener("web", "public", "ClassNotFound", metav1.ConditionFalse)
	c.expect("before", "listeners", map[string]float64{"class=,ready=false,reason=ClassNotFound": 1})
	c.class("public", listenersv1alpha1.ListenerClassSpec{})
	c.expect("after", "listeners", map[string]float64{"class=,ready=false,reason=ClassNotFound": 0, "class=public,ready=false,reason=ClassNotFound": 1})
}

// Tenants write the class of a Listener and, with permission for it, its status. Each value of a label is a series.
func TestTenantsCannotAddSeries(t *testing.T) {
	c := newCluster(t)
	for i := range 100 {
		name := fmt.Sprint("web-", i)
		l := c.waits(name, fmt.Sprint(i, strings.Repeat("x", 3000)), "WaitingForLoadBalancer", time.Minute)
		c.service(name, "192.0.2.1")
		if i%2 == 0 {
			l.Status.Summary.Reason = fmt.Sprint("Reason", i)
			c.change(l)
		}
	}
	c.expect("classes and reasons that do not exist", "listeners", map[string]float64{
		"class=,ready=false,reason=WaitingForLoadBalancer": 50, "class=,ready=false,reason=": 50,
	})
	c.expect("classes that do not exist", "load_balancer_", map[string]float64{"addresses,class=": 1, "longest_wait_seconds,class=": 60})
}

func TestVolumesOfLostNodesAreCountedByNode(t *testing.T) {
	c := newCluster(t)
	pv := c.lostVolume("lost", names.Driver)
	c.lostVolume("other", "other.example")
	c.expect("lost", "lost_volumes", map[string]float64{"node=node-1": 1})
	delete(pv.Annotations, names.AnnotationLostSince)
	c.change(pv)
	c.expect("back", "lost_volumes", map[string]float64{"node=node-1": 0})
}

func TestConditionsThatAreTrueAreCounted(t *testing.T) {
	c := newCluster(t)
	want := map[string]float64{"type=Available": 0, "type=Progressing": 0, "type=Degraded": 0, "type=Upgradeable": 0}
	c.expect("without a configuration", "condition", want)
	configuration := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	c.create(configuration)
	configuration.Status.Conditions = []metav1.Condition{
		{Type: "Available", Status: metav1.ConditionTrue}, {Type: "Degraded", Status: metav1.ConditionFalse}, {Type: "Upgradeable", Status: metav1.ConditionTrue},
	}
	c.change(configuration)
	want["type=Available"], want["type=Upgradeable"] = 1, 1
	c.expect("with one", "condition", want)
}

func TestAnAddressThatListenersShareCountsOnce(t *testing.T) {
	c := newCluster(t, "shared", "own")
	for name, class := range map[string]string{"a": "shared", "b": "shared", "c": "shared", "d": "own"} {
		c.listener(name, class, "AddressesAssigned", metav1.ConditionTrue)
	}
	c.service("a", "192.0.2.1")
	second := c.service("b", "192.0.2.1")
	third := c.service("c", "192.0.2.2")
	last := c.service("d", "192.0.2.9", "lb.example.com")
	c.expect("four Services", "load_balancer_", map[string]float64{
		"addresses,class=shared": 2, "addresses,class=own": 2, "longest_wait_seconds,class=shared": 0, "longest_wait_seconds,class=own": 0,
	})
	c.delete(second)
	c.delete(third)
	last.Spec.Type = corev1.ServiceTypeClusterIP
	c.change(last)
	c.expect("one address that two had", "load_balancer_", map[string]float64{
		"addresses,class=shared": 1, "addresses,class=own": 0, "longest_wait_seconds,class=shared": 0, "longest_wait_seconds,class=own": 0,
	})
}

func TestServicesOfOthersDoNotCount(t *testing.T) {
	c := newCluster(t, "public")
	c.listener("web", "public", "AddressesAssigned", metav1.ConditionTrue)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	c.create(foreign)
	c.service("gone", "192.0.2.2") // there is no such Listener
	c.expect("Services of others", "load_balancer_", map[string]float64{})
}

func TestAddressesFollowTheClassOfTheirListener(t *testing.T) {
	c := newCluster(t, "one", "two")
	l := c.listener("web", "one", "AddressesAssigned", metav1.ConditionTrue)
	c.service("web", "192.0.2.1")
	c.expect("at first", "load_balancer_", map[string]float64{"addresses,class=one": 1, "longest_wait_seconds,class=one": 0})
	*l.Spec.ClassName = "two"
	c.change(l)
	c.expect("after the class was changed", "load_balancer_", map[string]float64{
		"addresses,class=one": 0, "addresses,class=two": 1, "longest_wait_seconds,class=one": 0, "longest_wait_seconds,class=two": 0,
	})
}

func TestTheLongestWaitForALoadBalancerIsMeasured(t *testing.T) {
	c := newCluster(t, "public")
	old := c.waits("old", "public", "WaitingForLoadBalancer", time.Hour)
	c.waits("new", "public", "WaitingForLoadBalancer", time.Minute)
	c.waits("other", "public", "WaitingForPods", 2*time.Hour)
	c.expect("two wait", "load_balancer_", map[string]float64{"longest_wait_seconds,class=public": 3600})
	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	c.expect("a minute later", "load_balancer_", map[string]float64{"longest_wait_seconds,class=public": 3660})
	c.delete(old)
	c.expect("one is deleted", "load_balancer_", map[string]float64{"longest_wait_seconds,class=public": 120})
}

func TestListenersThatNoPodHasMountedCountByDays(t *testing.T) {
	c := newCluster(t, "public")
	for name, spec := range map[string]listenersv1alpha1.ListenerClassSpec{
		"nodes":   {ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		"tcp":     {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTCP}},
		"tls":     {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTLS}},
		"cluster": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	} {
		c.class(name, spec)
	}
	add := func(name, class string, days int) *listenersv1alpha1.Listener {
		l := c.listener(name, class, "WaitingForPods", metav1.ConditionFalse)
		l.Status.ServiceName = &name
		l.Status.UnusedSince = new(metav1.NewTime(c.clock.Now().Add(-time.Duration(days) * 24 * time.Hour)))
		c.change(l)
		return l
	}
	used := add("used", "public", 40)
	used.Status.UnusedSince = nil
	c.change(used)
	old := add("old", "public", 8)
	add("older", "public", 31)
	add("new", "nodes", 0)
	add("gateway", "tcp", 2)
	add("host", "tls", 40)
	add("inside", "cluster", 40)
	add("gone", "deleted", 40)
	rejected := add("rejected", "nodes", 40)
	rejected.Status.ServiceName = nil
	c.change(rejected)
	c.expect("at first", "unused_listeners", map[string]float64{
		"class=public,days=1,holds=LoadBalancer": 2, "class=public,days=7,holds=LoadBalancer": 2, "class=public,days=30,holds=LoadBalancer": 1,
		"class=nodes,days=1,holds=NodePort": 0, "class=nodes,days=7,holds=NodePort": 0, "class=nodes,days=30,holds=NodePort": 0,
		"class=tcp,days=1,holds=GatewayPort": 1, "class=tcp,days=7,holds=GatewayPort": 0, "class=tcp,days=30,holds=GatewayPort": 0,
	})
	c.clock.SetTime(c.clock.Now().Add(24 * time.Hour))
	old.Status.UnusedSince = nil
	c.change(old)
	c.expect("a day later, when one is used again", "unused_listeners", map[string]float64{
		"class=public,days=1,holds=LoadBalancer": 1, "class=public,days=7,holds=LoadBalancer": 1, "class=public,days=30,holds=LoadBalancer": 1,
		"class=nodes,days=1,holds=NodePort": 1, "class=nodes,days=7,holds=NodePort": 0, "class=nodes,days=30,holds=NodePort": 0,
		"class=tcp,days=1,holds=GatewayPort": 1, "class=tcp,days=7,holds=GatewayPort": 0, "class=tcp,days=30,holds=GatewayPort": 0,
	})
}
