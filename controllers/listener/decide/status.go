package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// OwnStatus returns the status of a Listener without the conditions of other controllers.
func OwnStatus(listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerStatus {
	status := ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return c.Type != listenersv1alpha1.ListenerAccepted && c.Type != listenersv1alpha1.ListenerReady
	})
	return &status
}

// StatusOf returns the status of a Listener. If the API server has not decided about the plan, conditions and observed
// generation do not change, and neither do the addresses if there is no Service.
func StatusOf(s *observe.Snapshot, o *Outcome) *listenersv1alpha1.ListenerStatus {
	before := OwnStatus(s.Listener)
	status := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	setAddresses(status, s, o, before)
	status.Conditions = slices.Clone(before.Conditions)
	status.UnusedSince, status.WaitingFor = before.UnusedSince, before.WaitingFor
	if o.Undecided() {
		status.ObservedGeneration, status.KeptClassName = before.ObservedGeneration, before.KeptClassName
		status.Summary = before.Summary
		if o.Written.Objects.Service != nil {
			status.Summary = summarize(s, o, status, before)
		}
		return status
	}
	status.ObservedGeneration, status.WaitingFor = s.Listener.Generation, waitingFor(o, before)
	if s.KeepsClass {
		status.KeptClassName = s.Class.Name
	}
	for _, c := range []metav1.Condition{acceptedCondition(s, o), readyCondition(s, o, status)} {
		c.ObservedGeneration = s.Listener.Generation
		c.Message = message.Printable(c.Message, message.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if s.Class != nil || s.Awaiting {
		status.UnusedSince = unusedSince(s, o, status, before)
	}
	status.Summary = summarize(s, o, status, before)
	return status
}

// waitingFor returns what the Listener was refused because others have it, or nil. The time stays whoever has it.
func waitingFor(o *Outcome, before *listenersv1alpha1.ListenerStatus) *listenersv1alpha1.WaitingFor {
	refusal := o.Refused()
	if refusal == nil || refusal.WaitingFor == nil {
		return nil
	}
	waiting := *refusal.WaitingFor
	waiting.Since = o.Now
	if last := before.WaitingFor; last != nil && last.Kind == waiting.Kind && last.Value == waiting.Value {
		waiting.Since = last.Since
	}
	return &waiting
}

// DeletedStatus returns the status of a Listener that finalizers keep although its Service is gone.
func DeletedStatus(listener *listenersv1alpha1.Listener, finalizers []string) *listenersv1alpha1.ListenerStatus {
	status := &listenersv1alpha1.ListenerStatus{
		IngressAddresses: []listenersv1alpha1.IngressAddress{}, Conditions: OwnStatus(listener).Conditions,
		ObservedGeneration: listener.Generation,
		Summary:            listenersv1alpha1.ListenerSummary{Reason: listenersv1alpha1.ReasonListenerTerminating},
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse,
		Reason: listenersv1alpha1.ReasonListenerTerminating, ObservedGeneration: listener.Generation,
		Message: message.Printable("the Listener is being deleted, and its Service is gone; it is kept by its "+
			"finalizers: "+columns.Names(finalizers), message.MaxCondition),
	})
	return status
}

// KeptFor returns how long a Listener that is kept for the next Pod of a name still is, or 0 if it is not kept, or
// without limit. obsolete is why the Listener is to be deleted, or empty. orphaned is for how long it has had no owner.
func KeptFor(s *observe.Snapshot, now time.Time, orphaned time.Duration) (left time.Duration, obsolete string) {
	period := keepPeriod(s)
	switch {
	case s.Finished: // the Pod and its ephemeral claim may exist for days
		return 0, "its Pod has finished"
	case !s.Awaiting, period == 0:
		return 0, ""
	case s.Listener.Status == nil || s.Listener.Status.UnusedSince == nil:
		return period, "" // the reconciliation sets it
	}
	left = period - now.Sub(s.Listener.Status.UnusedSince.Time)
	if len(claim.KeepOf(s.Listener).Owners) == 0 {
		left = max(left, OrphanedPeriod-orphaned)
	}
	if left > 0 {
		return min(left, period), ""
	}
	return 0, "there was no Pod of its name for " + duration.HumanDuration(period)
}

// keepPeriod returns how long a kept Listener stays without a Pod, or 0 if that is as long as an owner exists, which
// the garbage collector knows. A backup has no owners.
func keepPeriod(s *observe.Snapshot) time.Duration {
	switch {
	case s.Class != nil && s.Class.Spec.KeepFor != nil:
		return s.Class.Spec.KeepFor.Duration
	case len(claim.KeepOf(s.Listener).Owners) > 0 || s.Listener.Labels[names.LabelRestore] != "":
		return 0
	}
	return OrphanedPeriod
}

func keptNote(s *observe.Snapshot) string {
	note := "; kept for the next Pod of the same name"
	if period := keepPeriod(s); period > 0 {
		return note + ", and deleted if there is none for " + duration.HumanDuration(period)
	}
	return note
}

// unusedSince returns since when no Pod has mounted the Listener, or nil. It changes only with the reason of the
// condition Ready, so that it costs no write: a Pod that is replaced, or mounts the Listener soon, changes neither.
func unusedSince(s *observe.Snapshot, o *Outcome, status, before *listenersv1alpha1.ListenerStatus) *metav1.Time {
	ready := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady)
	switch {
	case len(o.Placement.Mounting) > 0:
		return nil
	case before.UnusedSince != nil:
		return before.UnusedSince
	case ready != nil && (ready.Reason == listenersv1alpha1.ReasonReserved ||
		ready.Reason == listenersv1alpha1.ReasonWaitingForPods),
		s.Awaiting && (s.Class == nil || ready.Reason != listenersv1alpha1.ReasonAddressesAssigned):
		return &o.Now
	}
	return nil
}

// summarize returns the summary of a status. Without a class, the nodes of the previous one stay, as the addresses do.
func summarize(s *observe.Snapshot, o *Outcome, status,
	before *listenersv1alpha1.ListenerStatus) listenersv1alpha1.ListenerSummary {
	summarized := listenersv1alpha1.ListenerSummary{
		Address: columns.Address(status.IngressAddresses), Reason: rootReason(status.Conditions),
		WaitingFor: columns.WaitingFor(status.WaitingFor),
	}
	switch {
	case len(status.IngressAddresses) == 0:
	case s.Class == nil:
		summarized.Nodes = before.Summary.Nodes
	case status.NodePorts != nil || s.Backend.IsNodeScoped(s.Class):
		summarized.Nodes = columns.Names(NodeNames(o.Placement.Nodes))
	}
	return summarized
}

// rootReason returns the reason why the Listener is not accepted or, if it is, the reason of its condition Ready.
func rootReason(conditions []metav1.Condition) string {
	root := listenersv1alpha1.ListenerReady
	if meta.IsStatusConditionFalse(conditions, listenersv1alpha1.ListenerAccepted) {
		root = listenersv1alpha1.ListenerAccepted
	}
	return ptr.Deref(meta.FindStatusCondition(conditions, root), metav1.Condition{}).Reason
}

func setAddresses(status *listenersv1alpha1.ListenerStatus, s *observe.Snapshot, o *Outcome,
	before *listenersv1alpha1.ListenerStatus) {
	if o.Written.Objects.Service != nil {
		status.ServiceName = ptr.To(o.Written.Objects.Service.Name)
	} else if o.Undecided() {
		status.ServiceName = before.ServiceName
	}
	status.UnusedNodes = o.Placement.UnusedNodes
	switch {
	case s.Class == nil && o.Written.Objects.Service != nil && !s.ServiceTerminating(),
		o.Written.Objects.Service == nil && o.Undecided():
		status.NodePorts, status.IPFamilies, status.UnusedNodes = before.NodePorts, before.IPFamilies,
			before.UnusedNodes
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, before.IngressAddresses...),
			before.Targets
	case o.Refused() == nil && restoresNodePorts(s):
		status.NodePorts, status.IPFamilies = before.NodePorts, before.IPFamilies
	case o.Addresses.KeepsStatus:
		status.NodePorts, status.IPFamilies = o.Addresses.Published.NodePorts, ipFamilies(s, o)
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, before.IngressAddresses...),
			before.Targets
	default:
		status.NodePorts, status.IPFamilies = o.Addresses.Published.NodePorts, ipFamilies(s, o)
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, o.Addresses.Published.Addresses...),
			o.Addresses.Targets
	}
	status.SharedPorts = o.Written.SharedPorts
	status.Endpoints = Endpoints(status.IngressAddresses)
	if len(status.NodePorts) == 0 {
		status.LastNodePorts = exposure.LoadBalancerPorts(o.Written.Objects.Service, observe.LastNodePorts(*before))
	}
}

// maxEndpoints is how many addresses are in the endpoints of a status: a client that discovers the others needs a few.
const maxEndpoints = 10

// Endpoints returns the first addresses as host:port, by the names of the ports, or nil without addresses.
func Endpoints(addresses []listenersv1alpha1.IngressAddress) map[string]string {
	var all map[string]string
	for _, a := range addresses[:min(len(addresses), maxEndpoints)] {
		for name := range a.Ports {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = strings.TrimPrefix(all[name]+","+a.HostPort(name), ",")
		}
	}
	return all
}

func ipFamilies(s *observe.Snapshot, o *Outcome) []corev1.IPFamily {
	if s.Class == nil || o.Written.Objects.Service == nil || !s.Class.ChoosesIPFamilies() {
		return nil
	}
	return o.Written.Objects.Service.Spec.IPFamilies
}

// restoresNodePorts reports whether the Service is being deleted, and will be created again with its node ports. These
// stay in the status, so that the addresses of Pods do not change in the meantime.
func restoresNodePorts(s *observe.Snapshot) bool {
	return s.ServiceTerminating() && s.Backend.PlainService &&
		s.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
}

// NumbersOf returns what is to be remembered of a Listener: its numbers, in place of those that are remembered.
func NumbersOf(s *observe.Snapshot, o *Outcome) observe.Numbers {
	now := s.Remembered
	now.NodePorts = exposure.LoadBalancerPorts(o.Written.Objects.Service, now.NodePorts)
	if len(o.Addresses.Published.NodePorts) > 0 {
		now.NodePorts = o.Addresses.Published.NodePorts
	}
	if len(o.Written.SharedPorts) > 0 {
		now.SharedPorts = o.Written.SharedPorts
	}
	if o.Written.Objects.Service != nil && s.Class.Spec.ClusterIPs != nil {
		now.ClusterIPs = o.Written.Objects.Service.Spec.ClusterIPs
	}
	if s.Backend.IsExclusive() && o.Addresses.Desired.Complete {
		now.Addresses = o.Addresses.Desired.Addresses
	}
	return now
}
