package podlisteners

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
)

// mount is one listener volume of a Pod, with all that decides its addresses.
type mount struct {
	// volume is the name of the volume in the Pod.
	volume   string
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	selector claim.Selector
	// listener is nil while it does not exist.
	listener *listenersv1alpha1.Listener
	// class is nil while it does not exist, or the Listener has none.
	class *listenersv1alpha1.ListenerClass
}

// ours tells whether claim and PersistentVolume are bound to each other and were provisioned by us, or by the peer, and
// reads the selector.
func (m *mount) ours() bool {
	if m.pv.Spec.ClaimRef == nil || m.pv.Spec.ClaimRef.UID != m.claim.UID {
		return false
	}
	var err error
	m.selector, err = claim.VolumeSelector(m.pv)
	return err == nil
}

func (m *mount) listenerName() string { return m.selector.ListenerName(m.claim.Name) }

func (m *mount) pinned() bool { return len(index.PinnedNodes(m.pv)) > 0 }

// ownsListener tells whether the PersistentVolume is one of the Listener's owners, as it is once a Pod has mounted it.
func (m *mount) ownsListener() bool {
	return slices.ContainsFunc(m.listener.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == m.pv.UID })
}

// listenerRef returns the Listener for an event, or a nil interface if there is none.
func (m *mount) listenerRef() runtime.Object {
	if m.listener == nil {
		return nil
	}
	return m.listener
}

// entry is what the Pod is told of a volume. previous keeps its addresses while the Listener, its class or the node are
// not known well enough to say better: an address that worked is not taken away on a doubt.
func (m *mount) entry(node *corev1.Node, previous listenersv1alpha1.PodListener) listenersv1alpha1.PodListener {
	entry := listenersv1alpha1.PodListener{
		Scope:                listenersv1alpha1.ListenerScopeCluster,
		IngressAddresses:     previous.IngressAddresses,
		PersistentVolumeName: m.pv.Name,
		ListenerName:         m.listenerName(),
	}
	if previous.Scope != "" {
		entry.Scope = previous.Scope
	}
	if !m.settled() {
		return entry
	}
	status := m.listener.Status
	if status.NodePorts == nil {
		entry.Scope = listenersv1alpha1.ListenerScopeCluster
		entry.IngressAddresses = status.IngressAddresses
		return entry
	}
	entry.Scope = listenersv1alpha1.ListenerScopeNode
	if node != nil {
		if address, kind, ok := exposure.NodeAddress(node, m.class.AddressPreference(listenersv1alpha1.ServiceTypeNodePort)); ok {
			entry.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: address, AddressType: kind, Ports: status.NodePorts}}
		}
	}
	return entry
}

// settled tells whether the status of the Listener describes the Listener as it is now.
func (m *mount) settled() bool {
	return m.listener != nil && m.class != nil && m.listener.Status != nil &&
		m.listener.Status.ObservedGeneration == m.listener.Generation
}

// actionMount is what a Pod's events are about.
const actionMount = "Mount"

// waitsFor says in the user's words why there is no address, or "" when it is only a matter of the next pass. The
// action tells one stage of waiting from the next: an event that differs from an earlier one in nothing but its words
// is only counted, and its words are lost.
func (m *mount) waitsFor(node *corev1.Node) (action, words string) {
	switch {
	case m.listener == nil && m.selector.Class == "":
		return actionMount, "it does not exist; the mount goes on as soon as it does"
	case m.listener != nil && m.listener.Class() == "":
		return actionMount, "it has no spec.className"
	case m.listener != nil && m.class == nil:
		return actionMount, fmt.Sprintf("ListenerClass %q does not exist", m.listener.Class())
	case !m.settled():
		return actionMount, ""
	case m.listener.Status.NodePorts == nil:
		return complaint(m.listener.Status.Conditions)
	case node == nil:
		return actionMount, "the Pod's node is not known"
	default:
		return actionMount, fmt.Sprintf("node %s has neither an IP address nor a host name", node.Name)
	}
}

// complaint returns what a Listener's conditions say is wrong, with the reason as the action.
func complaint(conditions []metav1.Condition) (action, words string) {
	for _, kind := range []string{listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return actionMount + c.Reason, c.Message
		}
	}
	return actionMount, "it has no address yet"
}
