package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// repairs returns the metric listener_operator_drift_repairs_total, by kind and name.
func repairs(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "listener_operator_drift_repairs_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			found[labels["kind"]+" "+labels["name"]] = m.GetCounter().GetValue()
		}
	}
	return found
}

// since returns the increase of the metric.
func since(t *testing.T, before map[string]float64) map[string]float64 {
	t.Helper()
	grown := repairs(t)
	for key := range grown {
		grown[key] -= before[key]
	}
	maps.DeleteFunc(grown, func(_ string, by float64) bool { return by == 0 })
	return grown
}

// TestRepairsAreCounted covers all reasons for a write, with a real API server, because defaults and resource versions
// matter. It calls Reconcile without a cache, so that each call observes the latest state.
func TestRepairsAreCounted(t *testing.T) {
	c, namespace := fresh(t)
	config := createConfig(t, c)
	r := reconciler(c, namespace)
	agents := &appsv1.DaemonSet{}
	agentsKey := client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}
	const daemonSet, class, driver = "DaemonSet " + names.NodeAgent, "StorageClass " + names.Driver, "CSIDriver " + names.Driver
	merge := func(o client.Object, patch string) {
		t.Helper()
		if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		change func()
		want   map[string]float64
	}{
		{"the first install", func() {}, nil},
		{"no change", func() {}, nil},
		{"a change of the configuration", func() { merge(config, `{"spec":{"nodeAgent":{"logLevel":"debug"}}}`) }, nil},
		{"a change of an image by another writer", func() {
			if err := c.Get(t.Context(), agentsKey, agents); err != nil {
				t.Fatal(err)
			}
			agents.Spec.Template.Spec.Containers[0].Image = "something-else"
			if err := c.Update(t.Context(), agents); err != nil {
				t.Fatal(err)
			}
		}, map[string]float64{daemonSet: 1}},
		{"a removed label", func() {
			merge(&storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver)}, `{"metadata":{"labels":null}}`)
		}, map[string]float64{class: 1}},
		{"a field that another writer owns", func() {
			merge(&storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver)}, `{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}`)
		}, nil},
		{"a change of a status", func() {
			agents.Status.DesiredNumberScheduled = 3
			if err := c.Status().Update(t.Context(), agents); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"deletions", func() {
			for _, o := range []client.Object{agents, &storagev1.CSIDriver{ObjectMeta: objectMeta(names.Driver)}} {
				if err := c.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		}, map[string]float64{daemonSet: 1, driver: 1}},
		{"a removal and a reinstallation", func() {
			merge(config, `{"spec":{"managementState":"Removed"}}`)
			for range len(alwaysInstalled()) {
				mustReconcile(t, r)
				if err := c.Get(t.Context(), agentsKey, agents); err == nil && agents.DeletionTimestamp != nil {
					collectGarbage(t, c, agents)
				}
			}
			if err := c.Get(t.Context(), agentsKey, agents); err == nil {
				t.Fatal("the agents still exist")
			}
			merge(config, `{"spec":{"managementState":"Managed"}}`)
		}, nil},
		{"a restart of the operator", func() { r = reconciler(c, namespace) }, nil},
	} {
		before := repairs(t)
		if err := c.Get(t.Context(), agentsKey, agents); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		tc.change()
		mustReconcile(t, r)
		want := tc.want
		if want == nil {
			want = map[string]float64{}
		}
		if diff := cmp.Diff(want, since(t, before)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// outdatedClass reads an outdated StorageClass.
type outdatedClass struct {
	client.Client
	class *storagev1.StorageClass
}

// Get implements client.Reader.
func (c outdatedClass) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if class, ok := o.(*storagev1.StorageClass); ok {
		c.class.DeepCopyInto(class)
		return nil
	}
	return c.Client.Get(ctx, key, o, options...)
}

// The cache still has the object without its label.
func TestARepairIsCountedOnceAlthoughTheCacheIsOutdated(t *testing.T) {
	c, namespace := fresh(t)
	createConfig(t, c)
	r := reconciler(c, namespace)
	mustReconcile(t, r)
	outdated := &storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver)}
	if err := c.Patch(t.Context(), outdated, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))); err != nil {
		t.Fatal(err)
	}
	r.Client = outdatedClass{c, outdated}
	before := repairs(t)
	mustReconcile(t, r)
	mustReconcile(t, r)
	if diff := cmp.Diff(map[string]float64{"StorageClass " + names.Driver: 1}, since(t, before)); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
}

// changedBeforeApply changes the CSIDriver directly before the first Apply of it.
type changedBeforeApply struct {
	client.Client
	change func()
}

// Apply implements client.Writer.
func (c *changedBeforeApply) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if driver, ok := o.(interface{ GetKind() string }); ok && driver.GetKind() == "CSIDriver" && c.change != nil {
		change := c.change
		c.change = nil
		change()
	}
	return c.Client.Apply(ctx, o, options...)
}

// Apply restores fields as well, but does not know whether it changed one. The second reconciliation writes the
// CSIDriver, because only an existing one tells which fields the API server has.
func TestAChangeDuringARepairIsCounted(t *testing.T) {
	c, namespace := fresh(t)
	config := createConfig(t, c)
	changing := &changedBeforeApply{Client: c}
	r := reconciler(changing, namespace)
	if _, err := r.Reconcile(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	driver := &storagev1.CSIDriver{ObjectMeta: objectMeta(names.Driver)}
	changing.change = func() {
		if err := c.Patch(t.Context(), driver, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podInfoOnMount":false}}`))); err != nil {
			t.Fatal(err)
		}
	}
	before := repairs(t)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), config); !apierrors.IsConflict(err) || changing.change != nil {
		t.Fatalf("a reconciliation during which the CSIDriver is changed: %v", err)
	}
	mustReconcile(t, r)
	if diff := cmp.Diff(map[string]float64{"CSIDriver " + names.Driver: 1}, since(t, before)); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
}

// TestEachRepairIsCountedOnce reads by the operator's cache, which may lag behind the API server.
func TestEachRepairIsCountedOnce(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	createConfig(t, c)
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	driver := &storagev1.CSIDriver{ObjectMeta: objectMeta(names.Driver)}
	class := &storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver)}
	g.Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(class), class)).To(Succeed())
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(driver), driver)).To(Succeed())
		g.Expect(driver.Spec.PreventPodSchedulingIfMissing).To(Equal(ptr.To(true))) // by the second write
	}, apiserver.Timeout, "20ms").Should(Succeed())
	before := repairs(t)
	for i := range 5 {
		// Without a version, because the operator may still write what belongs to the last repair.
		g.Expect(c.Patch(t.Context(), driver, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"podInfoOnMount": false}}`)))).To(Succeed())
		// Another event at the same time must not count the repair twice.
		round := fmt.Appendf(nil, `{"metadata": {"annotations": {"round": "%d"}}}`, i)
		g.Expect(c.Patch(t.Context(), class, client.RawPatch(types.MergePatchType, round))).To(Succeed())
		g.Eventually(func() bool {
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(driver), driver)).To(Succeed())
			return *driver.Spec.PodInfoOnMount
		}, apiserver.Timeout, "10ms").Should(BeTrue())
	}
	want := map[string]float64{"CSIDriver " + names.Driver: 5}
	g.Eventually(func() map[string]float64 { return since(t, before) }, apiserver.Timeout, "10ms").Should(Equal(want))
	g.Consistently(func() map[string]float64 { return since(t, before) }, "500ms", "50ms").Should(Equal(want))
}
