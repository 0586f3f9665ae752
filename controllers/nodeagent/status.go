package nodeagent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/controllers/olmupgrade"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/version"
)

// describe returns the status after a reconciliation, and when it may change without an event.
func describe(o *observation, done outcome, now time.Time) (operatorv1alpha1.ListenerOperatorStatus,
	requests.Deadlines) {
	agents := o.rollout.daemonSet
	status := operatorv1alpha1.ListenerOperatorStatus{
		ObservedGeneration: o.config.Generation, Version: version.Version, ClusterDomain: o.clusterDomain,
		Conditions: slices.Clone(o.config.Status.Conditions),
		NodeAgent: operatorv1alpha1.NodeAgentStatus{
			Desired: agents.Status.DesiredNumberScheduled, Ready: agents.Status.NumberReady,
			Updated: agents.Status.UpdatedNumberScheduled,
		},
	}
	set := func(condition string, c metav1.Condition) metav1.Condition {
		c.Type, c.ObservedGeneration, c.LastTransitionTime = condition, o.config.Generation, metav1.NewTime(now)
		c.Message = message.Printable(c.Message, message.MaxEvent) // Degraded is also emitted as an event
		meta.SetStatusCondition(&status.Conditions, c)
		return *meta.FindStatusCondition(status.Conditions, condition)
	}
	current := set(operatorv1alpha1.ConditionProgressing, progressing(o, done))
	if current.Reason == operatorv1alpha1.ReasonAgentsRolledOut {
		status.NodeAgent.Version = version.Version
	} else if agents.Name != "" {
		status.NodeAgent.Version = o.config.Status.NodeAgent.Version
	}
	var deadlines requests.Deadlines
	deadlines.Add(done.stackable.Recheck, "Stackable's listener operator may have ended")
	stalled := o.rollout.stalled(current, now, &deadlines)
	set(operatorv1alpha1.ConditionAvailable, available(o, done, stalled))
	set(operatorv1alpha1.ConditionDegraded, degraded(o, done, stalled))
	set(operatorv1alpha1.ConditionUpgradeable, upgradeable(o, current, stalled))
	return status, deadlines
}

func isTrue(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// available returns the condition that volumes can be provisioned, and mounted on nodes with an agent that is ready.
func available(o *observation, done outcome, stalled string) metav1.Condition {
	c := isTrue(operatorv1alpha1.ReasonAsExpected,
		"listener volumes can be provisioned, and mounted on the nodes that have an agent")
	missing := o.missing()
	if len(missing) > 0 {
		c = isFalse(operatorv1alpha1.ReasonApplyFailed,
			"listener volumes cannot be used without "+strings.Join(missing, ", "))
	}
	switch {
	case done.beside():
		return isFalse(operatorv1alpha1.ReasonOtherOperatorRunning,
			"listener volumes are those of Stackable's listener operator as long as it runs")
	case o.state == operatorv1alpha1.Removed:
		c.Reason = operatorv1alpha1.ReasonRemoved
	case o.state == operatorv1alpha1.Unmanaged:
		c.Reason = operatorv1alpha1.ReasonUnmanaged
	case len(missing) > 0 && done.foreign != "":
		c.Reason = operatorv1alpha1.ReasonForeignObject
	case len(missing) > 0 && done.moving != "":
		c.Reason = operatorv1alpha1.ReasonAgentsMoving
	case len(missing) == 0 && stalled != "" && o.rollout.daemonSet.Status.NumberReady == 0:
		return isFalse(stalled, "listener volumes cannot be mounted, because no node has an agent that is ready")
	}
	return c
}

// progressing returns the condition that the components will match the configuration without intervention.
func progressing(o *observation, done outcome) metav1.Condition {
	before := meta.FindStatusCondition(o.config.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	switch {
	case done.beside():
		return isFalse(operatorv1alpha1.ReasonOtherOperatorRunning,
			"nothing is changed until the condition Degraded is resolved")
	case o.state == operatorv1alpha1.Removed:
		return removing(o, done)
	case o.state == operatorv1alpha1.Unmanaged:
		return isFalse(operatorv1alpha1.ReasonUnmanaged, "managementState is Unmanaged: components are not changed")
	case done.foreign != "":
		return isFalse(operatorv1alpha1.ReasonForeignObject,
			"nothing is installed until the condition Degraded is resolved")
	case done.err != nil:
		return isTrue(operatorv1alpha1.ReasonApplyFailed, "the installation is retried")
	case done.moving != "":
		return isTrue(operatorv1alpha1.ReasonAgentsMoving,
			"the agents of an earlier installation in another namespace have to be deleted first: waiting for the "+
				"deletion of DaemonSet "+done.moving)
	case !o.rollout.ended(before):
		return isTrue(operatorv1alpha1.ReasonAgentsRollout, o.rollout.message())
	}
	return isFalse(operatorv1alpha1.ReasonAgentsRolledOut, o.rollout.message())
}

func removing(o *observation, done outcome) metav1.Condition {
	owned := o.owned()
	switch {
	case done.users.any():
		return isTrue(operatorv1alpha1.ReasonVolumesInUse, "the removal waits for volumes that are in use")
	case done.err != nil:
		return isTrue(operatorv1alpha1.ReasonRemovalFailed, "the removal is retried")
	case len(owned) > 0:
		last := owned[len(owned)-1]
		return isTrue(operatorv1alpha1.ReasonRemoved,
			fmt.Sprintf("the removal waits for the deletion of %s %s", last.Kind, last.Name))
	case done.moving != "":
		return isTrue(operatorv1alpha1.ReasonRemoved, "the removal waits for the deletion of DaemonSet "+done.moving)
	}
	return isFalse(operatorv1alpha1.ReasonRemoved, "all components are removed")
}

func degraded(o *observation, done outcome, stalled string) metav1.Condition {
	daemonSet := client.ObjectKeyFromObject(o.rollout.daemonSet)
	switch {
	case done.beside():
		return isTrue(operatorv1alpha1.ReasonOtherOperatorRunning, besideMessage(o.config, done))
	case done.foreign != "":
		return isTrue(operatorv1alpha1.ReasonForeignObject, done.foreign)
	case done.users.any():
		return isTrue(operatorv1alpha1.ReasonVolumesInUse, volumesInUseMessage(o.config, done))
	case done.deselected.any():
		return isTrue(operatorv1alpha1.ReasonAgentsInUse,
			"agents stay where they are, because listener volumes are in use on nodes that spec.nodeAgent "+
				"no longer selects, by its node selector, tolerations, affinity or placement; change it, or delete "+
				"the Pods there: "+done.deselected.String()+done.meanwhile())
	case done.err != nil && o.state == operatorv1alpha1.Removed:
		return isTrue(operatorv1alpha1.ReasonRemovalFailed, done.err.Error())
	case done.err != nil:
		return isTrue(operatorv1alpha1.ReasonApplyFailed, done.err.Error())
	case stalled == operatorv1alpha1.ReasonAgentsNotCreated:
		return isTrue(stalled, fmt.Sprintf("of the agents of %d nodes, %d are not created; see the events of "+
			"DaemonSet %s; if pod security rejects them: the namespace has to admit host path volumes, by the label "+
			"pod-security.kubernetes.io/enforce=privileged; if security context constraints of OpenShift do: kubectl "+
			"listener doctor names the missing permission",
			o.rollout.daemonSet.Status.DesiredNumberScheduled, o.rollout.uncreated(), daemonSet))
	case stalled != "":
		return isTrue(stalled,
			fmt.Sprintf("%s, for more than %.0f minutes; see the Pods and events of DaemonSet %s", o.rollout.message(),
				rolloutTimeout.Minutes(), daemonSet))
	case len(o.otherConfinements) > 0:
		return isTrue(operatorv1alpha1.ReasonOtherConfinement, "policies do not confine the operator as intended: "+
			strings.Join(o.otherConfinements, ". "))
	}
	return undegraded(o)
}

// undegraded returns the condition that no problem is known, with what may become one.
func undegraded(o *observation) metav1.Condition {
	if o.resolverDomain == "" || o.clusterDomain == o.resolverDomain {
		return isFalse(operatorv1alpha1.ReasonAsExpected, "no problem is known")
	}
	return isFalse(operatorv1alpha1.ReasonOtherClusterDomain, fmt.Sprintf(
		"addresses inside the cluster have spec.clusterDomain, %s, and the domain of the operator's resolver is %s: "+
			"see that the DNS of the cluster serves the former, or remove the field", o.clusterDomain,
		o.resolverDomain))
}

// meanwhile returns what a message says in addition about the error of a reconciliation that waits, or "".
func (o outcome) meanwhile() string {
	if o.err == nil {
		return ""
	}
	return "; meanwhile: " + o.err.Error()
}

func besideMessage(config *operatorv1alpha1.ListenerOperator, done outcome) string {
	text := fmt.Sprintf("Stackable's listener operator is running: %s; until it is uninstalled, this operator writes "+
		"nothing but this status; then it goes on by itself: see "+version.Link("docs/moving-over.md"),
		message.List(done.stackable.Names()))
	if dir := done.stackable.KubeletDir; dir != "" && dir != config.Spec.NodeAgent.KubeletDir {
		text += "; its kubelet directory is " + dir + ": set spec.nodeAgent.kubeletDir before"
	}
	return text
}

func volumesInUseMessage(config *operatorv1alpha1.ListenerOperator, done outcome) string {
	message := "listener volumes are in use; delete what uses them, or set managementState to Managed again: "
	if !config.DeletionTimestamp.IsZero() {
		message = "the deletion waits, because listener volumes are in use; if it is a mistake, see " +
			version.Link("docs/configuration.md") + "; otherwise, delete what uses them: "
	}
	return message + done.users.String() + done.meanwhile()
}

// upgradeable returns the condition that the operator may be replaced by another version. A problem does not prevent
// that, because an upgrade may resolve it, nor does a rollout that timed out, for which one broken node is enough.
func upgradeable(o *observation, progressing metav1.Condition, stalled string) metav1.Condition {
	switch {
	case progressing.Status == metav1.ConditionTrue && o.state == operatorv1alpha1.Removed:
		return isFalse(progressing.Reason, "components are being removed: "+progressing.Message)
	case progressing.Reason == operatorv1alpha1.ReasonAgentsRollout && stalled == "":
		return isFalse(progressing.Reason, "the agents are still being rolled out: "+progressing.Message)
	}
	return isTrue(operatorv1alpha1.ReasonAsExpected, "the operator may be upgraded")
}

func (r *Reconciler) writeStatus(ctx context.Context, config *operatorv1alpha1.ListenerOperator,
	status operatorv1alpha1.ListenerOperatorStatus) error {
	if deleted := !config.DeletionTimestamp.IsZero() && len(config.Finalizers) == 0; deleted ||
		reflect.DeepEqual(config.Status, status) {
		return nil
	}
	if sent, err := r.applier.ApplyStatus(ctx, config, &status, ""); err != nil || !sent {
		return err
	}
	log.FromContext(ctx).Info("Updated status", "nodeAgent", status.NodeAgent)
	before := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	after := meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionDegraded)
	if before == nil && after.Status == metav1.ConditionTrue || before != nil && before.Reason != after.Reason {
		r.events.Eventf(config, nil, reasons.EventType(after.Reason), after.Reason, "Reconcile", "%s", after.Message)
	}
	return nil
}

func (r *Reconciler) reportUpgradeable(ctx context.Context, status operatorv1alpha1.ListenerOperatorStatus) error {
	if r.OperatorCondition == "" {
		return nil
	}
	return olmupgrade.Report(ctx, r.apiReader, r.applier, r.key(r.OperatorCondition),
		*meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionUpgradeable))
}
