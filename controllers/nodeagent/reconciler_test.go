package nodeagent

import (
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
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

const namespace = "somewhere"

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newConfig returns ListenerOperator/cluster as the API server makes it of an empty one.
func newConfig() *operatorv1alpha1.ListenerOperator {
	return &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "c0f1c0f1-0000-4000-8000-000000000001", Generation: 1},
		Spec: operatorv1alpha1.ListenerOperatorSpec{
			ManagementState: operatorv1alpha1.Managed, Preset: operatorv1alpha1.PresetEphemeralNodes, ClusterDomain: "cluster.local",
			NodeAgent: operatorv1alpha1.NodeAgentSpec{
				Placement: operatorv1alpha1.PlacementEverywhere, PriorityClassName: "system-node-critical", KubeletDir: "/var/lib/kubelet", LogLevel: "info",
			},
		},
	}
}

// harness is a Reconciler on a fake API server.
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
		Client: c, Namespace: namespace, Image: "listener-operator:test",
		live: c, serves: servesNothingOptional, applier: apply.New(c, names.FieldManagerOperator), events: h.events, clock: h.clock,
	}
	return h
}

// everywhere are the components that are installed on any cluster.
func everywhere() []installation.Component {
	return slices.DeleteFunc(installation.Components(), func(c installation.Component) bool { return !c.Optional.Empty() })
}

// needed is how many of them volumes need, each of which is removed in a pass of its own.
func needed() int {
	return len(slices.DeleteFunc(everywhere(), func(c installation.Component) bool { return c.Extra }))
}

func servesNothingOptional(schema.GroupVersionKind) bool { return false }

// agentAccount is the ServiceAccount that the operator's manifests make for the agents.
func agentAccount(uid types.UID) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent, UID: uid}}
}

// pass reconciles the configuration as it is now.
func (h *harness) pass() (reconcile.Result, error) {
	h.t.Helper()
	return h.Reconcile(h.t.Context(), h.config())
}

func (h *harness) mustPass() reconcile.Result {
	h.t.Helper()
	result, err := h.pass()
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

// wantsUpgradeable checks the condition Upgradeable.
func (h *harness) wantsUpgradeable(want metav1.ConditionStatus, reason string) {
	h.t.Helper()
	c := meta.FindStatusCondition(h.config().Status.Conditions, operatorv1alpha1.ConditionUpgradeable)
	if c == nil || c.Status != want || c.Reason != reason {
		h.t.Errorf("condition is %+v, want %s %s", c, want, reason)
	}
}

// passes reconciles until nothing happens any more, as the watches of what is deleted would.
func (h *harness) passes() {
	h.t.Helper()
	for before := -1; before != len(h.installed()); {
		before = len(h.installed())
		h.mustPass()
	}
	h.mustPass()
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

// installed returns the kinds of the components that exist, and whose they are.
func (h *harness) installed() []string {
	h.t.Helper()
	var found []string
	for _, c := range everywhere() {
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

func (h *harness) wants(condition map[string]string, installed []string) {
	h.t.Helper()
	if diff := cmp.Diff(condition, h.conditions()); diff != "" {
		h.t.Errorf("conditions (-want +got):\n%s", diff)
	}
	h.wantsInstalled(installed)
}

// wantsInstalled checks which components there are.
func (h *harness) wantsInstalled(want []string) {
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

// rollOut lets the DaemonSet have agents.
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

func all() []string {
	var kinds []string
	for _, c := range everywhere() {
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

func TestInstallsAndSettles(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	h.wantsInstalled(all())
	config := h.config()
	config.Status.NodeAgent.Version = "0.9.0" // before an upgrade
	if err := h.Client.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	h.rollOut(3, 2, 1)
	if got := h.mustPass().RequeueAfter; got != rolloutTimeout {
		t.Errorf("looks again after %s, want %s", got, rolloutTimeout)
	}
	h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "False AsExpected"}, all())
	want := operatorv1alpha1.NodeAgentStatus{Desired: 3, Ready: 1, Updated: 2, Version: "0.9.0"}
	if diff := cmp.Diff(want, h.config().Status.NodeAgent); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	h.wantsUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonAgentsRollout)

	h.clock.SetTime(start.Add(rolloutTimeout - time.Second))
	if got := h.mustPass().RequeueAfter; got != time.Second {
		t.Errorf("looks again after %s, want 1s", got)
	}
	h.clock.SetTime(start.Add(rolloutTimeout))
	if got := h.mustPass().RequeueAfter; got != 0 {
		t.Errorf("looks again after %s, want never", got)
	}
	h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotReady"}, all())
	if diff := cmp.Diff("of the agents of 3 nodes, 2 are up to date and 1 ready, for more than 15 minutes; "+
		"see the Pods and events of DaemonSet somewhere/listener-node-agent", h.message("Degraded")); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}

	// An upgrade may be what mends it.
	h.wantsUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)

	h.rollOut(3, 3, 2)
	h.mustPass()
	h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotReady"}, all())

	h.rollOut(3, 3, 3)
	h.mustPass()
	h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "False AsExpected"}, all())
	if got := h.config().Status; got.ObservedGeneration != 1 || got.Version != "dev" || got.NodeAgent.Version != "dev" {
		t.Errorf("observed generation %d and versions %q and %q, want 1 and dev", got.ObservedGeneration, got.Version, got.NodeAgent.Version)
	}
	h.wantsUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	agents := h.agents()
	agents.Generation++ // as the API server does when the DaemonSet is changed
	h.update(agents)
	h.mustPass()
	if diff := cmp.Diff("True AgentsRollingOut", h.conditions()["Progressing"]); diff != "" {
		t.Errorf("when the DaemonSet controller has not seen a change (-want +got):\n%s", diff)
	}
	close(h.events.Events)
	var told []string
	for e := range h.events.Events {
		told = append(told, strings.Join(strings.Fields(e)[:2], " "))
	}
	if diff := cmp.Diff([]string{"Warning AgentsNotReady", "Normal AsExpected"}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestAgentsThatAreNotCreatedAreTold: pod security refuses them where the namespace is not labelled, and nothing else
// would tell.
func TestAgentsThatAreNotCreatedAreTold(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	agents := h.agents()
	agents.Status = appsv1.DaemonSetStatus{ObservedGeneration: agents.Generation, DesiredNumberScheduled: 3}
	if err := h.Client.Status().Update(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if again := h.mustPass().RequeueAfter; again != creationTimeout {
		t.Errorf("looks again after %s, want %s", again, creationTimeout)
	}
	rolling := map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "False AsExpected"}
	h.wants(rolling, all())
	h.clock.SetTime(start.Add(creationTimeout))
	h.mustPass()
	h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "True AgentsRollingOut", "Degraded": "True AgentsNotCreated"}, all())
	for _, want := range []string{"3 nodes, 3 are not created", "DaemonSet somewhere/listener-node-agent", "pod-security.kubernetes.io/enforce=privileged"} {
		if got := h.message(operatorv1alpha1.ConditionDegraded); !strings.Contains(got, want) {
			t.Errorf("the message does not say %q: %s", want, got)
		}
	}
	// Where there are many nodes, it takes a while to create them all.
	agents = h.agents()
	agents.Status.CurrentNumberScheduled = 1
	if err := h.Client.Status().Update(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if again := h.mustPass().RequeueAfter; again != rolloutTimeout-creationTimeout {
		t.Errorf("looks again after %s, want %s", again, rolloutTimeout-creationTimeout)
	}
	h.wants(rolling, all())
}

// TestAgentsAreReplacedWithTheirServiceAccount: the tokens of Pods die with it.
func TestAgentsAreReplacedWithTheirServiceAccount(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	before := h.agents().Spec.Template
	if err := h.Client.Delete(t.Context(), agentAccount("")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.pass(); err == nil || !strings.Contains(err.Error(), "ServiceAccount somewhere/listener-node-agent") {
		t.Errorf("without the ServiceAccount, the error is %v", err)
	}
	if diff := cmp.Diff(before, h.agents().Spec.Template); diff != "" {
		t.Errorf("the agents change although they could not start (-before +after):\n%s", diff)
	}
	if err := h.Client.Create(t.Context(), agentAccount("made-again")); err != nil {
		t.Fatal(err)
	}
	h.mustPass()
	if cmp.Equal(before, h.agents().Spec.Template) {
		t.Error("the agents stay, whose tokens are dead")
	}
}

func TestDriftIsRepaired(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
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
	h.mustPass()
	h.wantsInstalled(all())
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: names.Driver}, driver); err != nil {
		t.Fatal(err)
	}
	if !*driver.Spec.PodInfoOnMount {
		t.Error("podInfoOnMount is still false")
	}
}

// TestForeignObjectsAreLeftAlone of whatever kind, and nothing is installed beside them. Where all is that the driver's
// name alone makes ours, see TestForeign.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	for _, c := range installation.Components() {
		if c.Adopt {
			continue
		}
		t.Run(c.Kind+" "+c.Name, func(t *testing.T) {
			foreign := c.Empty()
			foreign.SetNamespace(c.Key(namespace).Namespace)
			foreign.SetName(c.Name)
			h := newHarness(t, interceptor.Funcs{}, newConfig(), foreign)
			h.serves = func(schema.GroupVersionKind) bool { return true }
			before, after := c.Empty(), c.Empty()
			if err := h.Client.Get(t.Context(), c.Key(namespace), before); err != nil {
				t.Fatal(err)
			}
			h.mustPass()
			var left []string
			if c.Optional.Empty() {
				left = []string{c.Kind + " (foreign)"}
			}
			h.wants(map[string]string{"Available": "False ForeignObject", "Progressing": "False ForeignObject", "Degraded": "True ForeignObject"}, left)
			if err := h.Client.Get(t.Context(), c.Key(namespace), after); err != nil || before.GetResourceVersion() != after.GetResourceVersion() {
				t.Errorf("it was written to (%v)", err)
			}

			if err := h.Client.Delete(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			h.mustPass()
			h.wantsInstalled(all())
		})
	}
}

// othersImage is what somebody else chose for the agents.
const othersImage = "somebody-elses-choice"

// letOthersManage has somebody else change the agents.
func (h *harness) letOthersManage() {
	h.t.Helper()
	h.setState(operatorv1alpha1.Unmanaged)
	agents := h.agents()
	agents.Spec.Template.Spec.Containers[0].Image = othersImage
	h.update(agents)
}

// managedByOthers checks that the change is still there.
func (h *harness) managedByOthers() {
	h.t.Helper()
	if got := h.agents().Spec.Template.Spec.Containers[0].Image; got != othersImage {
		h.t.Errorf("the image is %s again", got)
	}
}

func TestUnmanagedTouchesNothing(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Unmanaged
	h := newHarness(t, interceptor.Funcs{}, config)
	h.mustPass()
	h.wants(map[string]string{"Available": "False Unmanaged", "Progressing": "False Unmanaged", "Degraded": "False AsExpected"}, nil)

	h.setState(operatorv1alpha1.Managed)
	h.mustPass()
	h.letOthersManage()
	h.mustPass()
	h.wants(map[string]string{"Available": "True Unmanaged", "Progressing": "False Unmanaged", "Degraded": "False AsExpected"}, all())
	h.managedByOthers()
}

// user returns a Pod that mounts the claims.
func user(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// removals are the two ways to have everything removed.
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
				user("web", "c0", "c1"), user("db", "c1", "of-another-driver"),
			}
			for i := range 5 {
				used = append(used, user(fmt.Sprintf("z%d", i), "c1"))
			}
			objects := []client.Object{newConfig(), other, volume("released", "gone", corev1.VolumeReleased), volume("failed", "gone", corev1.VolumeFailed), user("of-nothing", "c9")}
			stranger := user("stranger", "c2")
			stranger.Namespace = "elsewhere"
			h := newHarness(t, interceptor.Funcs{}, append(append(objects, stranger), used...)...)
			h.mustPass()
			begin(h)
			h.mustPass()
			h.wants(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, all())
			h.wantsUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonVolumesInUse)
			if got := h.message("Degraded"); !strings.HasSuffix(got, ": Pods ns/db, ns/web, ns/z0, ns/z1, ns/z2 and 2 more; claims without a Pod ns/c2") {
				t.Errorf("message is %q, which does not name the users", got)
			}

			// Whatever somebody does to it meanwhile, volumes in use keep their agents.
			if err := h.Client.Delete(t.Context(), h.agents()); err != nil {
				t.Fatal(err)
			}
			h.mustPass()
			h.wants(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, all())

			for _, o := range used {
				if err := h.Client.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			h.mustPass()
			allButStorage := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CSIDriver", "DaemonSet"}
			h.wants(map[string]string{"Available": "True Removed", "Progressing": "True Removed", "Degraded": "False AsExpected"}, allButStorage)

			// A volume that was on its way holds the rest, but does not bring the StorageClass back.
			late := volume("late", "late", corev1.VolumePending)
			if err := h.Client.Create(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			h.mustPass()
			h.wants(map[string]string{"Available": "False Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, allButStorage)
			if err := h.Client.Delete(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			for left := 3; left >= 0; left-- {
				h.mustPass()
				h.wantsInstalled(upTo(left))
			}
		})
	}
}

func TestWhatWasRemovedCanBeInstalledAgain(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	h.setState(operatorv1alpha1.Removed)
	h.passes()
	h.wants(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
	h.wantsUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	// So that it may be deleted when the operator is gone.
	if got := h.config().Finalizers; len(got) > 0 {
		t.Errorf("the configuration still has finalizers %v", got)
	}
	h.setState(operatorv1alpha1.Managed)
	h.mustPass()
	h.wantsInstalled(all())
	if diff := cmp.Diff([]string{operatorv1alpha1.FinalizerNodeAgent}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

func TestRemovalLeavesWhatIsForeign(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Removed
	foreign := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver}
	h := newHarness(t, interceptor.Funcs{}, config, foreign)
	h.mustPass()
	h.wants(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"},
		[]string{"StorageClass (foreign)"})
}

// TestEveryWriteMayFail fails each write once: the error is returned and told, and the next passes put everything
// right.
func TestEveryWriteMayFail(t *testing.T) {
	boom := errors.New("boom")
	writes := 1 + len(everywhere())                // the finalizer and each component, to install as to remove
	confined := len(installation.OperatorPolicy()) // comes after the finalizer and is left to the garbage collector
	for n := range writes + confined {
		t.Run(fmt.Sprintf("installing, write %d", n), func(t *testing.T) {
			h := newHarness(t, fakeclient.FailWrite(n, boom), newConfig())
			if _, err := h.pass(); !errors.Is(err, boom) {
				t.Fatalf("error is %v, want boom", err)
			}
			available := "False ApplyFailed"
			if done := n - 1 - confined; done >= 0 && everywhere()[done].Extra {
				available = "True AsExpected"
			}
			h.wants(map[string]string{"Available": available, "Progressing": "True ApplyFailed", "Degraded": "True ApplyFailed"}, upTo(n-1-confined))
			h.mustPass()
			h.rollOut(1, 1, 1)
			h.mustPass()
			h.wants(map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "False AsExpected"}, all())
		})
	}
	for n := range writes {
		for way, begin := range removals {
			t.Run(fmt.Sprintf("removing %s, write %d", way, n), func(t *testing.T) {
				fail := n
				if way == "by deletion" {
					fail++ // the deletion itself
				}
				h := newHarness(t, fakeclient.FailWrite(writes+confined+fail, boom), newConfig(), volume("other", "other", corev1.VolumeReleased))
				h.mustPass()
				begin(h)
				var err error
				for i := 0; i <= n && err == nil; i++ { // a pass may have several writes
					_, err = h.pass()
				}
				if !errors.Is(err, boom) {
					t.Fatalf("error is %v, want boom", err)
				}
				if got := h.conditions()["Degraded"]; got != "True RemovalFailed" {
					t.Errorf("Degraded is %s, want True RemovalFailed", got)
				}
				for range writes {
					if err = h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{}); err == nil {
						h.mustPass()
					}
				}
				err = h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{})
				if gone := apierrors.IsNotFound(err); gone != (way == "by deletion") {
					t.Fatalf("reading the configuration says %v", err)
				}
				h.gone()
			})
		}
	}
}

// gone checks that nothing is installed.
func (h *harness) gone() {
	h.t.Helper()
	for _, c := range everywhere() {
		if err := h.Client.Get(h.t.Context(), c.Key(namespace), c.Empty()); !apierrors.IsNotFound(err) {
			h.t.Errorf("reading %s %s says %v, want not found", c.Kind, c.Name, err)
		}
	}
}

// upTo returns the first n kinds.
func upTo(n int) []string {
	if n <= 0 {
		return nil
	}
	return all()[:n]
}

func TestStatusThatCannotBeWritten(t *testing.T) {
	boom := errors.New("boom")
	h := newHarness(t, failStatus(boom), newConfig())
	if _, err := h.pass(); !errors.Is(err, boom) {
		t.Errorf("error is %v, want boom", err)
	}
	h.wantsInstalled(all())
}

// TestADeletionEndsWhenEverythingIsGone has a finalizer of somebody else, without which the configuration would be gone
// before it is looked at.
func TestADeletionEndsWhenEverythingIsGone(t *testing.T) {
	config := newConfig()
	config.Finalizers = []string{"example.com/wait"}
	h := newHarness(t, interceptor.Funcs{}, config)
	h.mustPass()
	h.update(withFinalizers(h.config(), "example.com/wait", operatorv1alpha1.FinalizerNodeAgent)) // the fake client's apply knows no sets
	h.deleteConfig()
	h.passes()
	h.gone()
	if diff := cmp.Diff([]string{"example.com/wait"}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	h.wants(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
	h.mustPass()
	h.gone()
	if diff := cmp.Diff([]string{"example.com/wait"}, h.config().Finalizers); diff != "" {
		t.Errorf("finalizers afterwards (-want +got):\n%s", diff)
	}
}

func withFinalizers(config *operatorv1alpha1.ListenerOperator, finalizers ...string) *operatorv1alpha1.ListenerOperator {
	config.Finalizers = finalizers
	return config
}

// TestADeletionRemovesWhatIsUnmanagedToo because the garbage collector would do it otherwise, with volumes in use or
// not.
func TestADeletionRemovesWhatIsUnmanagedToo(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), volume("v", "c", corev1.VolumeBound))
	h.mustPass()
	h.letOthersManage()
	h.deleteConfig()
	h.mustPass()
	h.wants(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, all())
	h.managedByOthers()
	if err := h.Client.Delete(t.Context(), volume("v", "c", corev1.VolumeBound)); err != nil {
		t.Fatal(err)
	}
	for range needed() + 1 {
		h.mustPass()
	}
	h.gone()
}

// TestADeletionThatIsGoingToOrphanTakesNothingAway although no volume is in use: the garbage collector has not come to
// it yet.
func TestADeletionThatIsGoingToOrphanTakesNothingAway(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustPass()
	h.wantsInstalled(all())
}

// TestADeletionThatOrphansTakesNothingAway is kubectl delete --cascade=orphan: the garbage collector is about to take
// the owner off all that is installed. Volumes in use do not matter then, and must not bring the owner back, not even
// of one object.
func TestADeletionThatOrphansTakesNothingAway(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), volume("v", "c", corev1.VolumeBound))
	h.mustPass()
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustPass()
	h.wantsInstalled(all())
	for i, c := range everywhere() {
		object := c.Empty()
		if err := h.Client.Get(t.Context(), c.Key(namespace), object); err != nil {
			t.Fatal(err)
		}
		object.SetOwnerReferences(nil)
		h.update(object)
		if i == len(everywhere())-1 {
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
	h.mustPass()
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &operatorv1alpha1.ListenerOperator{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the configuration says %v, want not found", err)
	}
	h.agents()

	again := newConfig()
	again.UID = "c0f1c0f1-0000-4000-8000-000000000002"
	if err := h.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	h.mustPass()
	h.wantsInstalled(all())
}

// TestWhatTheCacheLacksCounts: an object of somebody else is left alone, and a volume in use is waited for.
func TestWhatTheCacheLacksCounts(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	foreign := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	upToDate := h.live
	h.live = fakeclient.New(t, interceptor.Funcs{}, agentAccount("made-first"), foreign)
	h.mustPass()
	h.wants(map[string]string{"Available": "False ForeignObject", "Progressing": "False ForeignObject", "Degraded": "True ForeignObject"}, nil)

	h.live = upToDate
	h.mustPass()
	h.setState(operatorv1alpha1.Removed)
	h.live = fakeclient.New(t, interceptor.Funcs{}, agentAccount("made-first"), volume("v", "c", corev1.VolumeBound))
	h.mustPass()
	h.wants(map[string]string{"Available": "True Removed", "Progressing": "True VolumesInUse", "Degraded": "True VolumesInUse"}, all())
}

// TestNothingIsInstalledToBeRemoved although volumes are in use, which are another installation's.
func TestNothingIsInstalledToBeRemoved(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Removed
	h := newHarness(t, interceptor.Funcs{}, config, volume("v", "c", corev1.VolumeBound))
	h.mustPass()
	h.wants(map[string]string{"Available": "False Removed", "Progressing": "False Removed", "Degraded": "False AsExpected"}, nil)
}

// TestARemovalNeedsNoFinalizer: somebody may have taken it off.
func TestARemovalNeedsNoFinalizer(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig())
	h.mustPass()
	h.update(withFinalizers(h.config()))
	h.setState(operatorv1alpha1.Removed)
	h.passes()
	h.gone()
}

// TestNothingHoldsUpADeletionWhereNothingWasInstalled because another installation was in the way, whose volumes are in
// use.
func TestNothingHoldsUpADeletionWhereNothingWasInstalled(t *testing.T) {
	foreign := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	h := newHarness(t, interceptor.Funcs{}, newConfig(), foreign, volume("v", "c", corev1.VolumeBound))
	h.mustPass()
	if got := h.config().Finalizers; len(got) > 0 {
		t.Errorf("the configuration has finalizers %v", got)
	}
}
