package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const namespace = "somewhere"

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newConfig returns ListenerOperator/cluster with the API server's defaults.
func newConfig() *operatorv1alpha1.ListenerOperator {
	return &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "c0f1c0f1-0000-4000-8000-000000000001", Generation: 1},
		Spec: operatorv1alpha1.ListenerOperatorSpec{
			ManagementState: operatorv1alpha1.Managed, Preset: operatorv1alpha1.PresetEphemeralNodes, ClusterDomain: "cluster.local",
			Injection: operatorv1alpha1.InjectionDisabled,
			NodeAgent: operatorv1alpha1.NodeAgentSpec{
				Placement: operatorv1alpha1.PlacementEverywhere, PriorityClassName: "system-node-critical", KubeletDir: "/var/lib/kubelet", LogLevel: "info",
				PreventPodSchedulingIfMissing: ptr.To(true),
			},
		},
	}
}

// harness is a Reconciler with a fake client.
type harness struct {
	*Reconciler
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
}

func newHarness(t *testing.T, intercept interceptor.Funcs, objects ...client.Object) *harness {
	t.Helper()
	c := fakeclient.New(t, intercept, append(objects, agentAccount("made-first"))...)
	h := &harness{t: t, clock: clocktesting.NewFakePassiveClock(start), events: events.NewFakeRecorder(100)}
	h.Reconciler = &Reconciler{
		Client: fakeclient.Cached(c, namespace), Namespace: namespace, Image: "listener-operator:test",
		apiReader: c, stackable: nothingElseRuns, serves: servesNothingOptional, applier: apply.New(c, names.FieldManagerOperator), events: h.events, Clock: h.clock,
	}
	return h
}

// alwaysInstalled returns the components that are installed on any cluster.
func alwaysInstalled() []installation.Component {
	return slices.DeleteFunc(installation.Components(), func(c installation.Component) bool { return !c.Optional.Empty() })
}

// requiredCount returns how many of them are required; each is removed by a reconciliation of its own.
func requiredCount() int {
	return len(slices.DeleteFunc(alwaysInstalled(), func(c installation.Component) bool { return c.Extra }))
}

func servesNothingOptional(schema.GroupVersionKind) bool { return false }

func nothingElseRuns(context.Context) (stackable.Installation, error) {
	return stackable.Installation{}, nil
}

// agentAccount returns the agents' ServiceAccount, which is part of the operator's manifests.
func agentAccount(uid types.UID) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent, UID: uid}}
}

// reconcileOnce reconciles the current configuration.
func (h *harness) reconcileOnce() (reconcile.Result, error) {
	h.t.Helper()
	return h.Reconcile(h.t.Context(), h.config())
}

func (h *harness) mustReconcile() reconcile.Result {
	h.t.Helper()
	result, err := h.reconcileOnce()
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

func (h *harness) config() *operatorv1alpha1.ListenerOperator {
	h.t.Helper()
	config := &operatorv1alpha1.ListenerOperator{}
	if err := h.Client.Get(h.t.Context(), client.ObjectKey{Name: "cluster"}, config); err != nil {
		h.t.Fatal(err)
	}
	return config
}

func (h *harness) setState(state operatorv1alpha1.ManagementState) {
	h.t.Helper()
	config := h.config()
	config.Spec.ManagementState = state
	h.update(config)
}

// conditions returns "status reason" of each condition but Upgradeable, which follows from the others.
func (h *harness) conditions() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	for _, c := range h.config().Status.Conditions {
		if c.Type != operatorv1alpha1.ConditionUpgradeable {
			found[c.Type] = fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return found
}

// expectUpgradeable checks the condition Upgradeable.
func (h *harness) expectUpgradeable(want metav1.ConditionStatus, reason string) {
	h.t.Helper()
	c := meta.FindStatusCondition(h.config().Status.Conditions, operatorv1alpha1.ConditionUpgradeable)
	if c == nil || c.Status != want || c.Reason != reason {
		h.t.Errorf("condition is %+v, want %s %s", c, want, reason)
	}
}

// reconcileUntilSettled reconciles until no more components are deleted, as watches of deletions do.
func (h *harness) reconcileUntilSettled() {
	h.t.Helper()
	for before := -1; before != len(h.installed()); {
		before = len(h.installed())
		h.mustReconcile()
	}
	h.mustReconcile()
}

func (h *harness) message(condition string) string {
	h.t.Helper()
	return conditionMessage(h.config(), condition)
}

// conditionMessage returns the message of a condition, or "" if there is none yet.
func conditionMessage(config *operatorv1alpha1.ListenerOperator, condition string) string {
	c := meta.FindStatusCondition(config.Status.Conditions, condition)
	if c == nil {
		return ""
	}
	return c.Message
}

// installed returns the kinds of the components that exist, and whether they are foreign.
func (h *harness) installed() []string {
	h.t.Helper()
	var found []string
	for _, c := range alwaysInstalled() {
		object := c.Empty()
		err := h.Client.Get(h.t.Context(), c.Key(namespace), object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			h.t.Fatal(err)
		}
		name := c.Kind
		if !metav1.IsControlledBy(object, h.config()) {
			name += " (foreign)"
		}
		found = append(found, name)
	}
	return found
}

func (h *harness) expect(condition map[string]string, installed []string) {
	h.t.Helper()
	if diff := cmp.Diff(condition, h.conditions()); diff != "" {
		h.t.Errorf("conditions (-want +got):\n%s", diff)
	}
	h.expectInstalled(installed)
}

// expectInstalled checks which components exist.
func (h *harness) expectInstalled(want []string) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.installed()); diff != "" {
		h.t.Errorf("installed (-want +got):\n%s", diff)
	}
}

func (h *harness) agents() *appsv1.DaemonSet {
	h.t.Helper()
	agents := &appsv1.DaemonSet{}
	if err := h.Client.Get(h.t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents); err != nil {
		h.t.Fatal(err)
	}
	return agents
}

func (h *harness) update(o client.Object) {
	h.t.Helper()
	if err := h.Client.Update(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

// rollOut sets the status of the DaemonSet.
func (h *harness) rollOut(desired, updated, ready int32) {
	h.t.Helper()
	agents := h.agents()
	agents.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: agents.Generation, DesiredNumberScheduled: desired, CurrentNumberScheduled: desired,
		UpdatedNumberScheduled: updated, NumberReady: ready,
	}
	if err := h.Client.Status().Update(h.t.Context(), agents); err != nil {
		h.t.Fatal(err)
	}
}

func allKinds() []string {
	var kinds []string
	for _, c := range alwaysInstalled() {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

func volume(name, claim string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: phase}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
	return pv
}

func TestInstallationAndRollout(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	h.expectInstalled(allKinds())
	config := h.config()
	config.Status.NodeAgent.Version = "0.9.0" // before an upgrade
	if err := h.Client.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	h.rollOut(3, 2, 1)
	if got := h.mustReconcile().RequeueAfter; got != rolloutTimeout {
		t.Errorf("requeued after %s, want %s", got, rolloutTimeout)
	}
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "False AsExpected"}, allKinds())
	want := operatorv1alpha1.NodeAgentStatus{Desired: 3, Ready: 1, Updated: 2, Version: "0.9.0"}
	if diff := cmp.Diff(want, h.config().Status.NodeAgent); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	h.expectUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonAgentsRollout)

	h.clock.SetTime(start.Add(rolloutTimeout - time.Second))
	if got := h.mustReconcile().RequeueAfter; got != time.Second {
		t.Errorf("requeued after %s, want 1s", got)
	}
	h.clock.SetTime(start.Add(rolloutTimeout))
	if got := h.mustReconcile().RequeueAfter; got != 0 {
		t.Errorf("requeued after %s, want never", got)
	}
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotReady"}, allKinds())
	if diff := cmp.Diff("of the agents of 3 nodes, 2 are up to date and 1 ready, for more than 15 minutes; "+
		"see the Pods and events of DaemonSet somewhere/listener-node-agent", h.message("Degraded")); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}

	// An upgrade may resolve the problem.
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)

	h.rollOut(3, 3, 2)
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotReady"}, allKinds())

	h.rollOut(3, 3, 3)
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "False AsExpected"}, allKinds())
	if got := h.config().Status; got.ObservedGeneration != 1 || got.Version != "dev" || got.NodeAgent.Version != "dev" {
		t.Errorf("observed generation %d and versions %q and %q, want 1 and dev", got.ObservedGeneration, got.Version, got.NodeAgent.Version)
	}
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	agents := h.agents()
	agents.Generation++ // as the API server does when the DaemonSet is changed
	agents.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	h.update(agents)
	h.mustReconcile()
	if diff := cmp.Diff("True AgentsRollingOut", h.conditions()["Progressing"]); diff != "" {
		t.Errorf("when the DaemonSet controller has not seen a change (-want +got):\n%s", diff)
	}
	close(h.events.Events)
	var emitted []string
	for e := range h.events.Events {
		emitted = append(emitted, strings.Join(strings.Fields(e)[:2], " "))
	}
	if diff := cmp.Diff([]string{"Warning AgentsNotReady", "Normal AsExpected"}, emitted); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Pod security rejects them in a namespace without the label, and only events of the DaemonSet show that.
func TestMissingPodsOfAgentsAreReported(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	config := h.config()
	config.Status = operatorv1alpha1.ListenerOperatorStatus{} // of the fake DaemonSet, each generation is observed
	if err := h.Client.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	agents := h.agents()
	agents.Status = appsv1.DaemonSetStatus{ObservedGeneration: agents.Generation, DesiredNumberScheduled: 3}
	if err := h.Client.Status().Update(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if again := h.mustReconcile().RequeueAfter; again != creationTimeout {
		t.Errorf("requeued after %s, want %s", again, creationTimeout)
	}
	rolling := map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "False AsExpected"}
	h.expect(rolling, allKinds())
	h.clock.SetTime(start.Add(creationTimeout))
	h.mustReconcile()
	h.expect(map[string]string{"Available": "False AgentsNotCreated", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotCreated"}, allKinds())
	for _, want := range []string{"3 nodes, 3 are not created", "DaemonSet somewhere/listener-node-agent", "pod-security.kubernetes.io/enforce=privileged", "security context constraints"} {
		if got := h.message(operatorv1alpha1.ConditionDegraded); !strings.Contains(got, want) {
			t.Errorf("the message does not contain %q: %s", want, got)
		}
	}
	// In a large cluster, it takes longer to create all Pods.
	agents = h.agents()
	agents.Status.CurrentNumberScheduled, agents.Status.NumberReady = 1, 1
	if err := h.Client.Status().Update(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if again := h.mustReconcile().RequeueAfter; again != creationTimeout {
		t.Errorf("requeued after %s, want %s", again, creationTimeout)
	}
	h.expect(rolling, allKinds())
	h.clock.SetTime(start.Add(2 * creationTimeout))
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotCreated"}, allKinds())
}

// The tokens of Pods become invalid with it.
func TestAgentsAreReplacedWithTheirServiceAccount(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	before := h.agents().Spec.Template
	if err := h.Client.Delete(t.Context(), agentAccount("")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.reconcileOnce(); err == nil || !strings.Contains(err.Error(), "ServiceAccount somewhere/listener-node-agent") {
		t.Errorf("without the ServiceAccount, the error is %v", err)
	}
	if diff := cmp.Diff(before, h.agents().Spec.Template); diff != "" {
		t.Errorf("the agents change although they could not start (-before +after):\n%s", diff)
	}
	if err := h.Client.Create(t.Context(), agentAccount("made-again")); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if cmp.Equal(before, h.agents().Spec.Template) {
		t.Error("the agents are not replaced, whose tokens are invalid")
	}
}

func TestDriftIsRepaired(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	driver := &storagev1.CSIDriver{}
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: names.Driver}, driver); err != nil {
		t.Fatal(err)
	}
	driver.Spec.PodInfoOnMount = ptr.To(false)
	h.update(driver)
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	if err := h.Client.Delete(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	h.expectInstalled(allKinds())
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: names.Driver}, driver); err != nil {
		t.Fatal(err)
	}
	if !*driver.Spec.PodInfoOnMount {
		t.Error("podInfoOnMount is still false")
	}
}

// Nothing else is installed. What belongs to an earlier configuration of the same name, the garbage collector deletes.
// For the components that are taken over because of the driver's name, see TestForeignMessage.
func TestForeignObjectsAreNeverModified(t *testing.T) {
	earlier := newConfig()
	earlier.UID = "earlier"
	owner := metav1.NewControllerRef(earlier, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))
	for _, c := range installation.Components() {
		if c.Adopt {
			continue
		}
		for message, owners := range map[string][]metav1.OwnerReference{"delete or rename it": nil, "waiting for the garbage collector to delete it": {*owner}} {
			t.Run(c.Kind+" "+c.Name+" "+message, func(t *testing.T) {
				foreign := c.Empty()
				foreign.SetNamespace(c.Key(namespace).Namespace)
				foreign.SetName(c.Name)
				foreign.SetOwnerReferences(owners)
				h := newHarness(t, interceptor.Funcs{}, newConfig(), foreign)
				h.serves = func(schema.GroupVersionKind) bool { return true }
				before, after := c.Empty(), c.Empty()
				if err := h.Client.Get(t.Context(), c.Key(namespace), before); err != nil {
					t.Fatal(err)
				}
				h.mustReconcile()
				var left []string
				if c.Optional.Empty() {
					left = []string{c.Kind + " (foreign)"}
				}
				h.expect(map[string]string{"Available": "False ForeignObject", "Progressing": "False ForeignObject", "Degraded": "True ForeignObject"}, left)
				if got := h.message("Degraded"); !strings.Contains(got, message) {
					t.Errorf("message is %q", got)
				}
				if err := h.Client.Get(t.Context(), c.Key(namespace), after); err != nil || before.GetResourceVersion() != after.GetResourceVersion() {
					t.Errorf("it was modified (%v)", err)
				}

				if err := h.Client.Delete(t.Context(), foreign); err != nil {
					t.Fatal(err)
				}
				h.mustReconcile()
				h.expectInstalled(allKinds())
			})
		}
	}
}

// While Stackable's listener operator runs, the configuration has a status, but nothing is installed, nor removed.
func TestNothingChangesWhileStackablesOperatorRuns(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	other := stackable.Installation{Workloads: []stackable.Workload{{Kind: "DaemonSet", Namespace: "platform", Name: "sdp-csi-node-driver"}}, KubeletDir: "/var/lib/kubelet", Recheck: time.Minute}
	h.stackable = func(context.Context) (stackable.Installation, error) { return other, nil }
	want := map[string]string{"Available": "False OtherOperatorRunning", "Progressing": "False OtherOperatorRunning", "Degraded": "True OtherOperatorRunning"}
	expect := func(installed int) {
		t.Helper()
		if result := h.mustReconcile(); result.RequeueAfter != time.Minute {
			t.Errorf("the next reconciliation is after %s", result.RequeueAfter)
		}
		if diff := cmp.Diff(want, h.conditions()); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if message := h.message("Degraded"); !strings.Contains(message, "is running: DaemonSet platform/sdp-csi-node-driver;") {
			t.Errorf("message is %q", message)
		}
		if got := len(h.installed()); got != installed {
			t.Errorf("%d components are installed, want %d", got, installed)
		}
	}
	expect(0)
	if message := h.message("Degraded"); strings.Contains(message, "kubeletDir") {
		t.Errorf("message is %q", message)
	}
	other.KubeletDir = "/data/kubelet"
	expect(0)
	if message := h.message("Degraded"); !strings.HasSuffix(message, "its kubelet directory is /data/kubelet: set spec.nodeAgent.kubeletDir before") {
		t.Errorf("message is %q", message)
	}
	if finalizers := h.config().Finalizers; len(finalizers) > 0 {
		t.Errorf("finalizers are %v", finalizers)
	}
	running := h.stackable
	h.stackable = nothingElseRuns
	h.reconcileUntilSettled()
	all := len(h.installed())
	if all == 0 {
		t.Fatal("nothing is installed after the other operator has ended")
	}
	h.stackable = running
	h.setState(operatorv1alpha1.Removed)
	expect(all)
}

func TestStatusHasTheClusterDomain(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.ClusterDomain = "k8s.example.com"
	h.mustReconcile()
	if got := h.config().Status.ClusterDomain; got != "k8s.example.com" {
		t.Errorf("cluster domain is %q, want that of the resolver", got)
	}
	config := h.config()
	config.Spec.ClusterDomain = "one.example"
	h.update(config)
	h.mustReconcile()
	if c := meta.FindStatusCondition(h.config().Status.Conditions, operatorv1alpha1.ConditionDegraded); c == nil || c.Status != metav1.ConditionFalse ||
		c.Reason != operatorv1alpha1.ReasonOtherClusterDomain || !strings.Contains(c.Message, "k8s.example.com") {
		t.Errorf("condition %+v", c)
	}
	if got := h.config().Status.ClusterDomain; got != "one.example" {
		t.Errorf("cluster domain is %q, want the configured one", got)
	}
}

// foreignImage is the image that another writer sets for the agents.
const foreignImage = "another-image"

// changeImage changes the agents as another writer.
func (h *harness) changeImage() {
	h.t.Helper()
	h.setState(operatorv1alpha1.Unmanaged)
	agents := h.agents()
	agents.Spec.Template.Spec.Containers[0].Image = foreignImage
	h.update(agents)
}

// expectChangedImage checks that the change is not reverted.
func (h *harness) expectChangedImage() {
	h.t.Helper()
	if got := h.agents().Spec.Template.Spec.Containers[0].Image; got != foreignImage {
		h.t.Errorf("the image is %s", got)
	}
}

func TestUnmanagedChangesNothing(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Unmanaged
	h := newHarness(t, interceptor.Funcs{}, config)
	h.mustReconcile()
	h.expect(map[string]string{"Available": "False Unmanaged", "Progressing": "False Unmanaged", "Degraded": "False AsExpected"}, nil)

	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.changeImage()
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True Unmanaged", "Progressing": "False Unmanaged", "Degraded": "False AsExpected"}, allKinds())
	h.expectChangedImage()
}

// podWithClaims returns a Pod that mounts the claims.
func podWithClaims(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(claim, claim))
	}
	return pod
}

func podWithInlineVolume(name string, phase corev1.PodPhase) *corev1.Pod {
	pod := podWithClaims(name)
	pod.Spec.Volumes, pod.Status.Phase = []corev1.Volume{objects.InlineVolume("listener", nil)}, phase
	return pod
}

// removals start a removal.
var removals = map[string]func(*harness){
	"by management state": func(h *harness) { h.setState(operatorv1alpha1.Removed) },
	"by deletion":         func(h *harness) { h.deleteConfig() },
}

func (h *harness) deleteConfig() {
	h.t.Helper()
	if err := h.Client.Delete(h.t.Context(), h.config()); err != nil {
		h.t.Fatal(err)
	}
}

func TestRemovalWaitsForVolumesInUse(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			other := volume("other", "of-another-driver", corev1.VolumeBound)
			other.Spec.CSI.Driver = "example.com"
			used := []client.Object{
				volume("new", "c0", corev1.VolumePending), volume("v1", "c1", corev1.VolumeBound), volume("v2", "c2", corev1.VolumeBound),
				podWithClaims("web", "c0", "c1"), podWithClaims("db", "c1", "of-another-driver"), podWithInlineVolume("inline", corev1.PodRunning),
			}
			for i := range 10 {
				used = append(used, podWithClaims(fmt.Sprintf("z%d", i), "c1"))
			}
			objects := []client.Object{newConfig(), other, volume("released", "gone", corev1.VolumeReleased), volume("failed", "gone", corev1.VolumeFailed), podWithClaims("of-nothing", "c9"), podWithInlineVolume("finished", corev1.PodSucceeded)}
			stranger := podWithClaims("stranger", "c2")
			stranger.Namespace = "elsewhere"
			h := newHarness(t, interceptor.Funcs{}, append(append(objects, stranger), used...)...)
			h.mustReconcile()
			begin(h)
			h.mustReconcile()
			h.expect(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allKinds())
			h.expectUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonVolumesInUse)
			if got := h.message("Degraded"); !strings.HasSuffix(got, ": Pods ns/db, ns/inline, ns/web, ns/z0, ns/z1, ns/z2, ns/z3, ns/z4, ns/z5, ns/z6 and 3 more; claims without a Pod ns/c2") {
				t.Errorf("message is %q, which does not name the users", got)
			}

			// A component that volumes in use need is repaired meanwhile.
			if err := h.Client.Delete(t.Context(), h.agents()); err != nil {
				t.Fatal(err)
			}
			h.mustReconcile()
			h.expect(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allKinds())

			for _, o := range used {
				if err := h.Client.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			h.mustReconcile()
			allButStorage := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CSIDriver", "DaemonSet"}
			h.expect(map[string]string{"Available": "True Removed", "Progressing": "True Removed", "Degraded": "False AsExpected"}, allButStorage)

			// A volume that was being provisioned delays the removal, but does not recreate the StorageClass.
			late := volume("late", "late", corev1.VolumePending)
			if err := h.Client.Create(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			h.mustReconcile()
			h.expect(map[string]string{"Available": "False Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allButStorage)
			if err := h.Client.Delete(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			for left := 3; left >= 0; left-- {
				h.mustReconcile()
				h.expectInstalled(upTo(left))
			}
		})
	}
}

func TestReinstallationAfterRemoval(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	h.setState(operatorv1alpha1.Removed)
	h.reconcileUntilSettled()
	h.expect(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	// So that it can be deleted after the operator is uninstalled.
	if got := h.config().Finalizers; len(got) > 0 {
		t.Errorf("the configuration still has finalizers %v", got)
	}
	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.expectInstalled(allKinds())
	if diff := cmp.Diff([]string{operatorv1alpha1.FinalizerNodeAgent}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

func TestRemovalKeepsForeignObjects(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Removed
	foreign := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver}
	h := newHarness(t, interceptor.Funcs{}, config, foreign)
	h.mustReconcile()
	h.expect(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"},
		[]string{"StorageClass (foreign)"})
}

// TestEveryFailedWriteIsRetried lets each write fail once: the error is returned and reported, and the next
// reconciliations complete the work.
func TestEveryFailedWriteIsRetried(t *testing.T) {
	boom := errors.New("boom")
	writes := 1 + len(alwaysInstalled()) // the finalizer and each component, to install as to remove
	for n := range writes {
		t.Run(fmt.Sprintf("installing, write %d", n), func(t *testing.T) {
			h := newHarness(t, fakeclient.FailWrite(n, boom), newConfig())
			if _, err := h.reconcileOnce(); !errors.Is(err, boom) {
				t.Fatalf("error is %v, want boom", err)
			}
			available := "False ApplyFailed"
			if done := n - 1; done >= 0 && alwaysInstalled()[done].Extra {
				available = "True AsExpected"
			}
			h.expect(map[string]string{"Available": available, "Progressing": "True ApplyFailed", "Degraded": "True ApplyFailed"}, upTo(n-1))
			h.mustReconcile()
			h.rollOut(1, 1, 1)
			h.mustReconcile()
			h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "False AsExpected"}, allKinds())
		})
	}
	for n := range writes {
		for way, begin := range removals {
			t.Run(fmt.Sprintf("removing %s, write %d", way, n), func(t *testing.T) {
				fail := n
				if way == "by deletion" {
					fail++ // the deletion itself
				}
				h := newHarness(t, fakeclient.FailWrite(writes+fail, boom), newConfig(), volume("other", "other", corev1.VolumeReleased))
				h.mustReconcile()
				begin(h)
				var err error
				for i := 0; i <= n && err == nil; i++ { // a reconciliation may have several writes
					_, err = h.reconcileOnce()
				}
				if !errors.Is(err, boom) {
					t.Fatalf("error is %v, want boom", err)
				}
				if got := h.conditions()["Degraded"]; got != "True RemovalFailed" {
					t.Errorf("Degraded is %s, want True RemovalFailed", got)
				}
				for range writes {
					if err = h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{}); err == nil {
						h.mustReconcile()
					}
				}
				err = h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{})
				if gone := apierrors.IsNotFound(err); gone != (way == "by deletion") {
					t.Fatalf("reading the configuration returns %v", err)
				}
				h.expectNothingInstalled()
			})
		}
	}
}

// expectNothingInstalled checks that no component exists.
func (h *harness) expectNothingInstalled() {
	h.t.Helper()
	for _, c := range alwaysInstalled() {
		if err := h.Client.Get(h.t.Context(), c.Key(namespace), c.Empty()); !apierrors.IsNotFound(err) {
			h.t.Errorf("reading %s %s returns %v, want not found", c.Kind, c.Name, err)
		}
	}
}

// upTo returns the first n kinds.
func upTo(n int) []string {
	if n <= 0 {
		return nil
	}
	return allKinds()[:n]
}

func TestFailedStatusWriteIsReturned(t *testing.T) {
	boom := errors.New("boom")
	h := newHarness(t, failStatus(boom), newConfig())
	if _, err := h.reconcileOnce(); !errors.Is(err, boom) {
		t.Errorf("error is %v, want boom", err)
	}
	h.expectInstalled(allKinds())
}

// TestFinalizerIsRemovedAfterAllComponents has another finalizer, so that the configuration still exists afterwards.
func TestFinalizerIsRemovedAfterAllComponents(t *testing.T) {
	config := newConfig()
	config.Finalizers = []string{"example.com/wait"}
	h := newHarness(t, interceptor.Funcs{}, config)
	h.mustReconcile()
	h.update(withFinalizers(h.config(), "example.com/wait", operatorv1alpha1.FinalizerNodeAgent)) // the fake client applies lists, not sets
	h.deleteConfig()
	h.reconcileUntilSettled()
	h.expectNothingInstalled()
	if diff := cmp.Diff([]string{"example.com/wait"}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	h.expect(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
	h.mustReconcile()
	h.expectNothingInstalled()
	if diff := cmp.Diff([]string{"example.com/wait"}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers afterwards (-want +got):\n%s", diff)
	}
}

func withFinalizers(config *operatorv1alpha1.ListenerOperator, finalizers ...string) *operatorv1alpha1.ListenerOperator {
	config.Finalizers = finalizers
	return config
}

// Otherwise the garbage collector would, even while volumes are in use.
func TestDeletionRemovesUnmanagedComponents(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	h.changeImage()
	h.deleteConfig()
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allKinds())
	h.expectChangedImage()
	if err := h.Client.Delete(t.Context(), volume("v", "c", corev1.VolumeBound)); err != nil {
		t.Fatal(err)
	}
	for range requiredCount() + 1 {
		h.mustReconcile()
	}
	h.expectNothingInstalled()
}

// No volume is in use.
func TestOrphaningDeletionRemovesNothingBeforeGarbageCollection(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

// TestOrphaningDeletionRemovesNothing checks kubectl delete --cascade=orphan while the garbage collector removes the
// owner references of the components. Volumes in use must not restore any of them.
func TestOrphaningDeletionRemovesNothing(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustReconcile()
	h.expectInstalled(allKinds())
	for i, c := range alwaysInstalled() {
		object := c.Empty()
		if err := h.Client.Get(t.Context(), c.Key(namespace), object); err != nil {
			t.Fatal(err)
		}
		object.SetOwnerReferences(nil)
		h.update(object)
		if i == len(alwaysInstalled())-1 {
			break
		}
		seen := h.config()
		seen.Finalizers = []string{operatorv1alpha1.FinalizerNodeAgent} // as the cache may have it
		if _, err := h.Reconcile(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if err := h.Client.Get(t.Context(), c.Key(namespace), object); err != nil || len(object.GetOwnerReferences()) > 0 {
			t.Errorf("%s has owners %v (%v)", c.Kind, object.GetOwnerReferences(), err)
		}
	}
	h.update(withFinalizers(h.config(), operatorv1alpha1.FinalizerNodeAgent))
	h.mustReconcile()
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the configuration returns %v, want not found", err)
	}
	h.agents()

	again := newConfig()
	again.UID = "c0f1c0f1-0000-4000-8000-000000000002"
	if err := h.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

// A foreign object is not modified, and a removal waits for a volume in use.
func TestObjectsMissingInTheCacheAreFound(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	foreign := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	upToDate := h.apiReader
	h.apiReader = fakeclient.New(t, interceptor.Funcs{}, agentAccount("made-first"), foreign)
	h.mustReconcile()
	h.expect(map[string]string{"Available": "False ForeignObject", "Progressing": "False ForeignObject", "Degraded": "True ForeignObject"}, nil)

	h.apiReader = upToDate
	h.mustReconcile()
	h.setState(operatorv1alpha1.Removed)
	h.apiReader = fakeclient.New(t, interceptor.Funcs{}, agentAccount("made-first"), volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allKinds())
}

// Volumes of another installation are in use.
func TestRemovalInstallsNothing(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Removed
	h := newHarness(t, interceptor.Funcs{}, config, volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	h.expect(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
}

// An administrator may have removed it.
func TestRemovalWithoutFinalizer(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustReconcile()
	h.update(withFinalizers(h.config()))
	h.setState(operatorv1alpha1.Removed)
	h.reconcileUntilSettled()
	h.expectNothingInstalled()
}

// A conflict with another installation, whose volumes are in use, must not delay the deletion of the configuration.
func TestNoFinalizerWithoutInstallation(t *testing.T) {
	foreign := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	h := newHarness(t, interceptor.Funcs{}, newConfig(), foreign, volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	if got := h.config().Finalizers; len(got) > 0 {
		t.Errorf("the configuration has finalizers %v", got)
	}
}
