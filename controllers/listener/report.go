package listener

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// reporter writes the status of Listeners, and emits events for what changed.
type reporter struct {
	statuses *apply.Applier
	events   events.EventRecorder
}

// report updates the status if it differs, and emits events for changed conditions.
func (r *reporter) report(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	before, after := ownStatus(s.listener), statusOf(s, o)
	if s.listener.Status != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	if sent, err := r.statuses.ApplyStatus(ctx, s.listener, after, ""); err != nil || !sent {
		return err
	}
	log.FromContext(ctx).Info("Updated the status", "addresses", len(after.IngressAddresses))
	if len(before.IngressAddresses) > 0 && !reflect.DeepEqual(before.IngressAddresses, after.IngressAddresses) {
		addressChanges.Inc()
	}
	r.conditionEvents(s, o, before, after)
	r.nodePortEvent(s, p, o, before, after)
	r.restoredEvent(s, o, before, after)
	return nil
}

// conditionEvents emits an event for each changed condition, which has the reason of a warning in place of its own.
func (r *reporter) conditionEvents(s *snapshot, o *outcome, before, after *listenersv1alpha1.ListenerStatus) {
	for _, condition := range after.Conditions {
		other := "" // the reason of what is wrong although the condition is true
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == listenersv1alpha1.ListenerReady:
			other = cmp.Or(o.idleReason, o.desired.Reason)
		case condition.Type == listenersv1alpha1.ListenerAccepted:
			other, _ = warning(s)
		}
		reason := cmp.Or(other, condition.Reason)
		last := ptr.Deref(meta.FindStatusCondition(before.Conditions, condition.Type), metav1.Condition{})
		if !conditionChanged(last, condition, other != "", isExpected(reason, o)) {
			continue
		}
		r.events.Eventf(s.listener, nil, reasons.EventType(reason), reason, "Reconcile", "%s", message.Printable(condition.Message, message.MaxEvent))
	}
}

// conditionChanged reports whether a change of a condition, from an empty one if it is new, needs an event: one of its
// status or reason, or of its message if that describes what is missing. A Listener that is not accepted needs no other
// event, and one that is new or whose Pods start needs none for what is expected: each is a write, and says the same.
func conditionChanged(before, after metav1.Condition, warns, expected bool) bool {
	switch {
	case after.Reason == listenersv1alpha1.ReasonNotAccepted:
		return false
	case expected && (before.Reason == "" || before.Reason == listenersv1alpha1.ReasonWaitingForPods):
		return false
	case before.Status != after.Status || before.Reason != after.Reason:
		return true
	default:
		return (after.Status != metav1.ConditionTrue || warns) && before.Message != after.Message
	}
}

// isExpected reports whether nearly every new Listener has a condition with this reason, at first or soon.
func isExpected(reason string, o *outcome) bool {
	return reason == listenersv1alpha1.ReasonAccepted || reason == listenersv1alpha1.ReasonWaitingForPods ||
		reason == listenersv1alpha1.ReasonAddressesAssigned && o.published.Message == "" && !o.previous
}

// nodePortEvent emits an event if the Service has other node ports than before, unless overrides set them. It
// compares statuses, and so does not depend on which process applied the Service.
func (r *reporter) nodePortEvent(s *snapshot, p *plan, o *outcome, before, after *listenersv1alpha1.ListenerStatus) {
	last := lastNodePorts(*before)
	if len(last) == 0 {
		last = s.remembered.NodePorts
	}
	if len(last) == 0 || p.service == nil {
		return
	}
	ports, fixed := maps.Clone(after.NodePorts), exposure.FixedNodePorts(p.service)
	maps.DeleteFunc(ports, func(name string, _ int32) bool { return fixed[name] != 0 })
	changes := otherNumbers("%s", last, ports, o.rejectedNodePorts)
	if len(changes) == 0 {
		return
	}
	users := "clients have to use"
	if s.class.TargetsNodePorts() {
		users += ", and programs have to listen on"
	}
	text := fmt.Sprintf("Service %s has other node ports than before, which %s: %s", s.serviceKey(), users, strings.Join(changes, "; "))
	r.events.Eventf(s.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNodePortsChanged, "Reconcile", "%s", message.Printable(text, message.MaxEvent))
}

// restoredEvent says of a Listener without a status, as backups are restored, that other addresses may differ, and when
// it gets its Service, which other numbers than the remembered ones that has.
func (r *reporter) restoredEvent(s *snapshot, o *outcome, before, after *listenersv1alpha1.ListenerStatus) {
	if s.listener.Annotations[names.AnnotationNumbers] != "" && s.listener.Status == nil {
		r.events.Eventf(s.listener, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonRestored, "Reconcile",
			"comes from a backup: it gets the same ports and cluster IPs if they are free; addresses of nodes and load balancers are those of this cluster")
	}
	var changes []string
	if before.ServiceName == nil && o.service != nil && s.class != nil {
		changes = changedNumbers(s, o, after)
	}
	if len(before.IngressAddresses) == 0 && len(s.remembered.Addresses) > 0 && len(o.desired.Addresses) > 0 { // ports of a Gateway
		changes = append(changes, otherNumbers("port %s", s.remembered.Addresses[0].Ports, o.desired.Addresses[0].Ports, nil)...)
	}
	if len(changes) > 0 {
		text := "the Listener has other numbers than before, because other objects have these, or the class does not allow them: " + strings.Join(changes, "; ")
		r.events.Eventf(s.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNumbersChanged, "Reconcile", "%s", message.Printable(text, message.MaxEvent))
	}
}

// changedNumbers describes which ports at a shared address and cluster IPs are not the remembered ones.
func changedNumbers(s *snapshot, o *outcome, after *listenersv1alpha1.ListenerStatus) (changes []string) {
	changes = otherNumbers("port %s at the shared address", s.remembered.SharedPorts, after.SharedPorts, nil)
	if now := o.service.Spec.ClusterIPs; s.class.Spec.ClusterIPs != nil && len(s.remembered.ClusterIPs) > 0 && !slices.Equal(now, s.remembered.ClusterIPs) {
		changes = append(changes, fmt.Sprintf("cluster IP: %s instead of %s", strings.Join(now, ", "), strings.Join(s.remembered.ClusterIPs, ", ")))
	}
	return changes
}

// otherNumbers describes which ports, by name, have other numbers than before, and why, as far as reasons say.
func otherNumbers(description string, before, after map[string]int32, reasons map[string]string) (changes []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		if !known || was == after[name] {
			continue
		}
		change := fmt.Sprintf(description+": %d instead of %d", name, after[name], was)
		if reason, ok := reasons[name]; ok {
			change += " (" + reason + ")"
		}
		changes = append(changes, change)
	}
	return changes
}
