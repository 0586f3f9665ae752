package listener

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
)

// report writes the status if it changes, and tells users of changed conditions.
func (r *Reconciler) report(ctx context.Context, o *observed, e exposed, refusal *exposure.Refusal, ensureErr error) error {
	before := ownStatus(o.listener)
	after := describe(o, e, before, refusal, ensureErr)
	if o.listener.Status != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	if err := r.statuses.ApplyStatus(ctx, o.listener, after); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Reported status", "addresses", len(after.IngressAddresses))
	r.tell(o, e, before, after)
	return nil
}

// ownStatus returns the status that a Listener has, without conditions of others.
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

// describe returns the status of a Listener. When the API server did not say yes or no to what was applied, conditions
// and observed generation stay as they were.
func describe(o *observed, e exposed, before *listenersv1alpha1.ListenerStatus, refusal *exposure.Refusal, ensureErr error) *listenersv1alpha1.ListenerStatus {
	status := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	if o.service != nil {
		status.ServiceName = ptr.To(o.service.Name)
	}
	if o.class == nil && o.service != nil && !o.terminating() {
		status.NodePorts = before.NodePorts
		status.IngressAddresses = append(status.IngressAddresses, before.IngressAddresses...)
	} else {
		status.NodePorts = e.used.NodePorts
		status.IngressAddresses = append(status.IngressAddresses, e.used.Addresses...)
	}
	status.Conditions = append(status.Conditions, before.Conditions...)
	if ensureErr != nil && refusal == nil {
		status.ObservedGeneration = before.ObservedGeneration
		return status
	}
	status.ObservedGeneration = o.listener.Generation
	for _, c := range []metav1.Condition{accepted(o, refusal), ready(o, e, status, refusal)} {
		c.ObservedGeneration = o.listener.Generation
		c.Message = message.Truncate(c.Message, message.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func accepted(o *observed, refusal *exposure.Refusal) metav1.Condition {
	if refusal != nil {
		return metav1.Condition{
			Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: refusal.Reason, Message: refusal.Message,
		}
	}
	return metav1.Condition{
		Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAccepted,
		Message: fmt.Sprintf("Service %s follows ListenerClass %s", client.ObjectKeyFromObject(o.listener), o.class.Name),
	}
}

func ready(o *observed, e exposed, status *listenersv1alpha1.ListenerStatus, refusal *exposure.Refusal) metav1.Condition {
	if len(status.IngressAddresses) > 0 {
		message := "reachable at " + status.IngressAddresses[0].Address
		if more := len(status.IngressAddresses) - 1; more > 0 {
			message += fmt.Sprintf(" and %d more", more)
		}
		switch {
		case e.before:
			message += fmt.Sprintf(" as before, and not yet as ListenerClass %s says: %s", o.class.Name, e.wanted.Message)
		case e.used.Message != "":
			message += "; left out: " + e.used.Message
		}
		return metav1.Condition{
			Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAddressesAssigned, Message: message,
		}
	}
	reason, message := e.wanted.Reason, e.wanted.Message
	switch {
	case refusal != nil:
		reason, message = listenersv1alpha1.ReasonNotAccepted, "the condition Accepted says what is wrong"
	case o.terminating():
		reason, message = listenersv1alpha1.ReasonServiceTerminating, "Service "+client.ObjectKeyFromObject(o.listener).String()+" is being deleted and will be made "+
			"anew; if that takes long, see which of its finalizers is left"
	}
	return metav1.Condition{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// tell makes an event of each condition that changed, and of what is newly missing although there are addresses.
func (r *Reconciler) tell(o *observed, e exposed, before, after *listenersv1alpha1.ListenerStatus) {
	for _, is := range after.Conditions {
		partly := is.Type == listenersv1alpha1.ListenerReady && is.Status == metav1.ConditionTrue && e.wanted.Reason != ""
		if !news(meta.FindStatusCondition(before.Conditions, is.Type), &is, partly) {
			continue
		}
		reason, kind := is.Reason, corev1.EventTypeNormal
		if partly {
			reason = e.wanted.Reason
		}
		if is.Type == listenersv1alpha1.ListenerAccepted && is.Status == metav1.ConditionFalse || reason == e.wanted.Reason && e.wanted.Warn {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(o.listener, nil, kind, reason, "Reconcile", "%s", message.Truncate(is.Message, message.MaxEvent))
	}
}

// news tells whether users have to hear of a condition: when it changed, and if something is missing also when its
// message did. That a Listener is not ready because it is not accepted is none.
func news(was, is *metav1.Condition, partly bool) bool {
	switch {
	case is.Reason == listenersv1alpha1.ReasonNotAccepted:
		return false
	case was == nil || was.Status != is.Status || was.Reason != is.Reason:
		return true
	default:
		return (is.Status != metav1.ConditionTrue || partly) && was.Message != is.Message
	}
}
