package write

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
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

type reporter struct {
	statuses *apply.Applier
	events   events.EventRecorder
}

func (r *reporter) report(ctx context.Context, s *observe.Snapshot, p *decide.Plan, o *decide.Outcome,
	after *listenersv1alpha1.ListenerStatus) error {
	before := decide.OwnStatus(s.Listener)
	if s.Listener.Status != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	if sent, err := r.statuses.ApplyStatus(ctx, s.Listener, after, ""); err != nil || !sent {
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
func (r *reporter) conditionEvents(s *observe.Snapshot, o *decide.Outcome, before,
	after *listenersv1alpha1.ListenerStatus) {
	for _, condition := range after.Conditions {
		other := "" // the reason of what is wrong although the condition is true
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == listenersv1alpha1.ListenerReady:
			other = cmp.Or(o.Idle.Reason, o.Addresses.Desired.Reason)
		case condition.Type == listenersv1alpha1.ListenerAccepted:
			other, _ = decide.Warning(s)
		}
		reason := cmp.Or(other, condition.Reason)
		last := ptr.Deref(meta.FindStatusCondition(before.Conditions, condition.Type), metav1.Condition{})
		if !conditionChanged(last, condition, other != "", isExpected(reason, o)) {
			continue
		}
		r.events.Eventf(s.Listener, nil, reasons.EventType(reason), reason, "Reconcile", "%s",
			message.Printable(condition.Message, message.MaxEvent))
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
	}
	return (after.Status != metav1.ConditionTrue || warns) && before.Message != after.Message
}

// isExpected reports whether nearly every new Listener has a condition with this reason, at first or soon.
func isExpected(reason string, o *decide.Outcome) bool {
	return reason == listenersv1alpha1.ReasonAccepted || reason == listenersv1alpha1.ReasonWaitingForPods ||
		reason == listenersv1alpha1.ReasonAddressesAssigned && o.Addresses.Published.Message == "" &&
			!o.Addresses.Previous
}

// nodePortEvent emits an event if the Service has other node ports than before, unless overrides set them. It
// compares statuses, and so does not depend on which process applied the Service.
func (r *reporter) nodePortEvent(s *observe.Snapshot, p *decide.Plan, o *decide.Outcome, before,
	after *listenersv1alpha1.ListenerStatus) {
	last := observe.LastNodePorts(*before)
	if len(last) == 0 {
		last = s.Remembered.NodePorts
	}
	if len(last) == 0 || p.Service.Desired == nil {
		return
	}
	ports, fixed := maps.Clone(after.NodePorts), exposure.FixedNodePorts(p.Service.Desired)
	maps.DeleteFunc(ports, func(name string, _ int32) bool { return fixed[name] != 0 })
	changes := otherNumbers("%s", last, ports, o.Written.RejectedNodePorts)
	if len(changes) == 0 {
		return
	}
	users := "clients have to use"
	if s.Class.TargetsNodePorts() {
		users += ", and programs have to listen on"
	}
	text := fmt.Sprintf("Service %s has other node ports than before, which %s: %s", s.ServiceKey(), users,
		strings.Join(changes, "; "))
	r.events.Eventf(s.Listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNodePortsChanged, "Reconcile",
		"%s", message.Printable(text, message.MaxEvent))
}

// restoredEvent says of a Listener without a status, as backups are restored, that other addresses may differ, and when
// it gets its Service, which other numbers than the remembered ones that has.
func (r *reporter) restoredEvent(s *observe.Snapshot, o *decide.Outcome, before,
	after *listenersv1alpha1.ListenerStatus) {
	if s.Listener.Annotations[names.AnnotationNumbers] != "" && s.Listener.Status == nil {
		r.events.Eventf(s.Listener, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonRestored, "Reconcile",
			"comes from a backup: it gets the same ports and cluster IPs if they are free; addresses of nodes and "+
				"load balancers are those of this cluster")
	}
	var changes []string
	if before.ServiceName == nil && o.Written.Objects.Service != nil && s.Class != nil {
		changes = changedNumbers(s, o, after)
	}
	// The backup had ports of a Gateway.
	if len(before.IngressAddresses) == 0 && len(s.Remembered.Addresses) > 0 && len(o.Addresses.Desired.Addresses) > 0 {
		changes = append(changes, otherNumbers("port %s", s.Remembered.Addresses[0].Ports,
			o.Addresses.Desired.Addresses[0].Ports, nil)...)
	}
	if len(changes) > 0 {
		text := "the Listener has other numbers than before, because other objects have these, or the class does not " +
			"allow them: " + strings.Join(changes, "; ")
		r.events.Eventf(s.Listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNumbersChanged, "Reconcile",
			"%s", message.Printable(text, message.MaxEvent))
	}
}

// changedNumbers describes which ports at a shared address and cluster IPs are not the remembered ones.
func changedNumbers(s *observe.Snapshot, o *decide.Outcome,
	after *listenersv1alpha1.ListenerStatus) (changes []string) {
	changes = otherNumbers("port %s at the shared address", s.Remembered.SharedPorts, after.SharedPorts, nil)
	if now := o.Written.Objects.Service.Spec.ClusterIPs; s.Class.Spec.ClusterIPs != nil &&
		len(s.Remembered.ClusterIPs) > 0 && !slices.Equal(now, s.Remembered.ClusterIPs) {
		changes = append(changes, fmt.Sprintf("cluster IP: %s instead of %s", strings.Join(now, ", "),
			strings.Join(s.Remembered.ClusterIPs, ", ")))
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
