package decide

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Outcome is what the status of a Listener follows from, apart from the snapshot. Its conditions Accepted and Ready are
// computed in this file; NodesAvailable is one of package lostnodes.
type Outcome struct {
	Written   *observe.Written
	Addresses Addresses
	Idle      Idle
	Placement exposure.Placement
	Now       metav1.Time
}

// Refused returns why the Listener is not accepted, or nil.
func (o *Outcome) Refused() *exposure.Refusal { return cmp.Or(o.Written.Refusal, o.Addresses.Taken) }

// Undecided reports whether the API server has neither accepted nor rejected the plan.
func (o *Outcome) Undecided() bool { return o.Written.Err != nil && o.Written.Refusal == nil }

// OrphanedPeriod is how long a Listener is kept for the next Pod of its name after what controls such Pods was deleted.
const OrphanedPeriod = 10 * time.Minute

func acceptedCondition(s *observe.Snapshot, o *Outcome) metav1.Condition {
	if refusal := o.Refused(); refusal != nil {
		return metav1.Condition{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse,
			Reason: refusal.Reason, Message: refusal.Message}
	}
	notes := []string{fmt.Sprintf("Service %s follows ListenerClass %s", s.ServiceKey(), s.Class.Name)}
	reason, text := Warning(s)
	if text != "" {
		notes = append(notes, text)
	}
	// An event on the class reports ignored settings, too.
	message := strings.Join(append(notes, exposure.IgnoredSettings(s.Class)...), "; ")
	return metav1.Condition{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue,
		Reason: cmp.Or(reason, listenersv1alpha1.ReasonAccepted), Message: message}
}

// Warning returns what the administrator should know of an accepted Listener, and the reason of its event, if anything.
func Warning(s *observe.Snapshot) (reason, message string) {
	if s.KeepsClass {
		return listenersv1alpha1.ReasonNamespaceNotAllowed,
			fmt.Sprintf("the class no longer allows namespace %s, which new Listeners and claims cannot use it in; "+
				"this Listener keeps it", s.Listener.Namespace)
	}
	if names := exposure.RepeatedPorts(s.Listener); len(names) > 0 {
		return listenersv1alpha1.ReasonDuplicatePortName,
			"several ports have the same name, of which only the last one is exposed: " +
				strings.Join(names, ", ") + "; give each port a name of its own"
	}
	if ignored := exposure.IgnoredOverrides(s.Listener); len(ignored) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides,
			fmt.Sprintf("ignored, because metadata.namespace is not set: %s; set it to %s",
				strings.Join(ignored, ", "), s.Listener.Namespace)
	}
	if unknown := exposure.UnknownOverrides(s.Class); len(unknown) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides,
			"a Service does not have these fields of spec.serviceOverrides of the class, which are ignored: " +
				strings.Join(unknown, ", ")
	}
	return "", ""
}

// placementReason returns the reason of a Listener that has its addresses, and what is wrong with its Pods and nodes.
func placementReason(p *exposure.Placement) (reason, note string) {
	switch {
	case len(p.Outdated) > 0:
		return listenersv1alpha1.ReasonPodsOutdated,
			"; these Pods started with other addresses, and need a restart only if their programs use the address " +
				"that they read at their start: " + columns.Names(p.Outdated)
	case len(p.EmptyNodes) > 0:
		return listenersv1alpha1.ReasonNodesWithoutPods,
			"; nothing responds at those of nodes where no Pod mounts it, and which do not forward to others: " +
				columns.Names(p.EmptyNodes)
	}
	return listenersv1alpha1.ReasonAddressesAssigned, ""
}

// publishedReason returns the reason and the message of a Listener that publishes addresses.
func publishedReason(s *observe.Snapshot, o *Outcome,
	status *listenersv1alpha1.ListenerStatus) (reason, message string) {
	const reachable = "reachable at "
	message = reachable + status.IngressAddresses[0].Address
	if more := len(status.IngressAddresses) - 1; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case o.Addresses.Previous:
		reason = listenersv1alpha1.ReasonPreviousExposure // by which new Pods wait
		message += fmt.Sprintf(" through the previous exposure, until that of ListenerClass %s is complete: %s",
			s.Class.Name, o.Addresses.Desired.Message)
	case o.Idle.Reason != "":
		reason, message = o.Idle.Reason, o.Idle.Message+"; its addresses are kept: "+
			strings.TrimPrefix(message, reachable)
	case o.Addresses.Published.Message != "":
		message += "; left out: " + o.Addresses.Published.Message
	}
	if reason == "" {
		placed, note := placementReason(&o.Placement)
		if reason = placed; note == "" {
			reason = cmp.Or(o.Addresses.Published.Reason, placed)
		}
		message += note
	}
	if nodes, all := NotReady(&o.Placement); len(nodes) > 0 && !all {
		message += "; those of nodes that are not ready may not respond: " + columns.Names(nodes)
	}
	if s.Awaiting && reason != listenersv1alpha1.ReasonAddressesAssigned { // a Pod that is replaced changes nothing
		message += keptNote(s)
	}
	return reason, message
}

func readyCondition(s *observe.Snapshot, o *Outcome, status *listenersv1alpha1.ListenerStatus) metav1.Condition {
	if len(status.IngressAddresses) > 0 {
		reason, message := publishedReason(s, o, status)
		return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: reason,
			Message: message}
	}
	reason, message := o.Addresses.Desired.Reason, o.Addresses.Desired.Message
	switch {
	case o.Refused() != nil:
		reason, message = listenersv1alpha1.ReasonNotAccepted, "see the condition Accepted"
	case s.ServiceTerminating():
		reason, message = listenersv1alpha1.ReasonServiceTerminating, "Service "+s.ServiceKey().String()+
			" is being deleted, and will then be "+
			"created again; if the deletion does not finish, check the finalizers of the Service"
	}
	if s.Awaiting {
		message += keptNote(s)
	}
	return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: reason,
		Message: message}
}
