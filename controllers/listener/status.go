package listener

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/summary"
)

// report updates the status if it differs, and emits events for changed conditions.
func (r *Reconciler) report(ctx context.Context, o *observed, a addresses, refusal *exposure.Refusal, ensureErr error) error {
	before := ownStatus(o.listener)
	after := desiredStatus(o, a, before, refusal, ensureErr)
	if o.listener.Status != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	if sent, err := r.statuses.ApplyStatus(ctx, o.listener, after); err != nil || !sent {
		return err
	}
	log.FromContext(ctx).Info("Updated the status", "addresses", len(after.IngressAddresses))
	if len(before.IngressAddresses) > 0 && !reflect.DeepEqual(before.IngressAddresses, after.IngressAddresses) {
		addressChanges.Inc()
	}
	r.emitEvents(o, a, before, after)
	r.emitNodePortEvent(o, before, after)
	return nil
}

// ownStatus returns the status of a Listener without the conditions of other controllers.
func ownStatus(listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerStatus {
	if listener.Status == nil {
		return &listenersv1alpha1.ListenerStatus{}
	}
	status := *listener.Status
	status.Conditions = nil
	for _, t := range []string{listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady} {
		if c := meta.FindStatusCondition(listener.Status.Conditions, t); c != nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
	return &status
}

// desiredStatus returns the status of a Listener. If the API server neither accepted nor rejected the objects,
// conditions and observed generation do not change, and neither do the addresses if there is no Service.
func desiredStatus(o *observed, a addresses, before *listenersv1alpha1.ListenerStatus, refusal *exposure.Refusal, ensureErr error) *listenersv1alpha1.ListenerStatus {
	status := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	unanswered := ensureErr != nil && refusal == nil
	reportAddresses(status, o, a, before, refusal, unanswered)
	status.Conditions = append(status.Conditions, before.Conditions...)
	if unanswered {
		status.ObservedGeneration, status.KeptClassName = before.ObservedGeneration, before.KeptClassName
		status.Summary = before.Summary
		if o.service != nil {
			status.Summary = summarize(o, status, before)
		}
		return status
	}
	status.ObservedGeneration = o.listener.Generation
	if o.kept {
		status.KeptClassName = o.class.Name
	}
	for _, c := range []metav1.Condition{acceptedCondition(o, refusal), readyCondition(o, a, status, refusal)} {
		c.ObservedGeneration = o.listener.Generation
		c.Message = message.Printable(c.Message, message.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	status.Summary = summarize(o, status, before)
	return status
}

// summarize returns the summary of a status. The nodes of the previous one stay while the class does not exist, as the
// addresses do.
func summarize(o *observed, status, before *listenersv1alpha1.ListenerStatus) listenersv1alpha1.ListenerSummary {
	s := listenersv1alpha1.ListenerSummary{Address: summary.Address(status.IngressAddresses), Reason: rootReason(status.Conditions)}
	switch {
	case len(status.IngressAddresses) == 0:
	case o.class == nil:
		s.Nodes = before.Summary.Nodes
	case status.NodePorts != nil || o.backend.Scope(o.class) == listenersv1alpha1.ListenerScopeNode:
		names := make([]string, len(o.nodes))
		for i, node := range o.nodes {
			names[i] = node.Name
		}
		s.Nodes = summary.Names(names)
	}
	return s
}

// rootReason returns the reason of the first condition that is false, or else that of the last one.
func rootReason(conditions []metav1.Condition) (reason string) {
	for _, kind := range []string{listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			continue
		}
		if reason = c.Reason; c.Status == metav1.ConditionFalse {
			break
		}
	}
	return reason
}

// reportAddresses sets the fields of the status that describe the Service and its addresses. unanswered states that the
// API server neither accepted nor rejected the objects.
func reportAddresses(status *listenersv1alpha1.ListenerStatus, o *observed, a addresses, before *listenersv1alpha1.ListenerStatus, refusal *exposure.Refusal, unanswered bool) {
	switch {
	case o.service != nil:
		status.ServiceName = ptr.To(o.service.Name)
	case unanswered:
		status.ServiceName = before.ServiceName
	}
	switch {
	case o.class == nil && o.service != nil && !o.serviceTerminating(), o.service == nil && unanswered:
		status.NodePorts, status.IPFamilies = before.NodePorts, before.IPFamilies
		status.IngressAddresses = append(status.IngressAddresses, before.IngressAddresses...)
	case refusal == nil && o.restoresNodePorts():
		status.NodePorts, status.IPFamilies = before.NodePorts, before.IPFamilies
	default:
		status.NodePorts, status.IPFamilies = a.published.NodePorts, o.ipFamilies()
		status.IngressAddresses = append(status.IngressAddresses, a.published.Addresses...)
	}
	status.SharedPorts = o.sharedPorts
	status.Endpoints = endpoints(status.IngressAddresses)
	if len(status.NodePorts) == 0 {
		status.LastNodePorts = lastNodePorts(before)
	}
}

// maxEndpoints is how many addresses are in the endpoints of a status. A client that discovers the others needs a few,
// and a Listener may have as many addresses as the cluster has nodes.
const maxEndpoints = 10

// endpoints returns the first addresses as host:port, by the names of the ports, or nil without addresses.
func endpoints(addresses []listenersv1alpha1.IngressAddress) map[string]string {
	var all map[string]string
	for _, a := range addresses[:min(len(addresses), maxEndpoints)] {
		for name, port := range a.Ports {
			endpoint := net.JoinHostPort(a.Address, strconv.Itoa(int(port)))
			switch {
			case all == nil:
				all = map[string]string{name: endpoint}
			case all[name] == "":
				all[name] = endpoint
			default:
				all[name] += "," + endpoint
			}
		}
	}
	return all
}

// ipFamilies returns the IP families of the Service if the class chooses them.
func (o *observed) ipFamilies() []corev1.IPFamily {
	if o.class == nil || o.service == nil || !o.class.ChoosesIPFamilies() {
		return nil
	}
	return o.service.Spec.IPFamilies
}

// restoresNodePorts reports whether the Service is being deleted, and will be created again with its node ports. These
// stay in the status, so that the addresses of Pods do not change in the meantime.
func (o *observed) restoresNodePorts() bool {
	return o.serviceTerminating() && o.backend.PlainService() && o.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
}

func acceptedCondition(o *observed, refusal *exposure.Refusal) metav1.Condition {
	if refusal != nil {
		return metav1.Condition{
			Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: refusal.Reason, Message: refusal.Message,
		}
	}
	notes := []string{fmt.Sprintf("Service %s follows ListenerClass %s", client.ObjectKeyFromObject(o.listener), o.class.Name)}
	if _, warning := o.warning(); warning != "" {
		notes = append(notes, warning)
	}
	notes = append(notes, exposure.IgnoredSettings(o.class)...) // which an event on the class reports, too
	return metav1.Condition{
		Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAccepted, Message: strings.Join(notes, "; "),
	}
}

// warning returns what the administrator should know of a Listener that is accepted, and the reason of its event, or
// empty strings.
func (o *observed) warning() (reason, message string) {
	if o.class == nil {
		return "", ""
	}
	if o.kept {
		return listenersv1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf("the class no longer allows namespace %s, which new Listeners and claims cannot use it in; "+
			"this Listener keeps it", o.listener.Namespace)
	}
	if ignored := exposure.IgnoredOverrides(o.listener); len(ignored) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides, fmt.Sprintf("ignored, because metadata.namespace is not set: %s; set it to %s",
			strings.Join(ignored, ", "), o.listener.Namespace)
	}
	if unknown := exposure.UnknownOverrides(o.class); len(unknown) > 0 {
		return listenersv1alpha1.ReasonInvalidOverrides,
			"a Service does not have these fields of spec.serviceOverrides of the class, which are ignored: " + strings.Join(unknown, ", ")
	}
	return "", ""
}

func readyCondition(o *observed, a addresses, status *listenersv1alpha1.ListenerStatus, refusal *exposure.Refusal) metav1.Condition {
	if len(status.IngressAddresses) > 0 {
		message := "reachable at " + status.IngressAddresses[0].Address
		if more := len(status.IngressAddresses) - 1; more > 0 {
			message += fmt.Sprintf(" and %d more", more)
		}
		reason := listenersv1alpha1.ReasonAddressesAssigned
		switch {
		case o.idleReason != "":
			reason, message = o.idleReason, o.idleMessage+"; "+message
		case a.previous:
			message += fmt.Sprintf(" through the previous exposure, until that of ListenerClass %s is complete: %s", o.class.Name, a.desired.Message)
		case a.published.Message != "":
			message += "; left out: " + a.published.Message
		}
		return metav1.Condition{
			Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		}
	}
	reason, message := a.desired.Reason, a.desired.Message
	switch {
	case refusal != nil:
		reason, message = listenersv1alpha1.ReasonNotAccepted, "see the condition Accepted"
	case o.serviceTerminating():
		reason, message = listenersv1alpha1.ReasonServiceTerminating, "Service "+client.ObjectKeyFromObject(o.listener).String()+" is being deleted, and will then be "+
			"created again; if the deletion does not finish, check the finalizers of the Service"
	}
	return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// emitEvents emits an event for each changed condition. If a Listener is ready although addresses are missing, or
// accepted with a warning, the event has the reason for that.
func (r *Reconciler) emitEvents(o *observed, a addresses, before, after *listenersv1alpha1.ListenerStatus) {
	for _, condition := range after.Conditions {
		other := "" // the reason of what is wrong although the condition is true
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == listenersv1alpha1.ListenerReady:
			other = cmp.Or(o.idleReason, a.desired.Reason)
		case condition.Type == listenersv1alpha1.ListenerAccepted:
			other, _ = o.warning()
		}
		expected := isExpected(cmp.Or(other, condition.Reason), a)
		if !conditionChanged(meta.FindStatusCondition(before.Conditions, condition.Type), &condition, other != "", expected) {
			continue
		}
		reason, eventType := cmp.Or(other, condition.Reason), corev1.EventTypeNormal
		warns := condition.Type == listenersv1alpha1.ListenerAccepted && (condition.Status == metav1.ConditionFalse || other != "")
		if warns || isMistake(reason) || reason == a.desired.Reason && a.desired.NeedsAction {
			eventType = corev1.EventTypeWarning
		}
		r.Events.Eventf(o.listener, nil, eventType, reason, "Reconcile", "%s", message.Printable(condition.Message, message.MaxEvent))
	}
}

// conditionChanged reports whether a condition changed in a way that users should be informed of: its status or reason,
// or its message if it describes what is missing. A Listener that is not ready because it is not accepted needs no
// second event, and a new one, or one whose Pods start, none that says nothing but what is expected: each event is a
// write, and the condition says the same. before is nil if the condition is new.
func conditionChanged(before, after *metav1.Condition, warns, expected bool) bool {
	switch {
	case after.Reason == listenersv1alpha1.ReasonNotAccepted:
		return false
	case expected && (before == nil || before.Reason == listenersv1alpha1.ReasonWaitingForPods):
		return false
	case before == nil || before.Status != after.Status || before.Reason != after.Reason:
		return true
	default:
		return (after.Status != metav1.ConditionTrue || warns) && before.Message != after.Message
	}
}

// isExpected reports whether nearly every new Listener has a condition with this reason, at first or soon.
func isExpected(reason string, a addresses) bool {
	switch reason {
	case listenersv1alpha1.ReasonAccepted, listenersv1alpha1.ReasonWaitingForPods:
		return true
	case listenersv1alpha1.ReasonAddressesAssigned:
		return a.published.Message == "" && !a.previous
	default:
		return false
	}
}
