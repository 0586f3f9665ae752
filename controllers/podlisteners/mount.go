package podlisteners

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// mount is one listener volume of a Pod, with the objects on which its addresses depend.
type mount struct {
	// volume is the name of the volume in the Pod.
	volume   string
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	selector claim.Selector
	// listener is nil while it does not exist.
	listener *listenersv1alpha1.Listener
	// class is nil while it does not exist, or the Listener names none. backend is that of the class.
	class   *listenersv1alpha1.ListenerClass
	backend *exposure.Backend
	// overQuota is the error with which the API server rejects the Listener, if a ResourceQuota does not permit it.
	overQuota error
}

func (m *mount) listenerName() string { return m.selector.ListenerName(m.claim.Name) }

// pinnedElsewhere reports whether the volume is pinned to other nodes than this one: the kubelet does not mount it.
func (m *mount) pinnedElsewhere(node string) bool {
	nodes := claim.PinnedNodes(m.pv)
	return len(nodes) > 0 && !slices.Contains(nodes, node)
}

// reservation returns the node affinity of the volume, nil if it is not pinned, and the annotation that records the
// node of the last mount of a volume that is not. A mount that is not new does not change the recorded node, because
// another Pod may have mounted the volume since. The node of an ephemeral claim's volume is that of its Pod, and not
// recorded. A node affinity that another client set stays: it is immutable. For a Pod that is leaving, because it is
// being deleted or its node is lost, the volume is neither pinned nor is its node recorded: the volume may just have
// been released from this node.
func (m *mount) reservation(node string, leaving, mounting, published bool) (*corev1.VolumeNodeAffinity, map[string]string) {
	recorded := m.pv.Annotations[names.AnnotationNode]
	pins := m.pv.Spec.NodeAffinity == nil && m.class != nil && m.class.Pinning() != nil
	switch {
	case len(claim.PinnedNodes(m.pv)) > 0, leaving && recorded == "":
		return m.pv.Spec.NodeAffinity, nil
	case pins && !published && !leaving:
		return claim.NodeAffinity(node), nil
	case claim.EphemeralPod(m.claim) != nil:
		return m.pv.Spec.NodeAffinity, nil
	case mounting && !leaving, recorded == "":
		recorded = node
	}
	return m.pv.Spec.NodeAffinity, map[string]string{names.AnnotationNode: recorded}
}

// newListener is how long a Listener may take until its status has addresses, or why there are none, before it is
// reported: half of what the node agent waits for an object that does not exist.
const newListener = 5 * time.Second

// entry returns the desired entry of the volume. It has the addresses of the previous entry while new ones are unknown,
// as far as the Listener still has them.
func (m *mount) entry(pod *corev1.Pod, node *corev1.Node, previous listenersv1alpha1.PodListener) listenersv1alpha1.PodListener {
	entry := listenersv1alpha1.PodListener{
		Scope:                cmp.Or(previous.Scope, listenersv1alpha1.ListenerScopeCluster),
		IngressAddresses:     m.held(previous.IngressAddresses),
		PersistentVolumeName: m.pv.Name,
		ListenerName:         m.listenerName(),
	}
	if m.addressesUnknown(pod, previous) {
		return entry
	}
	status, own := m.listener.Status, m.ownAddresses(pod, node)
	entry.Scope = listenersv1alpha1.ListenerScopeNode
	var addresses []listenersv1alpha1.IngressAddress
	switch {
	case own != nil && (len(own.Addresses) > 0 || status.NodePorts == nil):
		addresses = own.Addresses
	case status.NodePorts == nil:
		entry.Scope, entry.IngressAddresses = listenersv1alpha1.ListenerScopeCluster, status.IngressAddresses
	case node != nil:
		addresses = m.nodeAddresses(node)
	}
	if addresses = m.advertised(addresses); len(addresses) > 0 {
		entry.IngressAddresses = addresses
	}
	return entry
}

// held returns those of the addresses that the Listener publishes. Another one may have the others by now. The status
// of a Listener that is being deleted is not updated.
func (m *mount) held(addresses []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	if m.listener == nil || m.listener.Status == nil || m.listener.DeletionTimestamp != nil {
		return nil
	}
	published := sets.New[string]()
	for _, a := range m.listener.Status.IngressAddresses {
		published.Insert(a.Address)
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a listenersv1alpha1.IngressAddress) bool { return !published.Has(a.Address) })
}

// advertised returns what the Listener has published in place of addresses that lead to the Pod alone, if it advertises
// others: those that it was refused are published nowhere. It has those of the node of a Pod as soon as the volume
// names the node.
func (m *mount) advertised(addresses []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	targets := m.listener.Status.Targets
	if len(targets) == 0 && (m.class == nil || m.class.Spec.Advertise == nil) {
		return addresses
	}
	return advertise.Instead(targets, addresses)
}

// nodeAddresses returns the addresses of the node of the Pod with the node ports of the Listener.
func (m *mount) nodeAddresses(node *corev1.Node) []listenersv1alpha1.IngressAddress {
	if m.class == nil {
		ofOthers := func(known listenersv1alpha1.IngressAddress) bool {
			return !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == known.Address })
		}
		if known := slices.DeleteFunc(slices.Clone(m.listener.Status.TargetAddresses()), ofOthers); len(known) > 0 {
			return known
		}
	}
	ofNode, _ := exposure.NodeAddresses(node, m.nodeChoice())
	addresses := make([]listenersv1alpha1.IngressAddress, 0, len(ofNode))
	for _, a := range ofNode {
		addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: a.Address, AddressType: a.Type, Ports: m.listener.Status.NodePorts})
	}
	return addresses
}

// nodeChoice returns how addresses of nodes are chosen. While the class does not exist, they have the type of the
// addresses in the status.
func (m *mount) nodeChoice() exposure.NodeChoice {
	if m.class != nil {
		return (&exposure.Listener{Listener: m.listener, Class: m.class}).NodeChoice()
	}
	choice := exposure.NodeChoice{Prefer: listenersv1alpha1.AddressTypeIP, Families: m.listener.Status.IPFamilies}
	if addresses := m.listener.Status.TargetAddresses(); len(addresses) > 0 {
		choice.Prefer = addresses[0].AddressType
	}
	return choice
}

// addressesUnknown reports whether the addresses for the Pod cannot be determined: the Listener does not exist, its
// status is outdated, or the volume is pinned to another node than that of the Pod. The previous addresses may still
// work. While the class does not exist, the Listener keeps its Service, so the previous addresses still work, and for a
// new Pod those in the status do.
func (m *mount) addressesUnknown(pod *corev1.Pod, previous listenersv1alpha1.PodListener) bool {
	if !m.statusCurrent() || m.pinnedElsewhere(pod.Spec.NodeName) {
		return true
	}
	status := m.listener.Status
	return m.class == nil && (len(previous.IngressAddresses) > 0 || len(status.IngressAddresses) == 0 && status.NodePorts == nil)
}

// previousExposure is how long a Pod without addresses waits while its Listener has those of a previous exposure, which
// are about to go away: its programs would advertise them for as long as they run. Most exposures are complete by then.
// If not, the Pod gets the previous addresses, which still work: a class that is wrong must not keep Pods from
// starting.
const previousExposure = 2 * time.Minute

// untilPrevious returns how long the Pod, which has PodListeners since a time, still waits for other addresses than
// those of the previous exposure of its Listener, and for what the Listener waits. Addresses of the Pod alone are no
// previous ones, and the new exposure may be complete only when they are known.
func (m *mount) untilPrevious(pod *corev1.Pod, node *corev1.Node, since metav1.Time, now time.Time) (left time.Duration, text string) {
	if m.listener == nil || m.listener.Status == nil {
		return 0, ""
	}
	if own := m.ownAddresses(pod, node); own != nil && len(own.Addresses) > 0 {
		return 0, ""
	}
	ready := meta.FindStatusCondition(m.listener.Status.Conditions, listenersv1alpha1.ListenerReady)
	if ready == nil || ready.Reason != listenersv1alpha1.ReasonPreviousExposure {
		return 0, ""
	}
	return requests.Left(since, previousExposure, now), ready.Message
}

// ownAddresses returns the addresses that the backend of the class has for this Pod alone, or nil if they follow from
// the status of the Listener, or the class or the node do not exist.
func (m *mount) ownAddresses(pod *corev1.Pod, node *corev1.Node) *exposure.Exposed {
	if m.listener == nil || m.class == nil || node == nil || m.backend.PodAddresses == nil {
		return nil
	}
	return m.backend.PodAddresses(m.listener, m.class, pod, node)
}

// statusCurrent reports whether the status of the Listener is that of its current generation.
func (m *mount) statusCurrent() bool {
	return m.listener != nil && m.listener.Status != nil && m.listener.Status.ObservedGeneration == m.listener.Generation && m.listener.DeletionTimestamp == nil
}

// actionMount is the action of a Pod's events.
const actionMount = "Mount"

// waitReason returns why there is no address, or "" if the next reconcile will have one or a reason, because the
// Listener was just created or changed, or does not know the node of the Pod yet, or if the Listener is a foreign one.
// Different reasons have different actions, because the recorder only counts an event that differs from an earlier one
// in nothing but its text.
func (m *mount) waitReason(pod *corev1.Pod, node *corev1.Node) (action, text string) {
	own := m.ownAddresses(pod, node)
	switch {
	case m.pinnedElsewhere(pod.Spec.NodeName):
		return actionMount + "Pinned", fmt.Sprintf("PersistentVolume %s is pinned to node %s, where another Pod has mounted it first, but this Pod is on node %s; "+
			"delete the Pod, so that it is scheduled again", m.pv.Name, strings.Join(claim.PinnedNodes(m.pv), ", "), pod.Spec.NodeName)
	case m.missing() != "":
		return actionMount, m.missing()
	case !m.statusCurrent():
		return actionMount, ""
	case own != nil && own.Message != "":
		return actionMount + "Own", own.Message
	case m.listener.Status.NodePorts == nil && (own == nil || len(own.Addresses) == 0):
		return conditionMessage(m.listener.Status.Conditions)
	case node == nil:
		return actionMount, "the Node of the Pod does not exist"
	}
	if _, problem := exposure.NodeAddresses(node, m.nodeChoice()); problem != "" {
		return actionMount, fmt.Sprintf("node %s has %s", node.Name, problem)
	}
	if meta.IsStatusConditionFalse(m.listener.Status.Conditions, listenersv1alpha1.ListenerAccepted) {
		return conditionMessage(m.listener.Status.Conditions)
	}
	return actionMount, "" // the Listener advertises an address for the Pod as soon as it knows of the Pod
}

// deletedListener returns what it means that the Listener of a volume of a running Pod does not exist any more, or "".
// That of a class-based claim is created again.
func (m *mount) deletedListener(pod *corev1.Pod) string {
	if m.listener != nil || m.selector.Class != "" || pod.Status.Phase != corev1.PodRunning {
		return ""
	}
	return fmt.Sprintf("Listener %s/%s was deleted, and its Service with it; the files of volume %q keep the last addresses, which do not work any more; create the Listener again",
		m.claim.Namespace, m.listenerName(), m.volume)
}

// changedSelector explains that the claim has other annotations than its volume was provisioned with, or returns "".
func (m *mount) changedSelector() string {
	now, err := claim.ParseSelector(m.claim.Annotations)
	if err != nil && !errors.Is(err, claim.ErrBothSelectors) || now == m.selector {
		return ""
	}
	was := fmt.Sprintf("%s: %s", names.AnnotationListenerName, m.selector.Listener)
	if m.selector.Class != "" {
		was = fmt.Sprintf("%s: %s", names.AnnotationListenerClass, m.selector.Class)
	}
	return fmt.Sprintf("the annotations were changed after PersistentVolume %s was provisioned, which has no effect: the volume still uses %s; "+
		"to use another class or Listener, delete the claim and create it again", m.pv.Name, was)
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
