package nodeagent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
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

// expectProgressing reconciles, and checks the reason of Progressing, which Upgradeable follows.
func (h *harness) expectProgressing(what, reason string) {
	h.t.Helper()
	h.mustReconcile()
	want := map[string]metav1.ConditionStatus{"Progressing": metav1.ConditionFalse, "Upgradeable": metav1.ConditionTrue}
	if reason == operatorv1alpha1.ReasonAgentsRollout {
		want = map[string]metav1.ConditionStatus{"Progressing": metav1.ConditionTrue, "Upgradeable": metav1.ConditionFalse}
	}
	got := map[string]metav1.ConditionStatus{"Progressing": h.condition("Progressing").Status, "Upgradeable": h.condition("Upgradeable").Status}
	h.equal(what, want, got)
	h.equal(what, reason, h.condition("Progressing").Reason)
}

// TestARolloutLeavesOutNodesThatAreDown: the controller of DaemonSets counts their agents as unavailable, and waits.
func TestARolloutLeavesOutNodesThatAreDown(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig(), nodeThatIs("True", "a"), nodeThatIs("True", "b"), nodeThatIs("Unknown", "dead"),
		agentOn("a", "1", "True"), agentOn("b", "1", "True"), agentOn("dead", "1", "False"))
	expectUnavailable := func(when, want string) {
		t.Helper()
		h.equal("agents that may be unavailable "+when, want, h.agents().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String())
	}
	h.mustReconcile()
	h.setTemplate("1")
	h.rollOut(3, 3, 2)
	h.expectProgressing("all agents are up to date", operatorv1alpha1.ReasonAgentsRolledOut)
	expectUnavailable("without a rollout", "10%")
	h.setTemplate("2")
	h.rollOut(3, 0, 2)
	h.expectProgressing("nothing is replaced yet", operatorv1alpha1.ReasonAgentsRollout)
	expectUnavailable("in a rollout: one more than the tenth of three nodes", "2")
	for _, name := range []string{"a", "b"} {
		h.deleteAll(agentOn(name, "2", "True"))
		h.create(agentOn(name, "2", "True"))
	}
	h.rollOut(3, 1, 2)
	h.expectProgressing("one of two is replaced", operatorv1alpha1.ReasonAgentsRollout)
	h.rollOut(3, 2, 2)
	h.expectProgressing("all others are replaced", operatorv1alpha1.ReasonAgentsRolledOut)
	h.equal("message", "of the agents of 3 nodes, 2 are up to date and 2 ready; nodes that are down: dead", h.message(operatorv1alpha1.ConditionProgressing))
	h.equal("version", "dev", h.config().Status.NodeAgent.Version)
	h.clock.SetTime(start.Add(time.Hour))
	h.mustReconcile()
	h.expect("True AsExpected", "False AgentsRolledOut", "False AsExpected", allKinds())

	node := nodeThatIs("True", "dead")
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(h.clock.Now())
	h.updateStatus(node)
	h.expectProgressing("the node is back, with the agent from before", operatorv1alpha1.ReasonAgentsRollout)
	expectUnavailable("when the node is back", "10%")
}

// TestConditionsFollowRollouts: agents that are deleted, and nodes that join or restart, are not a rollout.
func TestConditionsFollowRollouts(t *testing.T) {
	h := newInstalled(t, nodeThatIs("True", "a"), agentOn("a", "1", "True"))
	h.setTemplate("1")
	const rollout, ended = operatorv1alpha1.ReasonAgentsRollout, operatorv1alpha1.ReasonAgentsRolledOut
	for _, step := range []struct {
		what                             string
		desired, current, updated, ready int32
		reason                           string
	}{
		{"the first rollout ends", 3, 3, 3, 3, ended},
		{"an agent is deleted", 3, 2, 2, 2, ended},
		{"its node gets another one", 3, 3, 3, 2, ended},
		{"a node joins", 4, 3, 3, 3, ended},
		{"nodes restart", 4, 4, 4, 0, ended},
		{"a rollout begins", 4, 4, 0, 4, rollout},
		{"the last agent is deleted", 4, 3, 3, 3, rollout},
		{"the last agent starts", 4, 4, 4, 3, rollout},
		{"the rollout ends", 4, 4, 4, 4, ended},
	} {
		h.setAgents(step.desired, step.current, step.updated, step.ready)
		h.expectProgressing(step.what, step.reason)
	}
	agents := h.agents()
	agents.Generation++ // such as when another number of agents may be unavailable
	h.update(agents)
	h.expectProgressing("the template is the same", ended)
	h.setTemplate("2")
	h.expectProgressing("the controller of DaemonSets has not seen the template", rollout)
}

// TestAnAgentThatDoesNotStartIsReported: also without a rollout, and it does not keep a rollout from ending.
func TestAnAgentThatDoesNotStartIsReported(t *testing.T) {
	h := newInstalled(t, nodeThatIs("True", "a"), nodeThatIs("True", "b"), agentOn("a", "1", "True"), agentOn("b", "1", "False"))
	h.setTemplate("1")
	h.rollOut(2, 2, 2)
	h.expectProgressing("all agents are ready", operatorv1alpha1.ReasonAgentsRolledOut)
	h.rollOut(2, 2, 1)
	h.equal("requeued after", rolloutTimeout, h.mustReconcile().RequeueAfter)
	h.clock.SetTime(start.Add(rolloutTimeout))
	h.mustReconcile()
	h.expect("True AsExpected", "False AgentsRolledOut", "True AgentsNotReady", allKinds())
	h.Expect(h.message(operatorv1alpha1.ConditionDegraded)).To(ContainSubstring("agents that do not become ready: Pod agent-of-b on node b"))
	h.setTemplate("1") // the DaemonSet has been observed
	config := h.config()
	config.Status.Conditions = nil // as in the first rollout
	h.updateStatus(config)
	h.rollOut(2, 2, 1)
	h.mustReconcile()
	h.expect("True AsExpected", "False AgentsRolledOut", "True AgentsNotReady", allKinds())
}

// TestNodesWhereNoAgentCanRunAreNamed: and nothing waits for them.
func TestNodesWhereNoAgentCanRunAreNamed(t *testing.T) {
	fargate := map[string]string{"eks.amazonaws.com/compute-type": "fargate"}
	h := newInstalled(t, node("a", linux()), node("serverless", fargate))
	h.rollOut(1, 1, 1)
	h.expectProgressing("all agents run", operatorv1alpha1.ReasonAgentsRolledOut)
	h.equal("message", "the agents of all 1 nodes are ready; nodes where no agent can run: serverless (eks.amazonaws.com/compute-type=fargate)", h.message(operatorv1alpha1.ConditionProgressing))
}

func TestInstallationAndRollout(t *testing.T) {
	h := newInstalled(t)
	h.expectInstalled(allKinds())
	config := h.config()
	config.Status.NodeAgent.Version = "0.9.0" // before an upgrade
	h.updateStatus(config)
	h.rollOut(3, 2, 1)
	h.equal("requeued after", rolloutTimeout, h.mustReconcile().RequeueAfter)
	h.expect("True AsExpected", "True AgentsRollingOut", "False AsExpected", allKinds())
	h.equal("agents", operatorv1alpha1.NodeAgentStatus{Desired: 3, Ready: 1, Updated: 2, Version: "0.9.0"}, h.config().Status.NodeAgent)
	h.expectUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonAgentsRollout)

	h.clock.SetTime(start.Add(rolloutTimeout - time.Second))
	h.equal("requeued after", time.Second, h.mustReconcile().RequeueAfter)
	h.clock.SetTime(start.Add(rolloutTimeout))
	h.equal("requeued after", time.Duration(0), h.mustReconcile().RequeueAfter)
	h.expect("True AsExpected", "True AgentsRollingOut", "True AgentsNotReady", allKinds())
	h.equal("message", "of the agents of 3 nodes, 2 are up to date and 1 ready, for more than 15 minutes; "+
		"see the Pods and events of DaemonSet somewhere/listener-node-agent", h.message("Degraded"))

	// An upgrade may resolve the problem.
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)

	h.rollOut(3, 3, 2)
	h.mustReconcile()
	h.expect("True AsExpected", "True AgentsRollingOut", "True AgentsNotReady", allKinds())

	h.rollOut(3, 3, 3)
	h.mustReconcile()
	h.expect("True AsExpected", "False AgentsRolledOut", "False AsExpected", allKinds())
	got := h.config().Status
	h.equal("observed generation", int64(1), got.ObservedGeneration)
	h.equal("versions", []string{"dev", "dev"}, []string{got.Version, got.NodeAgent.Version})
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	h.setTemplate("2")
	h.mustReconcile()
	h.equal("Progressing, when the DaemonSet controller has not seen a change", "True AgentsRollingOut", h.conditions()["Progressing"])
	close(h.events.Events)
	var emitted []string
	for e := range h.events.Events {
		emitted = append(emitted, strings.Join(strings.Fields(e)[:2], " "))
	}
	h.equal("events", []string{"Warning AgentsNotReady", "Normal AsExpected"}, emitted)
}

// Pod security rejects them in a namespace without the label, and only events of the DaemonSet show that.
func TestMissingPodsOfAgentsAreReported(t *testing.T) {
	h := newInstalled(t)
	config := h.config()
	config.Status = operatorv1alpha1.ListenerOperatorStatus{} // of the fake DaemonSet, each generation is observed
	h.updateStatus(config)
	for i, step := range []struct {
		created             int32 // in a large cluster, it takes longer to create all Pods
		available, degraded string
	}{
		{0, "False AgentsNotCreated", "True AgentsNotCreated"}, {1, "True AsExpected", "True AgentsNotCreated"},
	} {
		h.setAgents(3, step.created, 0, step.created)
		h.equal("requeued after", creationTimeout, h.mustReconcile().RequeueAfter)
		h.expect("True AsExpected", "True AgentsRollingOut", "False AsExpected", allKinds())
		h.clock.SetTime(start.Add(time.Duration(i+1) * creationTimeout))
		h.mustReconcile()
		h.expect(step.available, "True AgentsRollingOut", step.degraded, allKinds())
		for _, want := range []string{
			fmt.Sprintf("3 nodes, %d are not created", 3-step.created), "DaemonSet somewhere/listener-node-agent",
			"pod-security.kubernetes.io/enforce=privileged", "security context constraints",
		} {
			h.Expect(h.message(operatorv1alpha1.ConditionDegraded)).To(ContainSubstring(want))
		}
	}
}
