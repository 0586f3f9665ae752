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
	action string
	// text is empty if the cause does not hold any more.
	text string
	// regarding is a Pod or a claim. related may be nil.
	regarding, related runtime.Object
}

// cause identifies the warnings on an object with the same reason, about one volume, or about all if volume is "".
type cause struct {
	object         types.UID
	volume, reason string
}

// report emits the warnings that differ from the last ones with their causes, and repeats those of long ago.
func (r *Reconciler) report(pod *corev1.Pod, warnings []warning) {
	for _, w := range warnings {
		if r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), w.cause, w.text, r.Clock.Now()) {
			r.Events.Eventf(w.regarding, w.related, corev1.EventTypeWarning, w.reason, w.action, "%s", message.Printable(w.text, message.MaxEvent))
		}
	}
}

// podWarning returns a warning about all volumes of a Pod.
func podWarning(pod *corev1.Pod, reason, action, text string) warning {
	return warning{cause: cause{object: pod.UID, reason: reason}, action: action, text: text, regarding: pod}
}

// warning returns a warning on the Pod about the volume.
func (m *mount) warning(reason, action, text string) warning {
	w := podWarning(m.pod, reason, action, text)
	if w.volume = m.volume; m.listener != nil { // not a pointer that is nil
		w.related = m.listener
	}
	return w
}

// claimWarning returns a warning on the claim, or the Pod if the volume is inline.
func (m *mount) claimWarning(reason, text string, related runtime.Object) warning {
	return warning{cause{m.claim.UID, m.volume, reason}, actionMount, text, m.object(), related}
}

// object returns what requests the Listener: the claim, or the Pod if the volume is inline.
func (m *mount) object() runtime.Object {
	if m.isInline() {
		return m.pod
	}
	return m.claim
}

// source describes the claim or the inline volume.
func (m *mount) source() string {
	if m.isInline() {
		return fmt.Sprintf("inline volume %s of Pod %s", m.volume, m.pod.Name)
	}
	return "claim " + m.claim.Name
}

// when returns a text if its cause holds, and else "".
func when(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// changedSelector warns that the claim selects another Listener than the one that its volume was provisioned for.
func (m *mount) changedSelector() warning {
	was := fmt.Sprintf("%s: %s", names.AnnotationListenerName, m.selector.Listener)
	if m.selector.Class != "" {
		was = fmt.Sprintf("%s: %s", names.AnnotationListenerClass, m.selector.Class)
	}
	return m.claimWarning(listenersv1alpha1.ReasonSelectorChanged, when(m.selectorIgnored, "the annotations were changed after PersistentVolume %s was "+
		"provisioned, which has no effect: the volume still uses %s; to use another Listener, delete the claim and create it again", m.pv.Name, was), m.pod)
}

// keptClass warns that the Listener keeps its class although the claim names another one, if that cannot be used.
// unusable is why, by the reason.
func (m *mount) keptClass(unusable map[string]string) (warnings []warning) {
	for _, reason := range []string{listenersv1alpha1.ReasonClassNotFound, listenersv1alpha1.ReasonNamespaceNotAllowed} {
		warnings = append(warnings, m.claimWarning(reason, when(unusable[reason] != "", "%s, so Listener %s keeps class %s; name another class in the %s %s",
			unusable[reason], m.listener.Name, m.listener.Class(), claim.Field(m.claim), names.AnnotationListenerClass), m.pod))
	}
	return warnings
}

// copied warns that a copy of the Pod that the Listener belongs to gets no requests.
func (m *mount) copied() warning {
	return m.warning(listenersv1alpha1.ReasonPodIsCopy, actionMount, when(m.isCopy, "Volume %q has the addresses of Listener %s/%s, but requests do not lead to "+
		"this Pod: it has no controller, and the claim belongs to another Pod; for requests, give it a claim of its own", m.volume, m.pod.Namespace, m.listenerName()))
}

// unexposedPorts warns about ports of the Pod that its Listener does not expose. problem is what claim.Ports returned.
func (m *mount) unexposedPorts(problem string) (warnings []warning) {
	for reason, text := range map[string]string{
		listenersv1alpha1.ReasonInvalidClaim: problem, listenersv1alpha1.ReasonDuplicatePortName: claim.DuplicatePorts(m.pod),
	} {
		if text != "" {
			warnings = append(warnings, m.warning(reason, actionMount, fmt.Sprintf("Volume %q: %s", m.volume, text)))
		}
	}
	return warnings
}

// quotaExceeded warns that a ResourceQuota does not permit the Listener. rejection is what the API server says, or "".
func (m *mount) quotaExceeded(rejection string) []warning {
	text := when(rejection != "", "a ResourceQuota does not permit Listener %s/%s, which volume %q needs: %s; delete Listeners of the namespace or the claims that they "+
		"belong to, or ask an administrator to raise the ResourceQuota", m.pod.Namespace, m.listenerName(), m.volume, rejection)
	onPod := m.warning(listenersv1alpha1.ReasonQuotaExceeded, actionMount, text)
	if m.isInline() {
		return []warning{onPod}
	}
	onPod.related = m.claim
	return []warning{m.claimWarning(listenersv1alpha1.ReasonQuotaExceeded, text, nil), onPod}
}

// ownQuotaExceeded warns that a ResourceQuota does not permit the PodListeners of a Pod. err is the result of its
// creation.
func ownQuotaExceeded(pod *corev1.Pod, err error) warning {
	rejection := requests.ExceededQuota(err)
	return podWarning(pod, listenersv1alpha1.ReasonQuotaExceeded, actionMount, when(rejection != "", "a ResourceQuota does not permit the object with the addresses of "+
		"the Pod: %s; delete Pods with listener volumes, or ask an administrator to remove podlisteners from the ResourceQuota, and to limit claims instead", rejection))
}

// rejected warns that the API server rejects a request of the operator, mostly by an admission policy. A quota has
// warnings of its own.
func rejected(pod *corev1.Pod, err error) warning {
	isRejected := (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && requests.ExceededQuota(err) == "" && !requests.IsTerminating(err)
	return podWarning(pod, listenersv1alpha1.ReasonRequestRejected, actionMount, when(isRejected, "the API server rejects what the operator writes for the addresses of "+
		"the Pod: %v; ask an administrator to exempt the operator from the admission policy, or to find out which permission it lacks", err))
}

// overLimit warns about volumes that get no addresses.
func overLimit(pod *corev1.Pod, volumes []string) warning {
	first := append(volumes, "")[0]
	return podWarning(pod, listenersv1alpha1.ReasonWaitingForAddress, actionMount+"Limit", when(len(volumes) > 0, "Volume %q and %d others of Pod %s/%s get no addresses: "+
		"a Pod has at most %d listener volumes, and %d KiB of addresses and ports in them; use fewer volumes, or Listeners with fewer ports",
		first, len(volumes)-1, pod.Namespace, pod.Name, listenersv1alpha1.MaxVolumes, listenersv1alpha1.MaxAddressBytes>>10))
}

// missingAddress returns warnings about an entry without addresses. There is none if the next reconcile will have
// addresses or a reason.
func (m *mount) missingAddress(entry listenersv1alpha1.PodListener) []warning {
	if len(entry.IngressAddresses) > 0 {
		return []warning{
			m.warning(listenersv1alpha1.ReasonWaitingForAddress, actionMount, ""), m.warning(listenersv1alpha1.ReasonListenerNotFound, actionMount, ""),
		}
	}
	// The Listener of a class-based claim is created again.
	if m.listener == nil && m.selector.Class == "" && m.pod.Status.Phase == corev1.PodRunning {
		return []warning{m.warning(listenersv1alpha1.ReasonListenerNotFound, actionMount, fmt.Sprintf("Listener %s/%s was deleted, and its Service with it; "+
			"the files of volume %q keep the last addresses, which do not work any more; create the Listener again", m.claim.Namespace, m.listenerName(), m.volume))}
	}
	action, text := m.waitReason()
	if text == "" {
		return nil
	}
	return []warning{m.warning(listenersv1alpha1.ReasonWaitingForAddress, action,
		fmt.Sprintf("Volume %q waits for an address of Listener %s/%s: %s", m.volume, m.pod.Namespace, m.listenerName(), text))}
}

// waitReason returns why there is no address, or "" if the next reconcile will have one or a reason, because the
// Listener was just created or changed, or does not know the node of the Pod yet, or if the Listener is a foreign one.
func (m *mount) waitReason() (action, text string) {
	own := m.ownAddresses()
	switch {
	case m.pinnedElsewhere():
		return actionMount + "Pinned", fmt.Sprintf("PersistentVolume %s is pinned to node %s, where another Pod has mounted it first, but this Pod is on node %s; "+
			"delete the Pod, so that it is scheduled again", m.pv.Name, strings.Join(claim.PinnedNodes(m.pv), ", "), m.pod.Spec.NodeName)
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
