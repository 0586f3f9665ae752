package listener

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// ownStatus returns the status of a Listener without the conditions of other controllers.
func ownStatus(listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerStatus {
	status := ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return c.Type != listenersv1alpha1.ListenerAccepted && c.Type != listenersv1alpha1.ListenerReady
	})
	return &status
}

// statusOf returns the status of a Listener. If the API server has not decided about the plan, conditions and observed
// generation do not change, and neither do the addresses if there is no Service.
func statusOf(s *snapshot, o *outcome) *listenersv1alpha1.ListenerStatus {
	before := ownStatus(s.listener)
	status := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	setAddresses(status, s, o, before)
	status.Conditions = slices.Clone(before.Conditions)
	status.UnusedSince = before.UnusedSince
	if o.undecided() {
		status.ObservedGeneration, status.KeptClassName = before.ObservedGeneration, before.KeptClassName
		status.Summary = before.Summary
		if o.service != nil {
			status.Summary = summarize(s, o, status, before)
		}
		return status
	}
	status.ObservedGeneration = s.listener.Generation
	if s.kept {
		status.KeptClassName = s.class.Name
	}
	for _, c := range []metav1.Condition{acceptedCondition(s, o), readyCondition(s, o, status)} {
		c.ObservedGeneration = s.listener.Generation
		c.Message = message.Printable(c.Message, message.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if s.class != nil || s.awaiting {
		status.UnusedSince = unusedSince(s, o, status, before)
	}
	status.Summary = summarize(s, o, status, before)
	return status
}

// deletedStatus returns the status of a Listener that finalizers keep although its Service is gone.
func deletedStatus(listener *listenersv1alpha1.Listener, finalizers []string) *listenersv1alpha1.ListenerStatus {
	status := &listenersv1alpha1.ListenerStatus{
		IngressAddresses: []listenersv1alpha1.IngressAddress{}, Conditions: ownStatus(listener).Conditions, ObservedGeneration: listener.Generation,
		Summary: listenersv1alpha1.ListenerSummary{Reason: listenersv1alpha1.ReasonListenerTerminating},
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: listenersv1alpha1.ReasonListenerTerminating, ObservedGeneration: listener.Generation,
		Message: message.Printable("the Listener is being deleted, and its Service is gone; it is kept by its finalizers: "+columns.Names(finalizers), message.MaxCondition),
	})
	return status
}

// keptFor returns how long a Listener that is kept for the next Pod of a name still is, or 0 if it is not kept.
// obsolete is why the Listener is to be deleted, or empty. A restart of the operator does not extend the period.
func (s *snapshot) keptFor(now time.Time) (left time.Duration, obsolete string) {
	switch {
	case s.finished: // the Pod and its ephemeral claim may exist for days
		return 0, "its Pod has finished"
	case !s.awaiting:
		return 0, ""
	case s.listener.Status == nil || s.listener.Status.UnusedSince == nil:
		return keptPeriod, "" // the reconciliation sets it
	}
	if left = keptPeriod - now.Sub(s.listener.Status.UnusedSince.Time); left > 0 {
		return min(left, keptPeriod), ""
	}
	return 0, fmt.Sprintf("there was no Pod of its name for %d minutes", int(keptPeriod.Minutes()))
}

// schedulingPeriod is how long the first status of a Listener waits for the node of its Pod, to be written once.
const schedulingPeriod = 5 * time.Second

// nodeIn returns how long the Listener of an inline volume still waits for the node of its Pod, or 0.
func (s *snapshot) nodeIn(o *outcome) time.Duration {
	if s.listener.Status != nil || !s.scheduling || o.err != nil || o.refused() != nil || o.desired.Reason != listenersv1alpha1.ReasonWaitingForPods {
		return 0
	}
	return requests.Left(s.listener.CreationTimestamp, schedulingPeriod, o.now.Time)
}

// unusedSince returns since when no Pod has mounted the Listener, or nil. It changes only with the reason of the
// condition Ready, so that it costs no write: a Pod that is replaced, or mounts the Listener soon, changes neither.
func unusedSince(s *snapshot, o *outcome, status, before *listenersv1alpha1.ListenerStatus) *metav1.Time {
	ready := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady)
	switch {
	case len(o.placement.Mounting) > 0:
		return nil
	case before.UnusedSince != nil:
		return before.UnusedSince
	case ready != nil && (ready.Reason == listenersv1alpha1.ReasonReserved || ready.Reason == listenersv1alpha1.ReasonWaitingForPods),
		s.awaiting && (s.class == nil || ready.Reason != listenersv1alpha1.ReasonAddressesAssigned):
		return &o.now
	default:
		return nil
	}
}

// summarize returns the summary of a status. Without a class, the nodes of the previous one stay, as the addresses do.
func summarize(s *snapshot, o *outcome, status, before *listenersv1alpha1.ListenerStatus) listenersv1alpha1.ListenerSummary {
	summarized := listenersv1alpha1.ListenerSummary{Address: columns.Address(status.IngressAddresses), Reason: rootReason(status.Conditions)}
	switch {
	case len(status.IngressAddresses) == 0:
	case s.class == nil:
		summarized.Nodes = before.Summary.Nodes
	case status.NodePorts != nil || s.backend.IsNodeScoped(s.class):
		summarized.Nodes = columns.Names(nodeNames(o.placement.Nodes))
	}
	return summarized
}

// rootReason returns the reason why the Listener is not accepted or, if it is, that of its condition Ready.
func rootReason(conditions []metav1.Condition) string {
	root := listenersv1alpha1.ListenerReady
	if meta.IsStatusConditionFalse(conditions, listenersv1alpha1.ListenerAccepted) {
		root = listenersv1alpha1.ListenerAccepted
	}
	return ptr.Deref(meta.FindStatusCondition(conditions, root), metav1.Condition{}).Reason
}

// setAddresses sets the fields of the status that describe the Service and its addresses.
func setAddresses(status *listenersv1alpha1.ListenerStatus, s *snapshot, o *outcome, before *listenersv1alpha1.ListenerStatus) {
	if o.service != nil {
		status.ServiceName = ptr.To(o.service.Name)
	} else if o.undecided() {
		status.ServiceName = before.ServiceName
	}
	status.UnusedNodes = o.placement.UnusedNodes
	switch {
	case s.class == nil && o.service != nil && !s.serviceTerminating(), o.service == nil && o.undecided():
		status.NodePorts, status.IPFamilies, status.UnusedNodes = before.NodePorts, before.IPFamilies, before.UnusedNodes
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, before.IngressAddresses...), before.Targets
	case o.refused() == nil && restoresNodePorts(s):
		status.NodePorts, status.IPFamilies = before.NodePorts, before.IPFamilies
	case o.kept:
		status.NodePorts, status.IPFamilies = o.published.NodePorts, ipFamilies(s, o)
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, before.IngressAddresses...), before.Targets
	default:
		status.NodePorts, status.IPFamilies = o.published.NodePorts, ipFamilies(s, o)
		status.IngressAddresses, status.Targets = append(status.IngressAddresses, o.published.Addresses...), o.targets
	}
	status.SharedPorts = o.sharedPorts
	status.Endpoints = endpoints(status.IngressAddresses)
	if len(status.NodePorts) == 0 {
		status.LastNodePorts = lastNodePorts(*before)
	}
}

// maxEndpoints is how many addresses are in the endpoints of a status: a client that discovers the others needs a few.
const maxEndpoints = 10

// endpoints returns the first addresses as host:port, by the names of the ports, or nil without addresses.
func endpoints(addresses []listenersv1alpha1.IngressAddress) map[string]string {
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

// ipFamilies returns the IP families of the Service if the class chooses them.
func ipFamilies(s *snapshot, o *outcome) []corev1.IPFamily {
	if s.class == nil || o.service == nil || !s.class.ChoosesIPFamilies() {
		return nil
	}
	return o.service.Spec.IPFamilies
}

// restoresNodePorts reports whether the Service is being deleted, and will be created again with its node ports. These
// stay in the status, so that the addresses of Pods do not change in the meantime.
func restoresNodePorts(s *snapshot) bool {
	return s.serviceTerminating() && s.backend.PlainService && s.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
}

// numbersOf returns what is to be remembered of a Listener: its numbers, in place of those that are remembered.
func numbersOf(s *snapshot, o *outcome) numbers {
	now := s.remembered
	if len(o.published.NodePorts) > 0 {
		now.NodePorts = o.published.NodePorts
	}
	if len(o.sharedPorts) > 0 {
		now.SharedPorts = o.sharedPorts
	}
	if o.service != nil && s.class.Spec.ClusterIPs != nil {
		now.ClusterIPs = o.service.Spec.ClusterIPs
	}
	if s.backend.IsExclusive() && o.desired.Complete {
		now.Addresses = o.desired.Addresses
	}
	return now
}
