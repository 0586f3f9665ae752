package nodeagent

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/version"
)

// patience is how long agents may take to become ready before something must be wrong. It suits clusters of any size,
// for agents are replaced a tenth at a time.
const patience = 15 * time.Minute

// uncreatedPatience is how long there may be no agent's Pod at all: the first are created at once, or refused.
const uncreatedPatience = 30 * time.Second

// maxListed is how many Pods, and how many claims, a message names.
const maxListed = 5

// describe returns the status after a pass, and when to look at it again because time alone changes it, or 0 for never.
func describe(o *observed, done outcome, now time.Time) (operatorv1alpha1.ListenerOperatorStatus, time.Duration) {
	agents := o.agents()
	status := operatorv1alpha1.ListenerOperatorStatus{
		ObservedGeneration: o.config.Generation,
		Version:            version.Version,
		NodeAgent: operatorv1alpha1.NodeAgentStatus{
			Desired: agents.Status.DesiredNumberScheduled,
			Ready:   agents.Status.NumberReady,
			Updated: agents.Status.UpdatedNumberScheduled,
			Version: rolledOut(o, done),
		},
	}
	for _, c := range o.config.Status.Conditions {
		switch c.Type {
		case operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ConditionProgressing, operatorv1alpha1.ConditionDegraded,
			operatorv1alpha1.ConditionUpgradeable:
			status.Conditions = append(status.Conditions, c)
		}
	}
	set := func(c metav1.Condition) {
		c.ObservedGeneration, c.LastTransitionTime = o.config.Generation, metav1.NewTime(now)
		c.Message = message.Cut(c.Message, message.Event) // which Degraded becomes as well
		meta.SetStatusCondition(&status.Conditions, c)
	}
	set(available(o, done))
	set(progressing(o, done))
	is := meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionProgressing)
	var left time.Duration
	if is.Reason == operatorv1alpha1.ReasonAgentsRollout {
		left = max(is.LastTransitionTime.Add(patienceWith(o)).Sub(now), 0)
	}
	late := is.Reason == operatorv1alpha1.ReasonAgentsRollout && left == 0
	set(degraded(o, done, late))
	set(upgradeable(o, *is, late))
	return status, left
}

// rolledOut returns the version of the agents, which is that of the operator once they are as it wants them.
func rolledOut(o *observed, done outcome) string {
	switch state := wanted(o.config); {
	case o.agents().Name == "":
		return ""
	case state != operatorv1alpha1.Removed && state != operatorv1alpha1.Unmanaged && done.err == nil && done.foreign == "" && done.moving == "" && settled(o):
		return version.Version
	default:
		return o.config.Status.NodeAgent.Version
	}
}

// available says whether volumes can be provisioned, and mounted on the nodes that have an agent: where an agent is not
// ready yet, Pods wait.
func available(o *observed, done outcome) metav1.Condition {
	missing := o.missing()
	c := metav1.Condition{
		Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue,
		Message: "listener volumes can be provisioned, and mounted on the nodes that have an agent",
	}
	if len(missing) > 0 {
		c.Status, c.Message = metav1.ConditionFalse, "listener volumes cannot be used without "+strings.Join(missing, ", ")
	}
	switch state := wanted(o.config); {
	case state == operatorv1alpha1.Removed:
		c.Reason = operatorv1alpha1.ReasonRemoved
	case state == operatorv1alpha1.Unmanaged:
		c.Reason = operatorv1alpha1.ReasonUnmanaged
	case len(missing) == 0:
		c.Reason = operatorv1alpha1.ReasonAsExpected
	case done.foreign != "":
		c.Reason = operatorv1alpha1.ReasonForeignObject
	case done.moving != "":
		c.Reason = operatorv1alpha1.ReasonAgentsMoving
	default:
		c.Reason = operatorv1alpha1.ReasonApplyFailed
	}
	return c
}

// progressing says whether there is something that has to become as the configuration wants it, and does so by itself.
func progressing(o *observed, done outcome) metav1.Condition {
	c := metav1.Condition{Type: operatorv1alpha1.ConditionProgressing, Status: metav1.ConditionTrue}
	switch state := wanted(o.config); {
	case state == operatorv1alpha1.Removed:
		return removal(o, done)
	case state == operatorv1alpha1.Unmanaged:
		c.Status, c.Reason = metav1.ConditionFalse, operatorv1alpha1.ReasonUnmanaged
		c.Message = "managementState is Unmanaged: what is installed is left alone"
	case done.foreign != "":
		c.Status, c.Reason = metav1.ConditionFalse, operatorv1alpha1.ReasonForeignObject
		c.Message = "nothing is installed until the condition Degraded is resolved"
	case done.err != nil:
		c.Reason, c.Message = operatorv1alpha1.ReasonApplyFailed, "installing is tried again"
	case done.moving != "":
		c.Reason = operatorv1alpha1.ReasonAgentsMoving
		c.Message = fmt.Sprintf("the agents of an earlier installation in another namespace have to go first: waiting until DaemonSet %s is gone", done.moving)
	case !settled(o):
		c.Reason, c.Message = operatorv1alpha1.ReasonAgentsRollout, rollout(o)
	default:
		c.Status, c.Reason = metav1.ConditionFalse, operatorv1alpha1.ReasonAgentsRolledOut
		c.Message = fmt.Sprintf("the agents of all %d nodes are ready", o.agents().Status.DesiredNumberScheduled)
	}
	return c
}

// removal is what progressing says while what is installed is to be taken away.
func removal(o *observed, done outcome) metav1.Condition {
	c := metav1.Condition{Type: operatorv1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: operatorv1alpha1.ReasonRemoved}
	owned := o.owned()
	switch {
	case done.users.any():
		c.Reason, c.Message = operatorv1alpha1.ReasonVolumesInUse, "removal waits for volumes that are in use"
	case done.err != nil:
		c.Reason, c.Message = operatorv1alpha1.ReasonRemovalFailed, "removal is tried again"
	case len(owned) > 0:
		last := owned[len(owned)-1]
		c.Message = fmt.Sprintf("removal waits until %s %s is gone", last.kind, last.name)
	case done.moving != "":
		c.Message = fmt.Sprintf("removal waits until DaemonSet %s is gone", done.moving)
	default:
		c.Status, c.Message = metav1.ConditionFalse, "what was installed is removed"
	}
	return c
}

// settled tells whether each node that should have an agent has the wanted one, and it is ready.
func settled(o *observed) bool {
	agents := o.agents()
	return agents.Status.ObservedGeneration >= agents.Generation &&
		agents.Status.UpdatedNumberScheduled >= agents.Status.DesiredNumberScheduled &&
		agents.Status.NumberReady >= agents.Status.DesiredNumberScheduled
}

// uncreated returns the number of nodes that should have an agent's Pod, and have none.
func uncreated(o *observed) int32 {
	agents := o.agents()
	return agents.Status.DesiredNumberScheduled - agents.Status.CurrentNumberScheduled
}

// patienceWith returns how long the agents may take on their way.
func patienceWith(o *observed) time.Duration {
	if uncreated(o) > 0 && o.agents().Status.CurrentNumberScheduled == 0 {
		return uncreatedPatience
	}
	return patience
}

func rollout(o *observed) string {
	agents := o.agents()
	if agents.Status.ObservedGeneration < agents.Generation {
		return "the DaemonSet controller has not seen the latest change yet"
	}
	return fmt.Sprintf("of the agents of %d nodes, %d are up to date and %d ready",
		agents.Status.DesiredNumberScheduled, agents.Status.UpdatedNumberScheduled, agents.Status.NumberReady)
}

// degraded says whether something is wrong that does not pass by itself.
func degraded(o *observed, done outcome, late bool) metav1.Condition {
	c := metav1.Condition{Type: operatorv1alpha1.ConditionDegraded, Status: metav1.ConditionTrue}
	switch {
	case done.foreign != "":
		c.Reason, c.Message = operatorv1alpha1.ReasonForeignObject, done.foreign
	case done.users.any():
		c.Reason, c.Message = operatorv1alpha1.ReasonVolumesInUse, waiting(o.config, done)
	case done.stranded.any():
		c.Reason, c.Message = operatorv1alpha1.ReasonAgentsInUse, stranding(done)
	case done.err != nil && wanted(o.config) == operatorv1alpha1.Removed:
		c.Reason, c.Message = operatorv1alpha1.ReasonRemovalFailed, done.err.Error()
	case done.err != nil:
		c.Reason, c.Message = operatorv1alpha1.ReasonApplyFailed, done.err.Error()
	case late && uncreated(o) > 0:
		c.Reason = operatorv1alpha1.ReasonAgentsNotCreated
		c.Message = fmt.Sprintf("of the agents of %d nodes, %d are not created; the events of DaemonSet %s say why; "+
			"if it is pod security: the namespace has to admit host path volumes, by the label pod-security.kubernetes.io/enforce=privileged",
			o.agents().Status.DesiredNumberScheduled, uncreated(o), client.ObjectKeyFromObject(o.agents()))
	case late:
		c.Reason = operatorv1alpha1.ReasonAgentsNotReady
		c.Message = fmt.Sprintf("%s, for more than %.0f minutes now; look at the Pods and events of DaemonSet %s",
			rollout(o), patience.Minutes(), client.ObjectKeyFromObject(o.agents()))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, operatorv1alpha1.ReasonAsExpected, "nothing is wrong"
	}
	return c
}

// waiting says what a removal waits for, and what else can be done.
func waiting(config *operatorv1alpha1.ListenerOperator, done outcome) string {
	told := "listener volumes are in use; delete what uses them, or set managementState to Managed again: "
	if !config.DeletionTimestamp.IsZero() {
		told = "the deletion waits, because listener volumes are in use; delete what uses them: "
	}
	told += done.users.String()
	if done.err != nil {
		told += "; meanwhile: " + done.err.Error()
	}
	return told
}

// stranding says why agents stay where they are, and what can be done.
func stranding(done outcome) string {
	told := "agents stay where they are, because listener volumes are in use on nodes that spec.nodeAgent takes them from, by its node selector, " +
		"tolerations, affinity or placement; change it, or delete what runs there: " + done.stranded.String()
	if done.err != nil {
		told += "; meanwhile: " + done.err.Error()
	}
	return told
}

// upgradeable says whether the operator may be replaced by another version. That something is wrong does not forbid it,
// for an upgrade may be what mends it; so a rollout that is late does not forbid it either, or one broken node would
// for ever.
func upgradeable(o *observed, progressing metav1.Condition, late bool) metav1.Condition {
	c := metav1.Condition{Type: operatorv1alpha1.ConditionUpgradeable, Status: metav1.ConditionTrue}
	switch {
	case progressing.Status == metav1.ConditionTrue && wanted(o.config) == operatorv1alpha1.Removed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, progressing.Reason, "what was installed is to be removed: "+progressing.Message
	case progressing.Reason == operatorv1alpha1.ReasonAgentsRollout && !late:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, progressing.Reason, "the agents are still being rolled out: "+progressing.Message
	default:
		c.Reason, c.Message = operatorv1alpha1.ReasonAsExpected, "the operator may be upgraded"
	}
	return c
}

// report writes the status if it changed.
func (r *Reconciler) report(ctx context.Context, config *operatorv1alpha1.ListenerOperator, status operatorv1alpha1.ListenerOperatorStatus) error {
	if gone := !config.DeletionTimestamp.IsZero() && len(config.Finalizers) == 0; gone || reflect.DeepEqual(config.Status, status) {
		return nil
	}
	if err := r.applier.ApplyStatus(ctx, config, &status); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Reported status", "nodeAgent", status.NodeAgent)
	r.tell(config, status)
	return nil
}

// tell makes an event of Degraded when it changes.
func (r *Reconciler) tell(config *operatorv1alpha1.ListenerOperator, status operatorv1alpha1.ListenerOperatorStatus) {
	before := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	after := meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionDegraded)
	if before == nil && after.Status == metav1.ConditionFalse || before != nil && before.Reason == after.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if after.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.events.Eventf(config, nil, kind, after.Reason, "Reconcile", "%s", after.Message)
}
