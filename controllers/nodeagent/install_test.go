package nodeagent

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// The tokens of Pods become invalid with it.
func TestAgentsAreReplacedWithTheirServiceAccount(t *testing.T) {
	h := newInstalled(t)
	before := h.agents().Spec.Template
	h.deleteAll(agentAccount(""))
	_, err := h.reconcileOnce()
	h.Expect(err).To(MatchError(ContainSubstring("ServiceAccount somewhere/listener-node-agent")))
	h.equal("agents that could not start", before, h.agents().Spec.Template)
	h.create(agentAccount("made-again"))
	h.mustReconcile()
	if cmp.Equal(before, h.agents().Spec.Template) {
		t.Error("the agents are not replaced, whose tokens are invalid")
	}
}

func TestDriftIsRepaired(t *testing.T) {
	h := newInstalled(t)
	driver := driver()
	h.read(driver)
	driver.Spec.PodInfoOnMount = ptr.To(false)
	h.update(driver)
	h.deleteAll(h.agents())
	h.mustReconcile()
	h.expectInstalled(allKinds())
	h.read(driver)
	h.Expect(driver.Spec.PodInfoOnMount).To(Equal(ptr.To(true)))
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
				h := newHarness(t, noIntercept, newConfig(), foreign)
				h.serves = servesEverything
				before := h.object(c)
				h.mustReconcile()
				var left []string
				if c.Optional.Empty() {
					left = []string{c.Kind + " (foreign)"}
				}
				h.expect("False ForeignObject", "False ForeignObject", "True ForeignObject", left)
				h.Expect(h.message("Degraded")).To(ContainSubstring(message))
				h.equal("resource version", before.GetResourceVersion(), h.object(c).GetResourceVersion())

				h.deleteAll(foreign)
				h.mustReconcile()
				h.expectInstalled(allKinds())
			})
		}
	}
}

// While Stackable's listener operator runs, the configuration has a status, but nothing is installed, nor removed.
func TestNothingChangesWhileStackablesOperatorRuns(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	other := stackable.Installation{Workloads: []stackable.Workload{{Kind: "DaemonSet", Namespace: "platform", Name: "sdp-csi-node-driver"}}, KubeletDir: "/var/lib/kubelet", Recheck: time.Minute}
	running := func(context.Context) (stackable.Installation, error) { return other, nil }
	h.stackable = running
	expect := func(installed []string, message OmegaMatcher) {
		t.Helper()
		h.equal("requeued after", time.Minute, h.mustReconcile().RequeueAfter)
		h.expect("False OtherOperatorRunning", "False OtherOperatorRunning", "True OtherOperatorRunning", installed)
		h.Expect(h.message("Degraded")).To(And(ContainSubstring("is running: DaemonSet platform/sdp-csi-node-driver;"), message))
	}
	expect(nil, Not(ContainSubstring("kubeletDir")))
	other.KubeletDir = "/data/kubelet"
	expect(nil, HaveSuffix("its kubelet directory is /data/kubelet: set spec.nodeAgent.kubeletDir before"))
	h.Expect(h.config().Finalizers).To(BeEmpty())
	h.stackable = nothingElseRuns
	h.reconcileUntilSettled()
	h.expectInstalled(allKinds())
	h.stackable = running
	h.setState(operatorv1alpha1.Removed)
	expect(allKinds(), ContainSubstring("kubeletDir"))
}

func TestStatusHasTheClusterDomain(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	h.ClusterDomain = "k8s.example.com"
	h.mustReconcile()
	h.equal("domain of the resolver", "k8s.example.com", h.config().Status.ClusterDomain)
	h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) { spec.ClusterDomain = "one.example" })
	h.mustReconcile()
	h.equal("Degraded", "False "+operatorv1alpha1.ReasonOtherClusterDomain, h.conditions()["Degraded"])
	h.Expect(h.message("Degraded")).To(ContainSubstring("k8s.example.com"))
	h.equal("configured domain", "one.example", h.config().Status.ClusterDomain)
}

// An administrator resolves it, because the operator may not change them.
func TestPoliciesOfOtherVersionsAreInTheStatus(t *testing.T) {
	all, err := confinement.Policies(metav1.OwnerReference{})
	later := all[0].Policy
	later.Name += ".later"
	h := newHarness(t, noIntercept, newConfig(), later)
	h.must(err)
	h.mustReconcile()
	h.expect("True AsExpected", "False AgentsRolledOut", "True OtherConfinement", allKinds())
	h.Expect(h.message("Degraded")).To(HaveSuffix(": ValidatingAdmissionPolicy " + later.Name + " belongs to another version of the operator; if none is installed, delete it"))
	h.deleteAll(later)
	h.mustReconcile()
	h.equal("message", "no problem is known", h.message("Degraded"))
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
	h.equal("image", foreignImage, h.agents().Spec.Template.Spec.Containers[0].Image)
}

func TestUnmanagedChangesNothing(t *testing.T) {
	config := newConfig()
	config.Spec.ManagementState = operatorv1alpha1.Unmanaged
	h := newHarness(t, noIntercept, config)
	h.mustReconcile()
	h.expect("False Unmanaged", "False Unmanaged", "False AsExpected", nil)
	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.changeImage()
	h.mustReconcile()
	h.expect("True Unmanaged", "False Unmanaged", "False AsExpected", allKinds())
	h.expectChangedImage()
}

// A foreign object is not modified, and a removal waits for a volume in use.
func TestObjectsMissingInTheCacheAreFound(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	upToDate := h.apiReader
	h.apiReader = fakeclient.New(t, noIntercept, agentAccount("made-first"), daemonSet(namespace)) // a foreign one
	h.mustReconcile()
	h.expect("False ForeignObject", "False ForeignObject", "True ForeignObject", nil)

	h.apiReader = upToDate
	h.mustReconcile()
	h.setState(operatorv1alpha1.Removed)
	h.apiReader = fakeclient.New(t, noIntercept, agentAccount("made-first"), volume("v", "c", corev1.VolumeBound))
	h.mustReconcile()
	h.expect("True Removed", "True VolumesInUse", "True VolumesInUse", allKinds())
}

// linux returns the node selector that agents always have, with more keys.
func linux(more ...string) map[string]string {
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	for _, key := range more {
		selector[key] = ""
	}
	return selector
}

// at returns the Pod, bound to a node.
func at(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

func node(name string, labels map[string]string) *corev1.Node {
	all := map[string]string{corev1.LabelArchStable: "amd64"}
	maps.Copy(all, labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}
}

// TestPlacementIsKeptWhileDeselectedNodesHaveUsers checks that a new placement waits for Pods that use volumes on nodes
// that it does not select, and that all other changes of the configuration take effect.
func TestPlacementIsKeptWhileDeselectedNodesHaveUsers(t *testing.T) {
	web, inline := at("worker", podWithClaims("web", "c1", "c2")), at("worker", podWithInlineVolume("inline", corev1.PodRunning))
	h := newHarness(t, noIntercept, newConfig(), node("worker", linux()), node("infra", linux("infra")), node("never", nil),
		volume("v1", "c1", corev1.VolumeBound), volume("v2", "c2", corev1.VolumeBound), volume("v3", "c3", corev1.VolumeBound),
		volume("idle", "c4", corev1.VolumeBound), web, inline, at("infra", podWithClaims("db", "c3")), at("never", podWithClaims("waiting", "c3")), podWithClaims("pending", "c3"),
		at("worker", podWithClaims("of-nothing", "c9")))
	h.mustReconcile()
	h.rollOut(2, 2, 2)
	want := func(selector map[string]string, degraded string) {
		t.Helper()
		h.equal("node selector", selector, h.agents().Spec.Template.Spec.NodeSelector)
		h.equal("Degraded", degraded, h.conditions()["Degraded"])
	}
	h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) {
		spec.NodeAgent.NodeSelector, spec.NodeAgent.LogLevel = map[string]string{"infra": ""}, "debug"
		spec.NodeAgent.Tolerations = []corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}}
		spec.NodeAgent.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	})
	h.mustReconcile()
	want(linux(), "True AgentsInUse")
	h.Expect(h.message("Degraded")).To(HaveSuffix(": Pods ns/inline, ns/web"))
	pod := h.agents().Spec.Template.Spec
	h.Expect(pod.Containers[0].Args).To(ContainElement("--log-level=debug"), "other changes of the configuration wait as well")
	if pod.Affinity.PodAffinity != nil || len(pod.Tolerations) != 1 || pod.Tolerations[0].Key != "" {
		t.Errorf("the placement changed: affinity %v, tolerations %v", pod.Affinity, pod.Tolerations)
	}

	// A removal that waits for volumes does not change the placement either.
	h.setState(operatorv1alpha1.Removed)
	h.mustReconcile()
	want(linux(), "True VolumesInUse")
	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()

	for _, pod := range []*corev1.Pod{web, inline} {
		want(linux(), "True AgentsInUse")
		h.deleteAll(pod)
		h.mustReconcile()
	}
	want(linux("infra"), "False AsExpected")
	if h.mustReconcile(); h.waitingForUsers.Load() {
		t.Error("changes of the users of volumes still trigger reconciliations")
	}

	// A placement that deselects no node takes effect at once.
	h.create(at("infra", podWithClaims("late", "c4")))
	h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) { spec.NodeAgent.NodeSelector = nil })
	h.mustReconcile()
	want(linux(), "False AsExpected")
}
