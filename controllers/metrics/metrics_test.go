package metrics

import (
	"context"
	"fmt"
	"maps"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// values returns the series of a metric, by the values of their labels.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got[strings.Join(labels, ",")] = m.GetGauge().GetValue()
		}
	}
	return got
}

func listener(uid types.UID, class, reason string, ready metav1.ConditionStatus) *listenersv1alpha1.Listener {
	l := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To(class)}}
	if reason != "" {
		l.Status = &listenersv1alpha1.ListenerStatus{
			Summary:    listenersv1alpha1.ListenerSummary{Reason: reason},
			Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerReady, Status: ready}},
		}
	}
	return l
}

func TestPodsWhoseAddressesHaveChangedAreCounted(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pods"}, []string{"on_change"})
	h := count(gauge, outdatedPodLabels)
	at := func(address string) []listenersv1alpha1.IngressAddress {
		return []listenersv1alpha1.IngressAddress{{Address: address, AddressType: listenersv1alpha1.AddressTypeIP}}
	}
	pod := func(uid types.UID, start, now string, restart ...string) *listenersv1alpha1.PodListeners {
		p := &listenersv1alpha1.PodListeners{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		p.Spec.Listeners = map[string]listenersv1alpha1.PodListener{"listener": {IngressAddresses: at(now)}}
		p.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": at(start)}
		p.Spec.RestartOnChange = restart
		return p
	}
	h.OnAdd(pod("1", "192.0.2.1", "192.0.2.1"), true)
	h.OnAdd(pod("2", "192.0.2.1", "192.0.2.2"), true)
	h.OnAdd(pod("3", "192.0.2.1", "192.0.2.2", "listener"), true)
	h.OnAdd(pod("4", "192.0.2.1", "192.0.2.2", "listener"), true)
	if diff := cmp.Diff(map[string]float64{"on_change=Restart": 2, "on_change=Rewrite": 1}, values(t, gauge)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.OnDelete(pod("2", "192.0.2.1", "192.0.2.2"))
	h.OnUpdate(nil, pod("3", "192.0.2.1", "192.0.2.1", "listener"))
	if diff := cmp.Diff(map[string]float64{"on_change=Restart": 1, "on_change=Rewrite": 0}, values(t, gauge)); diff != "" {
		t.Errorf("after deletion and change (-want +got):\n%s", diff)
	}
}

// Alerts compare these series, so they exist while there is nothing to count, and go when another replica leads.
func TestSeriesWithoutObjectsAreZeroWhileTheReplicaLeads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- export(ctx, &informertest.FakeInformers{Scheme: fakeclient.Scheme()})
	}()
	g := NewWithT(t)
	g.Eventually(func() map[string]float64 { return values(t, outdatedPods) }).WithTimeout(time.Minute).Should(Equal(map[string]float64{"on_change=Restart": 0, "on_change=Rewrite": 0}))
	g.Expect(values(t, conditions)).To(Equal(map[string]float64{
		"type=Available": 0, "type=Progressing": 0, "type=Degraded": 0, "type=Upgradeable": 0,
	}))
	cancel()
	g.Expect(<-ended).To(Succeed())
	g.Expect(values(t, outdatedPods)).To(BeEmpty())
	g.Expect(values(t, conditions)).To(BeEmpty())
}

func TestListenersAreCountedByClassReadyAndReason(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "listeners"}, []string{"class", "ready", "reason"})
	classes := fakeclient.New(t, interceptor.Funcs{}, &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "public"}})
	h := count(gauge, func(o client.Object) [][]string { return listenerLabels(t.Context(), classes, o) })
	h.OnAdd(listener("1", "public", "", ""), true)
	h.OnAdd(listener("2", "public", "AddressesAssigned", metav1.ConditionTrue), true)
	h.OnAdd(listener("3", "users-can-name-any", "ClassNotFound", metav1.ConditionFalse), false)
	h.OnAdd(listener("4", "public", "WaitingForPods", metav1.ConditionFalse), false)
	want := map[string]float64{
		"class=,ready=false,reason=":                       1,
		"class=public,ready=true,reason=AddressesAssigned": 1,
		"class=,ready=false,reason=ClassNotFound":          1,
		"class=public,ready=false,reason=WaitingForPods":   1,
	}
	if diff := cmp.Diff(want, values(t, gauge)); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	h.OnUpdate(nil, listener("1", "public", "AddressesAssigned", metav1.ConditionTrue))
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: listener("3", "", "", "")})
	h.OnDelete(listener("4", "public", "AddressesAssigned", metav1.ConditionTrue)) // the update was missed
	maps.Copy(want, map[string]float64{
		"class=,ready=false,reason=":                       0,
		"class=public,ready=true,reason=AddressesAssigned": 2,
		"class=,ready=false,reason=ClassNotFound":          0,
		"class=public,ready=false,reason=WaitingForPods":   0,
	})
	if diff := cmp.Diff(want, values(t, gauge)); diff != "" {
		t.Errorf("after changes (-want +got):\n%s", diff)
	}
}

// Tenants write the class of a Listener and, with permission for it, its status. Each value of a label is a series.
func TestTenantsCannotAddSeries(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "listeners"}, []string{"class", "ready", "reason"})
	classes := fakeclient.New(t, interceptor.Funcs{})
	h := count(gauge, func(o client.Object) [][]string { return listenerLabels(t.Context(), classes, o) })
	for i := range 1000 {
		h.OnAdd(listener(types.UID(fmt.Sprint(i)), fmt.Sprint(i, strings.Repeat("x", 300_000)), "AddressesAssigned", metav1.ConditionTrue), false)
		h.OnUpdate(nil, listener(types.UID(fmt.Sprint(i)), fmt.Sprint(i), fmt.Sprint("Reason", i), metav1.ConditionFalse))
	}
	want := map[string]float64{"class=,ready=true,reason=AddressesAssigned": 0, "class=,ready=false,reason=": 1000}
	if diff := cmp.Diff(want, values(t, gauge)); diff != "" {
		t.Errorf("(-want +got):\n%.1000s", diff)
	}
}

// lostVolume returns a volume that is pinned to node-1, which is lost.
func lostVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{names.AnnotationLostSince: "2026-01-01T00:00:00Z"}},
		Spec: corev1.PersistentVolumeSpec{
			NodeAffinity:           claim.NodeAffinity("node-1"),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver}},
		},
	}
}

func TestVolumesOfLostNodesAreCountedByNode(t *testing.T) {
	pv := lostVolume()
	if diff := cmp.Diff([][]string{{"node-1"}}, lostVolumeLabels(pv)); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	back := pv.DeepCopy()
	delete(back.Annotations, names.AnnotationLostSince)
	other := pv.DeepCopy()
	other.Spec.CSI.Driver = "other.example"
	for _, pv := range []*corev1.PersistentVolume{back, other} {
		if got := lostVolumeLabels(pv); got != nil {
			t.Errorf("got %v", got)
		}
	}
}

// Each later update of an object that no longer counts subtracts nothing.
func TestAVolumeWhoseNodeReturnsCountsNoMore(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lost"}, []string{"node"})
	h := count(gauge, lostVolumeLabels)
	lost := lostVolume()
	back := lost.DeepCopy()
	delete(back.Annotations, names.AnnotationLostSince)
	h.OnAdd(lost, true)
	h.OnUpdate(lost, back)
	h.OnUpdate(back, back)
	h.OnDelete(back)
	if diff := cmp.Diff(map[string]float64{"node=node-1": 0}, values(t, gauge)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestConditionsThatAreTrueAreCounted(t *testing.T) {
	got := conditionLabels(&operatorv1alpha1.ListenerOperator{Status: operatorv1alpha1.ListenerOperatorStatus{Conditions: []metav1.Condition{
		{Type: "Available", Status: metav1.ConditionTrue}, {Type: "Degraded", Status: metav1.ConditionFalse}, {Type: "Upgradeable", Status: metav1.ConditionTrue},
	}}})
	if diff := cmp.Diff([][]string{{"Available"}, {"Upgradeable"}}, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
