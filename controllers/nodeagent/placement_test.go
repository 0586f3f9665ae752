package nodeagent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

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
	h := newHarness(t, interceptor.Funcs{}, newConfig(), node("worker", linux()), node("infra", linux("infra")), node("never", nil),
		volume("v1", "c1", corev1.VolumeBound), volume("v2", "c2", corev1.VolumeBound), volume("v3", "c3", corev1.VolumeBound),
		volume("idle", "c4", corev1.VolumeBound), web, inline, at("infra", podWithClaims("db", "c3")), at("never", podWithClaims("waiting", "c3")), podWithClaims("pending", "c3"),
		at("worker", podWithClaims("of-nothing", "c9")))
	h.mustReconcile()
	h.rollOut(2, 2, 2)
	set := func(change func(*operatorv1alpha1.NodeAgentSpec)) {
		t.Helper()
		config := h.config()
		change(&config.Spec.NodeAgent)
		h.update(config)
		h.mustReconcile()
	}
	want := func(selector map[string]string, degraded string) {
		t.Helper()
		if diff := cmp.Diff(selector, h.agents().Spec.Template.Spec.NodeSelector); diff != "" {
			t.Errorf("node selector (-want +got):\n%s", diff)
		}
		if got := h.conditions()["Degraded"]; got != degraded {
			t.Errorf("Degraded is %s, want %s: %s", got, degraded, h.message("Degraded"))
		}
	}
	set(func(agent *operatorv1alpha1.NodeAgentSpec) {
		agent.NodeSelector, agent.LogLevel = map[string]string{"infra": ""}, "debug"
		agent.Tolerations = []corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}}
		agent.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	})
	want(linux(), "True AgentsInUse")
	if got := h.message("Degraded"); !strings.HasSuffix(got, ": Pods ns/inline, ns/web") {
		t.Errorf("message is %q, which does not name the Pod, or names others", got)
	}
	pod := h.agents().Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "--log-level=debug") {
		t.Errorf("arguments are %v: other changes of the configuration wait as well", pod.Containers[0].Args)
	}
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
		if err := h.Client.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		h.mustReconcile()
	}
	want(linux("infra"), "False AsExpected")
	if h.mustReconcile(); h.waitingForUsers.Load() {
		t.Error("changes of the users of volumes still trigger reconciliations")
	}

	// A placement that deselects no node takes effect at once.
	if err := h.Client.Create(t.Context(), at("infra", podWithClaims("late", "c4"))); err != nil {
		t.Fatal(err)
	}
	set(func(agent *operatorv1alpha1.NodeAgentSpec) { agent.NodeSelector = nil })
	want(linux(), "False AsExpected")
}

// TestPlacementChangesWhenNoPodBlocksItAnyMore checks the watches of Pods and Nodes.
func TestPlacementChangesWhenNoPodBlocksItAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		end func(*WithT, client.Client, *corev1.Pod, *corev1.Node)
	}{
		"the Pod is deleted": {podWithClaims("web", "claim"), func(g *WithT, c client.Client, pod *corev1.Pod, _ *corev1.Node) {
			g.Expect(c.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
		}},
		"the Pod with an inline volume finishes": {podWithInlineVolume("web", ""), func(g *WithT, c client.Client, pod *corev1.Pod, _ *corev1.Node) {
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(c.Status().Update(t.Context(), pod)).To(Succeed())
		}},
		"the node is selected again": {podWithClaims("web", "claim"), func(g *WithT, c client.Client, _ *corev1.Pod, node *corev1.Node) {
			g.Expect(c.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"infra":""}}}`)))).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, namespace := fresh(t)
			g := NewWithT(t)
			worker := node("worker-of-"+namespace, linux())
			pv := volume("in-use-"+namespace, "claim", corev1.VolumeBound)
			pv.Spec.ClaimRef.Namespace = namespace
			pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			pod := at(worker.Name, tc.pod)
			pod.Namespace = namespace
			pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
			for _, o := range []client.Object{worker, pv, pod} {
				g.Expect(c.Create(t.Context(), o)).To(Succeed())
				t.Cleanup(func() {
					ctx := context.Background()
					free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
					if err := client.IgnoreNotFound(errors.Join(c.Patch(ctx, o, free), c.Delete(ctx, o, client.GracePeriodSeconds(0)))); err != nil {
						t.Error(err)
					}
				})
			}
			config := createConfig(t, c)
			apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
				return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
			})
			agents := &appsv1.DaemonSet{}
			g.Eventually(func() error {
				return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents)
			}, apiserver.Timeout, "20ms").Should(Succeed())
			narrow := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeAgent":{"nodeSelector":{"infra":""}}}}`))
			g.Expect(c.Patch(t.Context(), config, narrow)).To(Succeed())
			g.Eventually(func() string {
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(config), config)).To(Succeed())
				return conditionMessage(config, operatorv1alpha1.ConditionDegraded)
			}, apiserver.Timeout, "20ms").Should(HaveSuffix(": Pods " + namespace + "/web"))

			tc.end(g, c, pod, worker)
			g.Eventually(func() map[string]string {
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(agents), agents)).To(Succeed())
				return agents.Spec.Template.Spec.NodeSelector
			}, apiserver.Timeout, "20ms").Should(Equal(linux("infra")))
		})
	}
}
