package nodeagent

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// nodeThatIs returns a node whose kubelet responds or not.
func nodeThatIs(ready corev1.ConditionStatus, name string) *corev1.Node {
	n := node(name, linux())
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

// agentOn returns the agent of a node, of a generation of the template.
func agentOn(node, template string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "agent-of-" + node, Labels: map[string]string{names.LabelTemplateGeneration: template},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: names.NodeAgent, UID: "agents", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "node-agent", Image: "x"}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(start)}}},
	}
}

// setTemplate makes the template of the DaemonSet another one, and the controller of DaemonSets aware of that.
func (h *harness) setTemplate(generation string) {
	h.t.Helper()
	agents := h.agents()
	agents.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: generation}
	agents.Generation++
	h.update(agents)
}

func (h *harness) maxUnavailable() string {
	h.t.Helper()
	return h.agents().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String()
}

// expectProgressing reconciles, and checks the reason of Progressing, which Upgradeable follows.
func (h *harness) expectProgressing(what, reason string) {
	h.t.Helper()
	h.mustReconcile()
	want, upgradeable := "False "+reason, "True"
	if reason == operatorv1alpha1.ReasonAgentsRollout {
		want, upgradeable = "True "+reason, "False"
	}
	if got := h.conditions()[operatorv1alpha1.ConditionProgressing]; got != want {
		h.t.Errorf("%s: Progressing is %s, want %s: %s", what, got, want, h.message(operatorv1alpha1.ConditionProgressing))
	}
	for _, c := range h.config().Status.Conditions {
		if c.Type == operatorv1alpha1.ConditionUpgradeable && string(c.Status) != upgradeable {
			h.t.Errorf("%s: Upgradeable is %s, want %s", what, c.Status, upgradeable)
		}
	}
}

// TestARolloutLeavesOutNodesThatAreDown: the controller of DaemonSets counts their agents as unavailable, and waits.
func TestARolloutLeavesOutNodesThatAreDown(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), nodeThatIs("True", "a"), nodeThatIs("True", "b"), nodeThatIs("Unknown", "dead"),
		agentOn("a", "1", "True"), agentOn("b", "1", "True"), agentOn("dead", "1", "False"))
	h.mustReconcile()
	h.setTemplate("1")
	h.rollOut(3, 3, 2)
	h.expectProgressing("all agents are up to date", operatorv1alpha1.ReasonAgentsRolledOut)
	if got := h.maxUnavailable(); got != "10%" {
		t.Errorf("without a rollout, %s may be unavailable", got)
	}
	h.setTemplate("2")
	h.rollOut(3, 0, 2)
	h.expectProgressing("nothing is replaced yet", operatorv1alpha1.ReasonAgentsRollout)
	if got := h.maxUnavailable(); got != "2" {
		t.Errorf("%s may be unavailable, want one more than the tenth of three nodes", got)
	}
	for _, name := range []string{"a", "b"} {
		agent := agentOn(name, "2", "True")
		if err := h.Client.Delete(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		if err := h.Client.Create(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
	}
	h.rollOut(3, 1, 2)
	h.expectProgressing("one of two is replaced", operatorv1alpha1.ReasonAgentsRollout)
	h.rollOut(3, 2, 2)
	h.expectProgressing("all others are replaced", operatorv1alpha1.ReasonAgentsRolledOut)
	if got, want := h.message(operatorv1alpha1.ConditionProgressing), "of the agents of 3 nodes, 2 are up to date and 2 ready; nodes that are down: dead"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	if got := h.config().Status.NodeAgent.Version; got != "dev" {
		t.Errorf("the version is %q", got)
	}
	h.clock.SetTime(start.Add(time.Hour))
	h.mustReconcile()
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "False AsExpected"}, allKinds())

	node := nodeThatIs("True", "dead")
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(h.clock.Now())
	if err := h.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	h.expectProgressing("the node is back, with the agent from before", operatorv1alpha1.ReasonAgentsRollout)
	if got := h.maxUnavailable(); got != "10%" {
		t.Errorf("when the node is back, %s may be unavailable", got)
	}
}

// TestConditionsFollowRollouts: agents that are deleted, and nodes that join or restart, are not a rollout.
func TestConditionsFollowRollouts(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), nodeThatIs("True", "a"), agentOn("a", "1", "True"))
	h.mustReconcile()
	h.setTemplate("1")
	for _, step := range []struct {
		what                            string
		desired, current, update, ready int32
		reason                          string
	}{
		{"the first rollout ends", 3, 3, 3, 3, operatorv1alpha1.ReasonAgentsRolledOut},
		{"an agent is deleted", 3, 2, 2, 2, operatorv1alpha1.ReasonAgentsRolledOut},
		{"its node gets another one", 3, 3, 3, 2, operatorv1alpha1.ReasonAgentsRolledOut},
		{"a node joins", 4, 3, 3, 3, operatorv1alpha1.ReasonAgentsRolledOut},
		{"nodes restart", 4, 4, 4, 0, operatorv1alpha1.ReasonAgentsRolledOut},
		{"a rollout begins", 4, 4, 0, 4, operatorv1alpha1.ReasonAgentsRollout},
		{"the last agent is deleted", 4, 3, 3, 3, operatorv1alpha1.ReasonAgentsRollout},
		{"the last agent starts", 4, 4, 4, 3, operatorv1alpha1.ReasonAgentsRollout},
		{"the rollout ends", 4, 4, 4, 4, operatorv1alpha1.ReasonAgentsRolledOut},
	} {
		agents := h.agents()
		agents.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: agents.Generation, DesiredNumberScheduled: step.desired, CurrentNumberScheduled: step.current,
			UpdatedNumberScheduled: step.update, NumberReady: step.ready,
		}
		if err := h.Client.Status().Update(t.Context(), agents); err != nil {
			t.Fatal(err)
		}
		h.expectProgressing(step.what, step.reason)
	}
	agents := h.agents()
	agents.Generation++ // such as when another number of agents may be unavailable
	h.update(agents)
	h.expectProgressing("the template is the same", operatorv1alpha1.ReasonAgentsRolledOut)
	h.setTemplate("2")
	h.expectProgressing("the controller of DaemonSets has not seen the template", operatorv1alpha1.ReasonAgentsRollout)
}

// TestAnAgentThatDoesNotStartIsReported: also without a rollout, and it does not keep a rollout from ending.
func TestAnAgentThatDoesNotStartIsReported(t *testing.T) {
	h := newHarness(t, interceptor.Funcs{}, newConfig(), nodeThatIs("True", "a"), nodeThatIs("True", "b"), agentOn("a", "1", "True"), agentOn("b", "1", "False"))
	h.mustReconcile()
	h.setTemplate("1")
	h.rollOut(2, 2, 2)
	h.expectProgressing("all agents are ready", operatorv1alpha1.ReasonAgentsRolledOut)
	h.rollOut(2, 2, 1)
	if got := h.mustReconcile().RequeueAfter; got != rolloutTimeout {
		t.Errorf("requeued after %s, want %s", got, rolloutTimeout)
	}
	h.clock.SetTime(start.Add(rolloutTimeout))
	h.mustReconcile()
	degraded := map[string]string{"Available": "True AsExpected", "Progressing": "False AgentsRolledOut", "Degraded": "True AgentsNotReady"}
	h.expect(degraded, allKinds())
	if got := h.message(operatorv1alpha1.ConditionDegraded); !strings.Contains(got, "agents that do not become ready: Pod agent-of-b on node b") {
		t.Errorf("the message does not name the agent: %s", got)
	}
	h.setTemplate("1") // the DaemonSet has been observed
	config := h.config()
	config.Status.Conditions = nil // as in the first rollout
	if err := h.Client.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	h.rollOut(2, 2, 1)
	h.mustReconcile()
	h.expect(degraded, allKinds())
}

// TestNodesWhereNoAgentCanRunAreNamed: and nothing waits for them.
func TestNodesWhereNoAgentCanRunAreNamed(t *testing.T) {
	fargate := map[string]string{"eks.amazonaws.com/compute-type": "fargate"}
	h := newHarness(t, interceptor.Funcs{}, newConfig(), node("a", linux()), node("serverless", fargate))
	h.mustReconcile()
	h.rollOut(1, 1, 1)
	h.expectProgressing("all agents run", operatorv1alpha1.ReasonAgentsRolledOut)
	want := "the agents of all 1 nodes are ready; nodes where no agent can run: serverless (eks.amazonaws.com/compute-type=fargate)"
	if got := h.message(operatorv1alpha1.ConditionProgressing); got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

// TestTheOperatorMayAdmitAnotherUnavailableAgent: with the permissions and the policies that confine it, and without
// another template, which would replace all agents.
func TestTheOperatorMayAdmitAnotherUnavailableAgent(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	installRBAC(t, admin, namespace)
	config := createConfig(t, admin)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, admin)
	r := reconcilerWithRBAC(operator, admin, namespace)
	mustReconcile(t, r)
	agents := &appsv1.DaemonSet{}
	read := func() *appsv1.DaemonSet {
		g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents)).To(Succeed())
		return agents
	}
	template := read().Annotations[appsv1.DeprecatedTemplateGeneration]
	dead, agent := nodeThatIs("Unknown", "dead-of-"+namespace), agentOn("dead-of-"+namespace, template, "False")
	agent.Namespace, agent.OwnerReferences[0].UID = namespace, agents.UID
	for _, o := range []client.Object{dead, agent} {
		status := o.DeepCopyObject().(client.Object)
		g.Expect(admin.Create(t.Context(), o)).To(Succeed())
		status.SetResourceVersion(o.GetResourceVersion())
		g.Expect(admin.Status().Update(t.Context(), status)).To(Succeed())
		t.Cleanup(func() { _ = admin.Delete(t.Context(), o, client.GracePeriodSeconds(0)) })
	}
	setUpdated := func(updated int32) {
		read().Status = appsv1.DaemonSetStatus{ObservedGeneration: agents.Generation, DesiredNumberScheduled: 12, CurrentNumberScheduled: 12, UpdatedNumberScheduled: updated, NumberReady: 11}
		g.Expect(admin.Status().Update(t.Context(), agents)).To(Succeed())
	}
	setUpdated(3)
	mustReconcile(t, r)
	g.Expect(*read().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable).To(Equal(intstr.FromInt32(3)), "two are a tenth of twelve nodes")
	before := agents.Generation
	mustReconcile(t, r)
	g.Expect(read().Generation).To(Equal(before), "the DaemonSet is written again")
	setUpdated(12)
	mustReconcile(t, r)
	g.Expect(*read().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable).To(Equal(intstr.FromString("10%")))
	g.Expect(agents.Annotations[appsv1.DeprecatedTemplateGeneration]).To(Equal(template))
	g.Expect(admin.Patch(t.Context(), config, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeAgent":{"logLevel":"debug"}}}`)))).To(Succeed())
	mustReconcile(t, r)
	g.Expect(read().Annotations[appsv1.DeprecatedTemplateGeneration]).NotTo(Equal(template), "another template is not noticed")
}
