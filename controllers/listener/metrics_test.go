package listener

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
)

// Clients do not notice the first addresses.
func TestChangesOfAddressesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		before []listenersv1alpha1.IngressAddress
		want   float64
	}{
		"first":  {nil, 0},
		"others": {[]listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80}}}, 1},
	} {
		s := newState(clusterIP)
		s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: tc.before}
		before := metric.Value(t, "listener_operator_address_changes_total")
		if o := s.reconcile(t, 2, interceptor.Funcs{}, nil); o.err != nil || len(o.listener.Status.IngressAddresses) != 1 {
			t.Fatalf("%s: error %v, status %+v", name, o.err, o.listener.Status)
		}
		check.Equal(t, name+": changes that are counted", tc.want, metric.Value(t, "listener_operator_address_changes_total")-before)
	}
}

// Other replicas do not know the numbers.
func TestRangesAreMeasuredInTheLeaderAlone(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.CollectorFunc(collectLeading))
	series := func() (found []string) {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			for _, m := range family.GetMetric() {
				found = append(found, fmt.Sprintf("%s %s/%s %v", family.GetName(), m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetGauge().GetValue()))
			}
		}
		return found
	}
	c := fakeclient.New(t, interceptor.Funcs{}, newNodePortClass("ports", "30000-30009"), newNodePortClass("overlap", "30007-30016"),
		&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "others"}})
	p := newReconciler(backends.All(), c, nil)
	service := otherService(30001, 32000)
	service.Spec.HealthCheckNodePort = 30008
	p.held.ServiceHandler().Create(t.Context(), event.CreateEvent{Object: service}, nil)
	g.Expect(series()).To(BeEmpty())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- rangeMetrics{p.Client, p.held.Registry}.export(ctx) }()
	g.Eventually(series).WithTimeout(time.Minute).Should(ConsistOf(
		"listener_operator_port_range_left ports/NodePort 8", "listener_operator_port_range_size ports/NodePort 10",
		"listener_operator_port_range_left overlap/NodePort 9", "listener_operator_port_range_size overlap/NodePort 10",
	))
	cancel()
	g.Expect(<-ended).To(Succeed())
	g.Expect(series()).To(BeEmpty())
}

func newNodePortClass(name, numbers string) *listenersv1alpha1.ListenerClass {
	class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: numbers},
	}}
	class.Name = name
	return class
}

func heldNodePort(number int32) registry.Key {
	return registry.Number(listenersv1alpha1.WaitingKindNodePort, number)
}

// BenchmarkScrapeOfRanges: 100 classes, whose ranges are those of a cluster, and all of whose node ports are in use.
func BenchmarkScrapeOfRanges(b *testing.B) {
	classes, used := []client.Object{}, sets.New[registry.Key]()
	for i := range 100 {
		classes = append(classes, newNodePortClass(fmt.Sprint(i), "30000-32767"))
	}
	p := newReconciler(backends.All(), fakeclient.New(b, interceptor.Funcs{}, classes...), nil)
	for number := int32(30000); number <= 32767; number++ {
		used.Insert(heldNodePort(number))
	}
	p.held.Registry.Observe(types.NamespacedName{Namespace: "shop", Name: "web"}, nil, used)
	for b.Loop() {
		collected := make(chan prometheus.Metric, 200)
		rangeMetrics{p.Client, p.held.Registry}.collect(b.Context(), collected)
	}
}
