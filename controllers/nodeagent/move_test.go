package nodeagent

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// agentsIn returns agents that an earlier installation with this configuration left in a namespace.
func agentsIn(namespace string, config *operatorv1alpha1.ListenerOperator) *appsv1.DaemonSet {
	labels := installation.NodeAgentLabels()
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: names.NodeAgent, UID: "left",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(config, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
			},
		},
	}
}

// withDependentsFinalizer lets a DaemonSet exist after its deletion, as long as it has Pods.
func withDependentsFinalizer(agents *appsv1.DaemonSet) *appsv1.DaemonSet {
	agents.Finalizers = []string{metav1.FinalizerDeleteDependents}
	return agents
}

func (h *harness) finishDeletion(key client.ObjectKey) {
	h.t.Helper()
	agents := &appsv1.DaemonSet{}
	if err := h.Client.Get(h.t.Context(), key, agents); err != nil {
		h.t.Fatal(err)
	}
	if agents.DeletionTimestamp.IsZero() {
		h.t.Errorf("DaemonSet %s is not deleted", key)
	}
	agents.Finalizers = nil
	h.update(agents)
}

func TestAgentsInAnotherNamespaceAreDeletedFirst(t *testing.T) {
	left := withDependentsFinalizer(agentsIn("before", newConfig()))
	h := newHarness(t, interceptor.Funcs{}, newConfig(), left)
	for range 2 {
		h.mustReconcile()
		h.expect(map[string]string{"Available": "False AgentsMoving", "Progressing": "True AgentsMoving", "Degraded": "False AsExpected"}, nil)
		if got := h.message("Progressing"); !strings.HasSuffix(got, "waiting for the deletion of DaemonSet before/listener-node-agent") {
			t.Errorf("message is %q, which does not name the DaemonSet", got)
		}
	}
	h.finishDeletion(client.ObjectKeyFromObject(left))
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

// Otherwise two operators would delete each other's agents.
func TestAgentsOfAnInstalledOperatorAreNotDeleted(t *testing.T) {
	account := agentAccount("theirs")
	account.Namespace = "before"
	left := agentsIn("before", newConfig())
	h := newHarness(t, interceptor.Funcs{}, newConfig(), left, account)
	if _, err := h.reconcileOnce(); err == nil {
		t.Error("no error, so that it is not retried")
	}
	h.expect(map[string]string{"Available": "False ApplyFailed", "Progressing": "True ApplyFailed", "Degraded": "True ApplyFailed"}, nil)
	if got := h.message("Degraded"); !strings.Contains(got, "DaemonSet before/listener-node-agent") {
		t.Errorf("message is %q, which does not name the DaemonSet", got)
	}
	if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left); err != nil || !left.DeletionTimestamp.IsZero() {
		t.Errorf("the DaemonSet was deleted: %v, %v", err, left.DeletionTimestamp)
	}
	if err := h.Client.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

func TestForeignAgentsAreNotDeleted(t *testing.T) {
	other := newConfig()
	other.UID = "other"
	theirs := agentsIn("before", other)
	h := newHarness(t, interceptor.Funcs{}, newConfig(), theirs)
	h.mustReconcile()
	h.expectInstalled(allKinds())
	if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Error(err)
	}
}

// The finalizer is removed only after they are deleted. While the operator waits for volumes, it installs no second
// agents.
func TestRemovalIncludesAgentsInOtherNamespaces(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			config := newConfig()
			config.Finalizers = []string{operatorv1alpha1.FinalizerNodeAgent}
			left := withDependentsFinalizer(agentsIn("before", config))
			used := []client.Object{volume("v1", "c1", corev1.VolumeBound), podWithClaims("web", "c1")}
			h := newHarness(t, interceptor.Funcs{}, append(used, config, left)...)
			begin(h)
			h.mustReconcile()
			h.expectInstalled(nil)
			for _, o := range used {
				if err := h.Client.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			h.mustReconcile()
			if got := h.message("Progressing"); got != "the removal waits for the deletion of DaemonSet before/listener-node-agent" {
				t.Errorf("message is %q", got)
			}
			if !slices.Contains(h.config().Finalizers, operatorv1alpha1.FinalizerNodeAgent) {
				t.Error("the finalizer was removed too early")
			}
			h.finishDeletion(client.ObjectKeyFromObject(left))
			if _, err := h.Reconcile(t.Context(), h.config()); err != nil {
				t.Fatal(err)
			}
			err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config)
			if held := err == nil && slices.Contains(config.Finalizers, operatorv1alpha1.FinalizerNodeAgent); held || client.IgnoreNotFound(err) != nil {
				t.Errorf("the configuration still has the finalizer: %v, %v", err, config.Finalizers)
			}
		})
	}
}

func TestAgentsAreInstalledOnceThoseInAnotherNamespaceAreDeleted(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	config := createConfig(t, c)
	left := agentsIn(apiserver.Namespace(t), config)
	g.Expect(c.Create(t.Context(), left)).To(Succeed())
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	g.Eventually(func() []string {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(left), left)).To(Succeed())
		return left.Finalizers
	}, apiserver.Timeout, "20ms").Should(ConsistOf(metav1.FinalizerDeleteDependents))
	agents := client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}
	g.Expect(apierrors.IsNotFound(c.Get(t.Context(), agents, &appsv1.DaemonSet{}))).To(BeTrue())
	collectGarbage(t, c, left)
	g.Eventually(func() error { return c.Get(t.Context(), agents, &appsv1.DaemonSet{}) }, apiserver.Timeout, "20ms").Should(Succeed())
}
