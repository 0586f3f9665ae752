package listener

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// outcome is what the status of a Listener follows from, apart from the snapshot. Its conditions Accepted and Ready are
// computed in this file; NodesAvailable is one of package lostnodes.
type outcome struct {
	*written
	chosenAddresses
	idle
	placement exposure.Placement
	now       metav1.Time
}

// refused returns why the Listener is not accepted, or nil.
func (o *outcome) refused() *exposure.Refusal { return cmp.Or(o.refusal, o.taken) }

// undecided reports whether the API server has neither accepted nor rejected the plan.
func (o *outcome) undecided() bool { return o.err != nil && o.refusal == nil }

// keptPeriod is how long the Listener of an ephemeral claim is kept for the next Pod of the same name.
const keptPeriod = 10 * time.Minute

// keptNote is what the condition Ready says about a Listener that is kept.
var keptNote = fmt.Sprintf("; kept for the next Pod of the same name, and deleted if there is none for %d minutes", int(keptPeriod.Minutes()))

func acceptedCondition(s *snapshot, o *outcome) metav1.Condition {
	if refusal := o.refused(); refusal != nil {
		return metav1.Condition{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: refusal.Reason, Message: refusal.Message}
	}
	notes := []string{fmt.Sprintf("Service %s follows ListenerClass %s", s.serviceKey(), s.class.Name)}
	reason, text := warning(s)
	if text != "" {
		notes = append(notes, text)
	}
	message := strings.Join(append(notes, exposure.IgnoredSettings(s.class)...), "; ") // which an event on the class reports, too
	return metav1.Condition{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: cmp.Or(reason, listenersv1alpha1.ReasonAccepted), Message: message}
}

// warning returns what the administrator should know of an accepted Listener, and the reason of its event, if anything.
func warning(s *snapshot) (reason, message string) {
	if s.kept {
		return listenersv1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf("the class no longer allows namespace %s, which new Listeners and claims cannot use it in; "+
			"this Listener keeps it", s.listener.Namespace)
	}
	if names := exposure.RepeatedPorts(s.listener); len(names) > 0 {
		return listenersv1alpha1.ReasonDuplicatePortName, "several ports have the same name, of which only the last one is exposed: " +
			strings.Join(names, ", ") + "; give each port a name of its own"
	}
	if ignored := exposure.IgnoredOverrides(s.listener); len(ignored) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides, fmt.Sprintf("ignored, because metadata.namespace is not set: %s; set it to %s",
			strings.Join(ignored, ", "), s.listener.Namespace)
	}
	if unknown := exposure.UnknownOverrides(s.class); len(unknown) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides,
			"a Service does not have these fields of spec.serviceOverrides of the class, which are ignored: " + strings.Join(unknown, ", ")
	}
	return "", ""
}

// placementReason returns the reason of a Listener that has its addresses, and what is wrong with its Pods and nodes.
func placementReason(p *exposure.Placement) (reason, note string) {
	switch {
	case len(p.Outdated) > 0:
		return listenersv1alpha1.ReasonPodsOutdated, "; these Pods started with other addresses, and need a restart only if their programs use the address that they read at their start: " +
			columns.Names(p.Outdated)
	case len(p.EmptyNodes) > 0:
		return listenersv1alpha1.ReasonNodesWithoutPods, "; nothing responds at those of nodes where no Pod mounts it, and which do not forward to others: " +
			columns.Names(p.EmptyNodes)
	default:
		return listenersv1alpha1.ReasonAddressesAssigned, ""
	}
}

// publishedReason returns the reason and the message of a Listener that publishes addresses.
func publishedReason(s *snapshot, o *outcome, status *listenersv1alpha1.ListenerStatus) (reason, message string) {
	const reachable = "reachable at "
	message = reachable + status.IngressAddresses[0].Address
	if more := len(status.IngressAddresses) - 1; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case o.previous:
		reason = listenersv1alpha1.ReasonPreviousExposure // by which new Pods wait
		message += fmt.Sprintf(" through the previous exposure, until that of ListenerClass %s is complete: %s", s.class.Name, o.desired.Message)
	case o.idleReason != "":
		reason, message = o.idleReason, o.idleMessage+"; its addresses are kept: "+strings.TrimPrefix(message, reachable)
	case o.published.Message != "":
		message += "; left out: " + o.published.Message
	}
	if reason == "" {
		placed, note := placementReason(&o.placement)
		if reason = placed; note == "" {
			reason = cmp.Or(o.published.Reason, placed)
		}
		message += note
	}
	if nodes, all := notReady(&o.placement); len(nodes) > 0 && !all {
		message += "; those of nodes that are not ready may not respond: " + columns.Names(nodes)
	}
	if s.awaiting && reason != listenersv1alpha1.ReasonAddressesAssigned { // a Pod that is replaced changes nothing
		message += keptNote
	}
	return reason, message
}

func readyCondition(s *snapshot, o *outcome, status *listenersv1alpha1.ListenerStatus) metav1.Condition {
	if len(status.IngressAddresses) > 0 {
		reason, message := publishedReason(s, o, status)
		return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	reason, message := o.desired.Reason, o.desired.Message
	switch {
	case o.refused() != nil:
		reason, message = listenersv1alpha1.ReasonNotAccepted, "see the condition Accepted"
	case s.serviceTerminating():
		reason, message = listenersv1alpha1.ReasonServiceTerminating, "Service "+s.serviceKey().String()+" is being deleted, and will then be "+
			"created again; if the deletion does not finish, check the finalizers of the Service"
	}
	if s.awaiting {
		message += keptNote
	}
	return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
