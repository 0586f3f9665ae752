package podlisteners

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// mount is one listener volume of a Pod, with the objects on which its addresses depend.
type mount struct {
	*pass
	// node is the Pod's node, or nil if it does not exist.
	node *corev1.Node
	// volume is the name of the volume in the Pod.
	volume  string
	request claim.Request
	// object is the claim, or the Pod if the volume is inline. Of a claim that is gone, it has only the name.
	object client.Object
	// pv is nil if the volume is inline. If the claim or the PersistentVolume is gone, it has only the name.
	pv       *corev1.PersistentVolume
	selector claim.Selector
	// listener is nil while it does not exist.
	listener *listenersv1alpha1.Listener
	// isCopy states that the Pod is a copy of another Pod, which has the Listener.
	isCopy bool
	// class is nil while it does not exist, or the Listener names none. backend is that of the class.
	class   *listenersv1alpha1.ListenerClass
	backend *exposure.Backend
	// previous is the entry that the volume has in the PodListeners, if any.
	previous listenersv1alpha1.PodListener
	// set is the StatefulSet of a Pod whose Listener is kept. Nil means that it was not read, or does not exist.
	set *metav1.PartialObjectMetadata
	// admitted states that the volume has had an address, or that its Listener was created. What would refuse it now
	// refuses only the next Pod.
	admitted bool
	// isNew states that there was no entry, nor had the Pod the label of the Listener, which it gets last.
	isNew bool
}

func mountOf(p *pass, volume *corev1.Volume, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume,
	selector claim.Selector) *mount {
	return &mount{
		pass: p, volume: volume.Name, request: claim.OfClaim(pvc, pv), object: pvc, pv: pv, selector: selector,
	}
}

// awaitsKubelet reports whether the Listener of an inline volume is not created yet. A Pod that waits for a node, or
// that its kubelet rejects, must not hold a port: a controller may create any number of such Pods.
func (m *mount) awaitsKubelet() bool {
	return m.request.Inline && m.selector.Class != "" && m.listener == nil && m.verdictIn > 0
}

func (m *mount) listenerName() string { return m.selector.ListenerName(m.request.Name) }

func (m *mount) listenerKey() types.NamespacedName {
	return types.NamespacedName{Namespace: m.pod.Namespace, Name: m.listenerName()}
}

// pinnedElsewhere reports whether the volume is pinned to other nodes, so that the kubelet does not mount it. It may
// have mounted it before another Pod with the claim has pinned it.
func (m *mount) pinnedElsewhere() bool {
	if m.request.Inline || m.admitted {
		return false
	}
	nodes := claim.PinnedNodes(m.pv)
	return len(nodes) > 0 && !slices.Contains(nodes, m.pod.Spec.NodeName)
}

// reservation returns the node affinity of the volume, or nil, and, if it is not pinned, the annotation that records
// the node of the last mount. Only a new mount changes the record, because another Pod may have mounted the volume
// since; an ephemeral claim needs none. A node affinity that another client set is immutable. A Pod that is being
// deleted, or whose node is lost, changes nothing: the volume may just have been released from this node.
func (m *mount) reservation() (*corev1.VolumeNodeAffinity, map[string]string) {
	recorded := m.pv.Annotations[names.AnnotationNode]
	leaving := claim.NodeLost(m.node) || m.pod.DeletionTimestamp != nil
	pins := m.pv.Spec.NodeAffinity == nil && m.class != nil && m.class.Pinning() != nil
	switch {
	case len(claim.PinnedNodes(m.pv)) > 0, leaving && recorded == "":
		return m.pv.Spec.NodeAffinity, nil
	case pins && len(m.previous.IngressAddresses) == 0 && !leaving:
		return claim.NodeAffinity(m.pod.Spec.NodeName), nil
	case claim.EphemeralPod(m.object) != nil:
		return m.pv.Spec.NodeAffinity, nil
	case m.isNew && !leaving, recorded == "":
		recorded = m.pod.Spec.NodeName
	}
	return m.pv.Spec.NodeAffinity, map[string]string{names.AnnotationNode: recorded}
}

// entry returns the desired entry: while new addresses are unknown, with the previous ones that the Listener still has.
func (m *mount) entry() listenersv1alpha1.PodListener {
	entry := listenersv1alpha1.PodListener{
		Scope:            cmp.Or(m.previous.Scope, listenersv1alpha1.ListenerScopeCluster),
		IngressAddresses: m.held(m.previous.IngressAddresses),
		ListenerName:     m.listenerName(),
	}
	if !m.request.Inline {
		entry.PersistentVolumeName = m.pv.Name
	}
	if m.addressesUnknown() {
		return entry
	}
	status, own := m.listener.Status, m.ownAddresses()
	entry.Scope = listenersv1alpha1.ListenerScopeNode
	var addresses []listenersv1alpha1.IngressAddress
	switch {
	case own != nil && (len(own.Addresses) > 0 || status.NodePorts == nil):
		addresses = own.Addresses
	case status.NodePorts == nil:
		entry.Scope, entry.IngressAddresses = listenersv1alpha1.ListenerScopeCluster, status.IngressAddresses
	case m.node != nil:
		addresses = m.nodeAddresses()
	}
	if addresses = m.advertised(addresses); len(addresses) > 0 && !m.settling(addresses) {
		entry.IngressAddresses = addresses
	}
	return entry
}

// settling reports whether the Listener still publishes the previous addresses, and not the present ones of the node.
func (m *mount) settling(addresses []listenersv1alpha1.IngressAddress) bool {
	published := m.listener.Status.IngressAddresses
	lacks := func(a listenersv1alpha1.IngressAddress) bool {
		return len(exposure.AppendNew(published, a)) > len(published)
	}
	return m.class != nil && len(m.previous.IngressAddresses) > 0 &&
		!slices.ContainsFunc(m.previous.IngressAddresses, lacks) && slices.ContainsFunc(addresses, lacks)
}

// held returns those of the addresses that the Listener publishes. Another one may have the others by now. The status
// of a Listener that is being deleted is not updated.
func (m *mount) held(addresses []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	if m.listener == nil || m.listener.Status == nil || m.listener.DeletionTimestamp != nil {
		return nil
	}
	published := exposure.AddressSet(m.listener.Status.IngressAddresses)
	return slices.DeleteFunc(slices.Clone(addresses),
		func(a listenersv1alpha1.IngressAddress) bool { return !published.Has(a.Address) })
}

// advertised returns what the Listener publishes in place of addresses that lead to the Pod alone, if it advertises
// others: those that it was refused are published nowhere, and those of a node as soon as the volume names it.
func (m *mount) advertised(addresses []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	targets := m.listener.Status.Targets
	var instead *listenersv1alpha1.Advertise
	if m.class != nil {
		instead, _ = m.class.Advertised()
	}
	asTheyAre := instead == nil || m.admitted && len(m.listener.Status.IngressAddresses) > 0
	if len(targets) == 0 && asTheyAre {
		return addresses
	}
	return advertise.Instead(targets, addresses)
}

func (m *mount) nodeAddresses() []listenersv1alpha1.IngressAddress {
	if m.class == nil {
		ofOthers := func(known listenersv1alpha1.IngressAddress) bool { return !m.isOfNode(known) }
		if known := slices.DeleteFunc(slices.Clone(m.listener.Status.TargetAddresses()), ofOthers); len(known) > 0 {
			return known
		}
	}
	addresses, _ := exposure.NodeAddresses(m.node, m.nodeChoice())
	for i := range addresses {
		addresses[i].Ports = m.listener.Status.NodePorts
	}
	return addresses
}

func (m *mount) isOfNode(known listenersv1alpha1.IngressAddress) bool {
	return slices.ContainsFunc(m.node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return a.Address == known.Address })
}

// nodeChoice returns how to choose addresses of nodes: while the class does not exist, by type of those in the status.
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

// addressesUnknown reports whether the addresses for the Pod cannot be determined. While the class does not exist, the
// Listener keeps its Service, so previous addresses still work, and for a new Pod those in the status do.
func (m *mount) addressesUnknown() bool {
	if !m.statusCurrent() || m.pinnedElsewhere() {
		return true
	}
	status := m.listener.Status
	if m.class == nil && m.previous.Scope == listenersv1alpha1.ListenerScopeNode && status.NodePorts != nil &&
		m.node != nil {
		// The Listener does not follow those of the node.
		return slices.ContainsFunc(m.previous.IngressAddresses, m.isOfNode)
	}
	return m.class == nil && (len(m.previous.IngressAddresses) > 0 ||
		len(status.IngressAddresses) == 0 && status.NodePorts == nil)
}

// previousExposure is how long a Pod waits while its Listener has only addresses that are about to go away: its
// programs would advertise them. Then it gets them: they work, and a wrong class must not keep Pods from starting.
const previousExposure = 2 * time.Minute

// untilPrevious returns how long a Pod that has PodListeners since a time still waits for others than previous
// addresses, and why. Those of the Pod alone are no previous ones: the new exposure may be complete only with them.
func (m *mount) untilPrevious(since metav1.Time, now time.Time) (left time.Duration, text string) {
	own := m.ownAddresses()
	if m.listener == nil || m.listener.Status == nil || len(m.previous.IngressAddresses) > 0 ||
		own != nil && len(own.Addresses) > 0 {
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
func (m *mount) ownAddresses() *exposure.Exposed {
	if m.listener == nil || m.class == nil || m.node == nil || m.backend.PodAddresses == nil {
		return nil
	}
	return m.backend.PodAddresses(&exposure.Listener{Listener: m.listener, Class: m.class}, m.pod, m.node)
}

func (m *mount) statusCurrent() bool {
	return m.listener != nil && m.listener.Status != nil &&
		m.listener.Status.ObservedGeneration == m.listener.Generation && m.listener.DeletionTimestamp == nil
}
