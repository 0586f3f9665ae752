package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// ours returns the object with the label of managed objects, and an owner: the configuration, unless another uid is
// given.
func ours[T client.Object](o T, uid types.UID) T {
	if uid == "" {
		uid = newConfig().UID
	}
	o.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.GroupVersion.String(), Kind: "ListenerOperator", Name: "cluster", UID: uid, Controller: ptr.To(true),
	}})
	return o
}

// leftovers returns objects of an earlier version, and similar ones that must not be pruned.
func leftovers() (stale, others []client.Object) {
	stale = []client.Object{
		ours(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old-agent"}}, ""),
		ours(&storagev1.StorageClass{ObjectMeta: objectMeta("old-class")}, ""),
		ours(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: objectMeta("old-binding")}, ""),
	}
	ownedOnly := ours(&storagev1.CSIDriver{ObjectMeta: objectMeta("owned")}, "")
	ownedOnly.Labels = nil
	labelledOnly := &storagev1.CSIDriver{ObjectMeta: objectMeta("labelled")}
	labelledOnly.Labels = map[string]string{names.LabelManagedBy: names.Operator}
	others = []client.Object{
		ownedOnly, labelledOnly,
		ours(&storagev1.StorageClass{ObjectMeta: objectMeta("of-another")}, "another"),
		ours(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "old-agent"}}, ""),
		ours(&listenersv1alpha1.ListenerClass{ObjectMeta: objectMeta("policy")}, ""),
	}
	return stale, others
}

func TestObjectsOfEarlierVersionsArePruned(t *testing.T) {
	stale, others := leftovers()
	h := newHarness(t, noIntercept, append(append(stale, others...), newConfig())...)
	h.setState(operatorv1alpha1.Unmanaged)
	h.mustReconcile()
	h.expectExist(stale, true)

	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.expectExist(stale, false)
	h.expectExist(others, true)
	h.expectInstalled(allKinds())
}

func TestRemovalPrunes(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			h := newInstalled(t)
			stale, others := leftovers()
			h.create(append(stale, others...)...)
			begin(h)
			h.removeAll()
			h.expectNothingInstalled()
			h.expectExist(stale, false)
			h.expectExist(others, true)
		})
	}
}

// It fails, for example because of a missing permission. All components are installed by then.
func TestPruningIsRetried(t *testing.T) {
	stale, _ := leftovers()
	h := newHarness(t, fakeclient.FailWrite(1+len(alwaysInstalled()), errBoom), append(stale, newConfig())...)
	h.expectBoom()
	h.expect("True AsExpected", "True ApplyFailed", "True ApplyFailed", allKinds())
	h.mustReconcile()
	h.expectExist(stale, false)
}

// agentsIn returns agents that an earlier installation with this configuration left in a namespace.
func agentsIn(namespace string, config *operatorv1alpha1.ListenerOperator) *appsv1.DaemonSet {
	labels := installation.NodeAgentLabels()
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: names.NodeAgent, UID: "left",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(config, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))},
	}}
	agents.Spec.Selector, agents.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	agents.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent"}}
	return agents
}

// withPods lets a DaemonSet exist after its deletion, as long as it has Pods.
func withPods(agents *appsv1.DaemonSet) *appsv1.DaemonSet {
	agents.Finalizers = []string{metav1.FinalizerDeleteDependents}
	return agents
}

func TestAgentsInAnotherNamespaceAreDeletedFirst(t *testing.T) {
	left := withPods(agentsIn("before", newConfig()))
	h := newHarness(t, noIntercept, newConfig(), left)
	for range 2 {
		h.mustReconcile()
		h.expect("False AgentsMoving", "True AgentsMoving", "False AsExpected", nil)
		h.Expect(h.message("Progressing")).To(HaveSuffix("waiting for the deletion of DaemonSet before/listener-node-agent"))
	}
	h.read(left)
	h.collectGarbage(left)
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

// Otherwise two operators would delete each other's agents.
func TestAgentsOfAnInstalledOperatorAreNotDeleted(t *testing.T) {
	account := agentAccount("theirs")
	account.Namespace = "before"
	left := agentsIn("before", newConfig())
	h := newHarness(t, noIntercept, newConfig(), left, account)
	if _, err := h.reconcileOnce(); err == nil {
		t.Error("no error, so that it is not retried")
	}
	h.expect("False ApplyFailed", "True ApplyFailed", "True ApplyFailed", nil)
	h.Expect(h.message("Degraded")).To(ContainSubstring("DaemonSet before/listener-node-agent"))
	h.read(left)
	h.Expect(left.DeletionTimestamp).To(BeNil())
	h.deleteAll(account)
	h.mustReconcileTwice()
	h.expectInstalled(allKinds())
}

func TestForeignAgentsAreNotDeleted(t *testing.T) {
	other := newConfig()
	other.UID = "other"
	theirs := agentsIn("before", other)
	h := newInstalled(t, theirs)
	h.expectInstalled(allKinds())
	h.expectExist([]client.Object{theirs}, true)
}

// The finalizer is removed only after they are deleted. While the operator waits for volumes, it installs no second
// agents.
func TestRemovalIncludesAgentsInOtherNamespaces(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			config := withFinalizers(newConfig(), operatorv1alpha1.FinalizerNodeAgent)
			left := withPods(agentsIn("before", config))
			used := []client.Object{volume("v1", "c1", corev1.VolumeBound), podWithClaims("web", "c1")}
			h := newHarness(t, noIntercept, append(used, config, left)...)
			begin(h)
			h.mustReconcile()
			h.expectInstalled(nil)
			h.deleteAll(used...)
			h.mustReconcile()
			h.equal("message", "the removal waits for the deletion of DaemonSet before/listener-node-agent", h.message("Progressing"))
			h.Expect(h.config().Finalizers).To(ContainElement(operatorv1alpha1.FinalizerNodeAgent))
			h.read(left)
			h.collectGarbage(left)
			h.mustReconcile()
			if h.hasConfig() {
				h.Expect(h.config().Finalizers).NotTo(ContainElement(operatorv1alpha1.FinalizerNodeAgent))
			}
		})
	}
}
