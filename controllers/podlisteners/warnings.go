package podlisteners

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// actionMount is the action of the events. Different causes of the same reason have different actions, because the
// recorder only counts an event that differs from an earlier one in nothing but its text.
const actionMount = "Mount"

// warning is an event that users get once, and again later if its cause lasts.
type warning struct {
	cause
	action, text string
	// regarding is a Pod or a claim. related may be nil.
	regarding, related runtime.Object
}

// cause identifies the warnings on an object with the same reason, about one volume, or about all if volume is "".
type cause struct {
	object         types.UID
	volume, reason string
}

// add adds a warning with what an event can have of its text.
func (p *pass) add(w warning) {
	w.text = message.Printable(w.text, message.MaxEvent)
	p.warnings = append(p.warnings, w)
}

// warn adds a warning about all volumes of the Pod.
func (p *pass) warn(reason, action, format string, args ...any) {
	p.add(warning{cause{p.pod.UID, "", reason}, action, fmt.Sprintf(format, args...), p.pod, nil})
}

// warn adds a warning on the Pod about the volume.
func (m *mount) warn(reason, action, format string, args ...any) {
	var related runtime.Object
	switch {
	case m.listener != nil: // not a pointer that is nil
		related = m.listener
	case !m.request.Inline:
		related = m.object
	}
	m.add(warning{cause{m.pod.UID, m.volume, reason}, action, fmt.Sprintf(format, args...), m.pod, related})
}

// refuse warns about what forbids the volume, and reports whether the Pod is refused. If not, the next one will be.
func (m *mount) refuse(reason, problem string) bool {
	if m.admitted {
		m.warn(reason, actionMount+"Next", "Volume %q stays as it is until the Pod ends, but the next Pod will be "+
			"refused, because %s", m.volume, problem)
	} else {
		m.warn(reason, actionMount, "Volume %q is not mounted: %s", m.volume, problem)
	}
	return !m.admitted
}

// warnClaim adds a warning on the claim, or the Pod if the volume is inline.
func (m *mount) warnClaim(reason, format string, args ...any) {
	about := cause{m.object.GetUID(), m.volume, reason}
	m.add(warning{about, actionMount, fmt.Sprintf(format, args...), m.object, m.pod})
}

func (m *mount) source() string {
	if m.request.Inline {
		return fmt.Sprintf("inline volume %s of Pod %s", m.volume, m.pod.Name)
	}
	return "claim " + m.request.Name
}

// warnSelector warns that the claim selects another Listener than its volume was provisioned for.
func (m *mount) warnSelector() {
	was := fmt.Sprintf("%s: %s", names.AnnotationListenerName, m.selector.Listener)
	if m.selector.Class != "" {
		was = fmt.Sprintf("%s: %s", names.AnnotationListenerClass, m.selector.Class)
	}
	m.warnClaim(listenersv1alpha1.ReasonSelectorChanged, "the annotations were changed after PersistentVolume %s was "+
		"provisioned, which has no effect: the volume still uses %s; to use another Listener, delete the claim and "+
		"create it again", m.pv.Name, was)
}

// warnCopy warns that a copy of the Pod that the Listener belongs to gets no requests.
func (m *mount) warnCopy() {
	m.warn(listenersv1alpha1.ReasonPodIsCopy, actionMount, "Volume %q has the addresses of Listener %s, but requests "+
		"do not lead to this Pod: it has no controller, and the Listener belongs to another Pod; for requests, give "+
		"it a volume of its own", m.volume, m.listenerKey())
}

// warnLabels warns that the labels of the Pod's Listeners are removed again and again. labelled is the Pod now.
func (p *pass) warnLabels(labelled *corev1.Pod) {
	who := "the audit log of the API server says by whom"
	if managers := labelManagers(labelled); len(managers) > 0 {
		who = "other labels of the Pod are written by " + strings.Join(managers, ", ")
	}
	p.warn(listenersv1alpha1.ReasonLabelsRemoved, actionMount+"Labels", "Something removes the labels %s* from Pod "+
		"%s/%s again and again, without which it gets no requests from its Listeners: %s; configure that program to "+
		"keep labels of others", names.PodMountLabelPrefix, p.pod.Namespace, p.pod.Name, who)
}

// warnPorts warns about ports of the Pod that its Listener does not expose. problem is what Request.Ports returned.
func (m *mount) warnPorts(problem string) {
	if problem != "" {
		m.warn(listenersv1alpha1.ReasonInvalidClaim, actionMount, "Volume %q: %s", m.volume, problem)
	}
	if duplicates := claim.DuplicatePorts(m.pod); duplicates != "" {
		m.warn(listenersv1alpha1.ReasonDuplicatePortName, actionMount, "Volume %q: %s", m.volume, duplicates)
	}
}

// warnQuota warns that a ResourceQuota does not permit the Listener. rejection is what the API server says.
func (m *mount) warnQuota(rejection string) {
	text := fmt.Sprintf("a ResourceQuota does not permit Listener %s, which volume %q needs: %s; delete Listeners of "+
		"the namespace or the claims that they belong to, or ask an administrator to raise the ResourceQuota",
		m.listenerKey(), m.volume, rejection)
	m.warn(listenersv1alpha1.ReasonQuotaExceeded, actionMount, "%s", text)
	if !m.request.Inline {
		m.warnClaim(listenersv1alpha1.ReasonQuotaExceeded, "%s", text)
	}
}

// warnOwnQuota warns if a ResourceQuota does not permit the PodListeners of a Pod. err is the result of its creation.
func (p *pass) warnOwnQuota(err error) {
	if rejection := requests.ExceededQuota(err); rejection != "" {
		p.warn(listenersv1alpha1.ReasonQuotaExceeded, actionMount, "a ResourceQuota does not permit the object with "+
			"the addresses of the Pod: %s; delete Pods with listener volumes, or ask an administrator to remove "+
			"podlisteners from the ResourceQuota, and to limit claims instead", rejection)
	}
}

// warnRejection warns if the API server, mostly by an admission policy, rejects a request. Quotas have other warnings.
func (p *pass) warnRejection(err error) {
	if (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && requests.ExceededQuota(err) == "" &&
		!requests.IsTerminating(err) {
		p.warn(listenersv1alpha1.ReasonRequestRejected, actionMount, "the API server rejects what the operator writes "+
			"for the addresses of the Pod: %v; ask an administrator to exempt the operator from the admission policy, "+
			"or to find out which permission it lacks", err)
	}
}

// warnLimit warns that this volume, and those after it, get no addresses.
func (p *pass) warnLimit(volume string) {
	p.warn(listenersv1alpha1.ReasonWaitingForAddress, actionMount+"Limit", "Volume %q of Pod %s/%s gets no addresses, "+
		"as may others after it: a Pod has at most %d listener volumes, and %d KiB of addresses and ports in them; "+
		"use fewer volumes, or Listeners with fewer ports",
		volume, p.pod.Namespace, p.pod.Name, listenersv1alpha1.MaxVolumes, listenersv1alpha1.MaxAddressBytes>>10)
}

// warnPrevious warns that the Pod waits for other addresses. text says why the Listener has none yet.
func (m *mount) warnPrevious(text string) {
	m.warn(listenersv1alpha1.ReasonWaitingForAddress, actionMount+"Previous", "Volume %q waits for other addresses "+
		"than the previous ones of Listener %s, which are about to go away, for at most %s: %s",
		m.volume, m.listenerKey(), previousExposure, text)
}

// warnMissing warns that there is no address, and reports whether it is known why. If not, the next pass will know.
func (m *mount) warnMissing() bool {
	// The Listener of a class-based claim is created again.
	if m.listener == nil && m.selector.Class == "" && m.pod.Status.Phase == corev1.PodRunning {
		m.warn(listenersv1alpha1.ReasonListenerNotFound, actionMount, "Listener %s was deleted, and its Service with "+
			"it; the files of volume %q keep the last addresses, which do not work any more; create the Listener again",
			m.listenerKey(), m.volume)
		return true
	}
	action, text := m.waitReason()
	if text != "" {
		m.warn(listenersv1alpha1.ReasonWaitingForAddress, action, "Volume %q waits for an address of Listener %s: %s",
			m.volume, m.listenerKey(), text)
	}
	return text != ""
}

// waitReason returns why there is no address, or "" if the next reconcile will have one or a reason, because the
// Listener was just created or changed, or does not know the node of the Pod yet, or if the Listener is a foreign one.
func (m *mount) waitReason() (action, text string) {
	own := m.ownAddresses()
	switch {
	case m.pinnedElsewhere():
		return actionMount + "Pinned",
			fmt.Sprintf("PersistentVolume %s is pinned to node %s, where another Pod has mounted it first, but this "+
				"Pod is on node %s; delete the Pod, so that it is scheduled again", m.pv.Name,
				strings.Join(claim.PinnedNodes(m.pv), ", "), m.pod.Spec.NodeName)
	case m.missing() != "":
		return actionMount, m.missing()
	case !m.statusCurrent():
		return actionMount, ""
	case own != nil && own.Message != "":
		return actionMount + "Own", own.Message
	case m.listener.Status.NodePorts == nil && (own == nil || len(own.Addresses) == 0):
		return conditionMessage(m.listener.Status.Conditions)
	case m.node == nil:
		return actionMount, "the Node of the Pod does not exist"
	}
	if _, problem := exposure.NodeAddresses(m.node, m.nodeChoice()); problem != "" {
		return actionMount, fmt.Sprintf("node %s has %s", m.node.Name, problem)
	}
	if meta.IsStatusConditionFalse(m.listener.Status.Conditions, listenersv1alpha1.ListenerAccepted) {
		return conditionMessage(m.listener.Status.Conditions)
	}
	return actionMount, "" // the Listener advertises an address for the Pod as soon as it knows of the Pod
}

// missing returns which object or field does not exist without which the Listener has no addresses, or "" if none.
func (m *mount) missing() string {
	switch {
	case m.listener == nil && m.selector.Class == "":
		return "it does not exist; the mount continues when it is created"
	case m.listener == nil:
		return ""
	case m.listener.Class() == "":
		return "it has no spec.className"
	case m.class == nil && (!m.statusCurrent() || m.listener.Status.NodePorts == nil):
		return fmt.Sprintf("ListenerClass %q does not exist", m.listener.Class())
	default:
		return ""
	}
}

// conditionMessage returns the message of the first condition that is false, and an action with its reason.
func conditionMessage(conditions []metav1.Condition) (action, text string) {
	for _, kind := range []string{listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return actionMount + c.Reason, c.Message
		}
	}
	return actionMount, "it has no address yet"
}
