package nodeagent

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// fresh returns a client, and a namespace for the operator, after deleting the objects of the previous test, most of
// which are cluster-scoped.
func fresh(t *testing.T) (c client.Client, namespace string) {
	t.Helper()
	return freshOn(t, apiserver.Config(t))
}

// freshOn is like fresh, on the API server of this configuration.
func freshOn(t *testing.T, admin *rest.Config) (c client.Client, namespace string) {
	t.Helper()
	c, err := client.New(admin, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	clean(t, c, own.Name)
	return c, own.Name
}

// clean deletes the objects of the previous test, and prepares a namespace for the operator.
func clean(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(c.Patch(t.Context(), config, release)); err != nil {
		t.Fatal(err)
	}
	leftovers := []client.Object{config}
	confinements, err := confinement.Policies(metav1.OwnerReference{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range confinements {
		leftovers = append(leftovers, p.Policy, p.Binding)
	}
	for _, component := range alwaysInstalled() {
		if object := component.Empty(); !component.Namespaced {
			object.SetName(component.Name)
			leftovers = append(leftovers, object)
		}
	}
	for _, object := range leftovers {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
	}
	// It is part of the operator's manifests.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	if err := c.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
}

// createConfig creates ListenerOperator/cluster with the API server's defaults.
func createConfig(t *testing.T, c client.Client) *operatorv1alpha1.ListenerOperator {
	t.Helper()
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return config
}

// reconciler returns a Reconciler without a manager.
func reconciler(c client.Client, namespace string) *Reconciler {
	return &Reconciler{
		Client: c, Namespace: namespace, Image: image,
		apiReader: c, stackable: nothingElseRuns, serves: servesNothingOptional, applier: apply.New(c, names.FieldManagerOperator), events: events.NewFakeRecorder(100), Clock: clock.RealClock{},
	}
}

func mustReconcile(t *testing.T, r *Reconciler) *operatorv1alpha1.ListenerOperator {
	t.Helper()
	config := &operatorv1alpha1.ListenerOperator{}
	for range 2 {
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// optionalAPIs watches the optional APIs of the API server until the test ends.
func optionalAPIs(t *testing.T) *platform.APIs {
	t.Helper()
	apis, err := platform.Watch(t.Context(), apiserver.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return apis
}

// componentOf returns the only component of a kind.
func componentOf(t *testing.T, kind string) installation.Component {
	t.Helper()
	i := slices.IndexFunc(installation.Components(), func(c installation.Component) bool { return c.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no component of kind %s", kind)
	}
	return installation.Components()[i]
}

// TestSecurityContextConstraintsFollowTheirAPI adds and removes the API while the operator runs.
func TestSecurityContextConstraintsFollowTheirAPI(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	crds.Remove(t, c, crds.SecurityContextConstraints)
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	config := &operatorv1alpha1.ListenerOperator{}
	available := func() string {
		if err := c.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
			return err.Error()
		}
		if condition := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionAvailable); condition != nil {
			return condition.Message
		}
		return ""
	}
	const fine = "listener volumes can be provisioned, and mounted on the nodes that have an agent"
	g.Eventually(available, apiserver.Timeout, "50ms").Should(Equal(fine))

	crds.Install(t, c, crds.SecurityContextConstraints)
	constraints := componentOf(t, "SecurityContextConstraints")
	object := constraints.Empty().(*unstructured.Unstructured)
	read := func() error { return c.Get(t.Context(), constraints.Key(namespace), object) }
	g.Eventually(read, apiserver.Timeout, "50ms").Should(Succeed())
	want, err := constraints.Desired(config, installation.Settings{Namespace: namespace})
	g.Expect(err).NotTo(HaveOccurred())
	for field, value := range want.Object {
		if field == "metadata" {
			continue
		}
		got, sent := object.Object[field]
		g.Expect(sent).To(BeTrue(), "field %s", field)
		g.Expect(cmp.Diff(value, got)).To(BeEmpty(), field)
	}
	g.Expect(metav1.IsControlledBy(object, config)).To(BeTrue())

	// A changed or deleted object is repaired.
	privileged := client.RawPatch(types.MergePatchType, []byte(`{"allowPrivilegedContainer":true}`))
	g.Expect(c.Patch(t.Context(), object, privileged)).To(Succeed())
	g.Eventually(func() any {
		g.Expect(read()).To(Succeed())
		return object.Object["allowPrivilegedContainer"]
	}, apiserver.Timeout, "50ms").Should(BeFalse())
	g.Expect(c.Delete(t.Context(), object)).To(Succeed())
	g.Eventually(read, apiserver.Timeout, "50ms").Should(Succeed())

	crds.Remove(t, c, crds.SecurityContextConstraints)
	// The object may be gone before the operator sees that its kind is, so this may be true, then false, and then true.
	g.Eventually(func(g Gomega) {
		g.Consistently(available, "1s", "50ms").Should(Equal(fine))
	}, apiserver.Timeout).Should(Succeed())
	crds.Install(t, c, crds.SecurityContextConstraints)
	g.Eventually(read, apiserver.Timeout, "50ms").Should(Succeed())
	crds.Remove(t, c, crds.SecurityContextConstraints)
}

func TestOperatorInstallsRepairsAndRemovesByWatches(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	config := &operatorv1alpha1.ListenerOperator{}
	available := func() bool {
		err := c.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config)
		return err == nil && meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable)
	}
	g.Eventually(available, apiserver.Timeout, "50ms").Should(BeTrue())

	// Changed and deleted objects are repaired, and the status follows that of the DaemonSet.
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}}
	g.Expect(c.Delete(t.Context(), class)).To(Succeed())
	g.Eventually(func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(class), class) }, apiserver.Timeout, "50ms").Should(Succeed())

	agents := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}
	g.Expect(c.Get(t.Context(), key, agents)).To(Succeed())
	installed := agents.DeepCopy()
	agents.Spec.Template.Spec.Containers[0].Image = "something-else"
	g.Expect(c.Patch(t.Context(), agents, client.MergeFrom(installed))).To(Succeed())
	g.Eventually(func() string {
		g.Expect(c.Get(t.Context(), key, agents)).To(Succeed())
		return agents.Spec.Template.Spec.Containers[0].Image
	}, apiserver.Timeout, "50ms").Should(Equal("listener-operator:test"))
	g.Eventually(func() error { // the repair is a replacement, and then an apply
		g.Expect(c.Get(t.Context(), key, agents)).To(Succeed())
		agents.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: agents.Generation, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2,
		}
		return c.Status().Update(t.Context(), agents)
	}, apiserver.Timeout, "50ms").Should(Succeed())
	g.Eventually(func() bool {
		return available() && config.Status.NodeAgent.Ready == 2 && meta.IsStatusConditionFalse(config.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	}, apiserver.Timeout, "50ms").Should(BeTrue())

	// A removal waits for a volume, with a message that names its users, and continues when the volume is deleted.
	pv := volume("in-use", "claim", corev1.VolumeBound)
	pv.Spec.ClaimRef.Namespace = namespace
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *agents.Spec.Template.Spec.Containers[0].Resources.Requests.Memory()}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pod := podWithClaims("web", "claim")
	pod.Namespace = namespace
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	g.Expect(c.Create(t.Context(), pv)).To(Succeed())
	g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	g.Expect(c.Delete(t.Context(), config)).To(Succeed())
	message := func() string {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(config), config)).To(Succeed())
		return meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded).Message
	}
	g.Eventually(message, apiserver.Timeout, "50ms").Should(HaveSuffix(": Pods " + namespace + "/web"))
	g.Expect(c.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
	g.Eventually(message, apiserver.Timeout, "50ms").Should(HaveSuffix(": claims without a Pod " + namespace + "/claim"))
	pv.Finalizers = nil
	g.Expect(c.Update(t.Context(), pv)).To(Succeed())
	g.Expect(c.Delete(t.Context(), pv)).To(Succeed())

	// The other components wait for the agents' Pods.
	g.Eventually(func() []string {
		g.Expect(c.Get(t.Context(), key, agents)).To(Succeed())
		return agents.Finalizers
	}, apiserver.Timeout, "50ms").Should(ConsistOf(metav1.FinalizerDeleteDependents))
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: names.Driver}, class)).NotTo(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: names.Driver}, &storagev1.CSIDriver{})).To(Succeed())
	g.Expect(message()).To(Equal("no problem is known"))
	collectGarbage(t, c, agents)
	g.Eventually(func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	}, apiserver.Timeout, "50ms").Should(BeTrue())
	for _, component := range alwaysInstalled() {
		err := c.Get(t.Context(), component.Key(namespace), component.Empty())
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", component.Kind, err)
	}

	// A deleted configuration is not created again, except by an administrator.
	g.Expect((&Reconciler{Client: c, apiReader: c, Namespace: namespace}).createConfiguration(t.Context())).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(config), config))).To(BeTrue())
	config = createConfig(t, c)
	g.Eventually(available, apiserver.Timeout, "50ms").Should(BeTrue())
}

// collectGarbage finishes the foreground deletion of a DaemonSet, as the garbage collector does once its Pods are
// deleted.
func collectGarbage(t *testing.T, c client.Client, agents *appsv1.DaemonSet) {
	t.Helper()
	if err := c.Patch(t.Context(), agents, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
}

func TestDeletedConfigurationIsNotRecreated(t *testing.T) {
	c, namespace := fresh(t)
	step := &Reconciler{Client: c, apiReader: c, Namespace: namespace}
	if err := step.createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := &operatorv1alpha1.ListenerOperator{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newConfig().Spec, config.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := c.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := step.createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("after the deletion, reading the configuration returns %v, want not found", err)
	}
}

func TestExistingConfigurationIsNotModified(t *testing.T) {
	c, namespace := fresh(t)
	before := createConfig(t, c)
	step := &Reconciler{Client: c, apiReader: c, Namespace: namespace}
	if err := step.createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := &operatorv1alpha1.ListenerOperator{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil {
		t.Fatal(err)
	}
	if before.ResourceVersion != after.ResourceVersion {
		t.Errorf("resource version %s became %s", before.ResourceVersion, after.ResourceVersion)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.Operator}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the ConfigMap that records its creation: %v", err)
	}
}

// What an administrator has set before the first start is part of the configuration that the operator creates; other
// fields have their defaults. Afterwards, only the object counts.
func TestTheGivenSpecIsUsedOnce(t *testing.T) {
	c, namespace := fresh(t)
	step := &Reconciler{Client: c, apiReader: c, Namespace: namespace, FirstSpec: `{"preset": "none", "nodeAgent": {"logLevel": "debug"}}`}
	if err := step.createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := &operatorv1alpha1.ListenerOperator{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
		t.Fatal(err)
	}
	want := newConfig().Spec
	want.Preset, want.NodeAgent.LogLevel = operatorv1alpha1.PresetNone, "debug"
	if diff := cmp.Diff(want, config.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	step.FirstSpec = `{"preset": "stable-nodes"}`
	if err := step.createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, config.Spec); diff != "" {
		t.Errorf("spec after another start (-want +got):\n%s", diff)
	}
}

// writeCounter counts the writes of a client, except status updates.
type writeCounter struct {
	client.Client
	writes int
}

func (c *writeCounter) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	c.writes++
	return c.Client.Apply(ctx, o, options...)
}

func (c *writeCounter) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	c.writes++
	return c.Client.Create(ctx, o, options...)
}

func TestUnchangedComponentsAreNotWritten(t *testing.T) {
	plain, namespace := fresh(t)
	createConfig(t, plain)
	counter := &writeCounter{Client: plain}
	r := reconciler(counter, namespace)
	config := mustReconcile(t, r)
	want, driver := 1+len(alwaysInstalled()), &storagev1.CSIDriver{}
	if err := plain.Get(t.Context(), client.ObjectKey{Name: names.Driver}, driver); err != nil {
		t.Fatal(err)
	}
	if driver.Spec.PreventPodSchedulingIfMissing != nil {
		want++
	}
	if counter.writes != want {
		t.Errorf("%d writes to install, want %d: the finalizer, the components, and a field of Kubernetes 1.37", counter.writes, want)
	}
	counter.writes = 0
	before := config.ResourceVersion
	config = mustReconcile(t, r)
	if counter.writes != 0 {
		t.Errorf("%d writes although nothing changed", counter.writes)
	}
	if config.ResourceVersion != before {
		t.Error("the status was written although nothing changed")
	}
}

// It does so where the API server has the field, unless the configuration says no.
func TestCSIDriverKeepsPodsFromNodesWithoutAnAgent(t *testing.T) {
	c, namespace := fresh(t)
	other := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "other.example.com"}}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), other) })
	config, r := createConfig(t, c), reconciler(c, namespace)
	for _, configured := range []*bool{nil, ptr.To(false), ptr.To(true)} {
		var want *bool
		if other.Spec.PreventPodSchedulingIfMissing != nil { // by default
			want = ptr.To(ptr.Deref(configured, true))
		}
		config.Spec.NodeAgent.PreventPodSchedulingIfMissing = configured
		if err := c.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		mustReconcile(t, r)
		config = mustReconcile(t, r)
		driver := &storagev1.CSIDriver{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: names.Driver}, driver); err != nil {
			t.Fatal(err)
		}
		if !ptr.Equal(driver.Spec.PreventPodSchedulingIfMissing, want) {
			t.Errorf("with %v, preventPodSchedulingIfMissing is %v, want %v", configured, driver.Spec.PreventPodSchedulingIfMissing, want)
		}
	}
}

// TestStorageOfAnEarlierInstallationIsTakenOver (contract: takeover): the CSIDriver of an earlier installation is in
// use and stays, and the StorageClass is replaced, because its binding mode is immutable.
func TestStorageOfAnEarlierInstallationIsTakenOver(t *testing.T) {
	c, namespace := fresh(t)
	earlier := []client.Object{
		&storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: names.Driver, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}},
			Spec: storagev1.CSIDriverSpec{
				AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy),
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
			},
		},
		&storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: names.Driver, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}},
			Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
	}
	for _, o := range earlier {
		if err := c.Create(t.Context(), o, client.FieldOwner("helm")); err != nil {
			t.Fatal(err)
		}
	}
	config := createConfig(t, c)
	mustReconcile(t, reconciler(c, namespace))
	for _, o := range earlier {
		uid := o.GetUID()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if _, replaced := o.(*storagev1.StorageClass); (o.GetUID() != uid) != replaced || !metav1.IsControlledBy(o, config) {
			t.Errorf("%T was replaced: %v; its owners are %v", o, o.GetUID() != uid, o.GetOwnerReferences())
		}
	}
	if mode := earlier[1].(*storagev1.StorageClass).VolumeBindingMode; ptr.Deref(mode, "") != storagev1.VolumeBindingImmediate {
		t.Errorf("the binding mode is %v", mode)
	}
	if policy := *earlier[0].(*storagev1.CSIDriver).Spec.FSGroupPolicy; policy != storagev1.NoneFSGroupPolicy {
		t.Errorf("fsGroupPolicy is %s, want None", policy)
	}
}

// TestImmutableStorageClassIsReported has a StorageClass of another provisioner, which does not keep the agents from
// running.
func TestImmutableStorageClassIsReported(t *testing.T) {
	c, namespace := fresh(t)
	other := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: "example.com"}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	config := createConfig(t, c)
	if _, err := reconciler(c, namespace).Reconcile(t.Context(), config); err == nil {
		t.Error("no error")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	degraded := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	if degraded == nil || degraded.Reason != operatorv1alpha1.ReasonApplyFailed || !strings.Contains(degraded.Message, "StorageClass") {
		t.Errorf("condition is %+v, which does not name the StorageClass", degraded)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, &appsv1.DaemonSet{}); err != nil {
		t.Error(err)
	}
}
