package listener

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
)

// idlePeriod is how long nothing may respond at the addresses of a Listener before that is reported. A Pod that is
// replaced, or becomes the leader, takes less, and changes no status then.
const idlePeriod = time.Minute

// settler decides when the status follows what is observed: other addresses, nodes without Pods, or no response.
type settler struct {
	since
	nodes *settling.Nodes
	// started returns when the first Listener was reconciled since a restart.
	started func() time.Time
	// idle and unused are how long nothing may respond, and no Pod be on a node.
	idle, unused time.Duration
}

// since has since when states last, by keys that name them. They start again after a restart, and expire.
type since struct {
	*cache.Expiring
	clock clock.PassiveClock
}

// Keys of since, by the UID of a Listener or the name of a class.
type (
	completed       types.UID // its addresses are complete, with this backend, while a previous exposure exists
	incomplete      types.UID // it publishes fewer addresses than it will have
	unpublished     types.UID // it has other addresses than the published ones
	unresponsive    types.UID // nothing responds at its addresses
	usedNodes       types.UID // its Pods are on these nodes, while others are unused
	deallocation    types.UID // of the node ports or cluster IPs of its deleted Service, for which it waits
	changedListener types.UID
	changedClass    string
	reference       types.UID // an object that backends only read has this generation
)

type period struct {
	state string
	since time.Time
}

// mark records that something is so now.
func (x since) mark(key any) { x.Set(key, period{since: x.clock.Now()}, time.Hour) }

// age returns for how long a key has had a state: 0, unless the last call named the same state.
func (x since) age(key any, state string) time.Duration {
	if last, ok := x.Get(key); ok && last.(period).state == state {
		return x.clock.Since(last.(period).since)
	}
	x.Set(key, period{state, x.clock.Now()}, time.Hour)
	return 0
}

// differs reports whether the last call for a key named another state.
func (x since) differs(key any, state string) bool {
	last, known := x.Get(key)
	x.age(key, state)
	return known && last.(period).state != state
}

// isChanged reports whether the Listener or its class was changed so lately that load balancers may still follow.
func (x *settler) isChanged(s *snapshot) bool {
	if status := s.listener.Status; status != nil && status.ObservedGeneration != s.listener.Generation {
		if status.ObservedGeneration != 0 {
			x.mark(changedListener(s.listener.UID))
		}
		return true
	}
	return slices.ContainsFunc([]any{changedListener(s.listener.UID), changedClass(s.listener.Class())}, func(key any) bool {
		last, ok := x.Get(key)
		return ok && x.clock.Since(last.(period).since) < x.nodes.Period
	})
}

// settleNodes gives nodes their settled addresses, and returns after what time others are followed, or 0.
func (x *settler) settleNodes(s *snapshot, p *exposure.Placement) (left time.Duration) {
	x.started()
	published := exposure.AddressSet(s.listener.Status.TargetAddresses())
	if x.isChanged(s) {
		published = nil
	}
	for i, node := range p.Nodes {
		settled, nodeLeft := x.nodes.Settle(node, published)
		p.Nodes[i], left = settled, requests.Earliest(left, nodeLeft)
	}
	return left
}

// settle returns the addresses of a Listener with the published ones in place of others that do not last, and in their
// order while there are no others. left is after what time others are followed, or 0.
func (x *settler) settle(s *snapshot, w *written, placement exposure.Placement, a chosenAddresses) (_ chosenAddresses, left time.Duration) {
	if !hasSource(s, w) {
		return a, 0
	}
	published, uid := s.listener.Status.TargetAddresses(), s.listener.UID
	isReported := !x.isChanged(s) && !slices.ContainsFunc(placement.Nodes, func(n *corev1.Node) bool { return x.nodes.Written(n.Name) })
	_, wasIncomplete := x.Get(incomplete(uid))
	switch {
	case isReported && endpointSet(published).Equal(endpointSet(a.published.Addresses)):
		a.published.Addresses = exposure.InOrderOf(published, a.published.Addresses)
	case isReported && (!wasIncomplete || !a.desired.Complete) && x.mayReturn(s, placement, published, a):
		if left = x.nodes.Period - x.age(unpublished(uid), ""); left > 0 {
			if a.kept = true; !a.previous { // those of a previous exposure still say what they wait for
				a.desired.Reason, a.desired.Message, a.published.Reason, a.published.Message = "", "", "", ""
			}
			return a, left
		}
	}
	x.Delete(unpublished(uid))
	if x.Delete(incomplete(uid)); !a.desired.Complete {
		x.mark(incomplete(uid))
	}
	return a, 0
}

// hasSource reports whether the addresses follow from what others report about a Service that was there before.
func hasSource(s *snapshot, w *written) bool {
	if s.class == nil || s.service == nil || w.service == nil || w.refusal != nil || s.serviceTerminating() {
		return false
	}
	return !s.backend.Headless && (!s.backend.PlainService || s.class.Spec.ServiceType != listenersv1alpha1.ServiceTypeClusterIP)
}

// mayReturn reports whether the published addresses may come back: others than their ports have changed, and of nodes,
// whose own addresses have settled, one still has a lost address, or an earlier process may have seen it.
func (x *settler) mayReturn(s *snapshot, placement exposure.Placement, published []listenersv1alpha1.IngressAddress, a chosenAddresses) bool {
	before, now := exposure.AddressSet(published), exposure.AddressSet(a.published.Addresses)
	switch {
	case len(published) == 0, before.Equal(now), (s.listener.Status.NodePorts == nil) != (a.published.NodePorts == nil):
		return false
	case a.published.NodePorts == nil && !s.backend.IsNodeScoped(s.class):
		return true
	}
	lost := before.Difference(now)
	hasLost := func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return lost.Has(a.Address) })
	}
	return slices.ContainsFunc(placement.Nodes, hasLost) || x.clock.Since(x.started()) < x.nodes.Period && len(placement.Nodes) > 0 &&
		columns.Names(nodeNames(placement.Nodes)) == s.listener.Status.Summary.Nodes
}

// endpointSet returns the addresses with each of their ports.
func endpointSet(addresses []listenersv1alpha1.IngressAddress) sets.Set[string] {
	set := sets.New[string]()
	for _, a := range addresses {
		for name, port := range a.Ports {
			set.Insert(fmt.Sprintf("%s %s %d", a.Address, name, port))
		}
	}
	return set
}

func nodeNames(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return names
}

// leaveOut removes nodes from the placement at which nothing can answer, if that lasts. It returns the rest of
// the period after which more of them are left out, or 0. After a restart, the period starts again, but what was left
// out before is in the status. While the Listener has no Pod at all, it keeps the addresses that it has.
func (x *settler) leaveOut(s *snapshot, p *plan, w *written, placement exposure.Placement) (exposure.Placement, time.Duration) {
	used := sets.New[string]()
	for _, pod := range placement.Mounting {
		used.Insert(pod.Spec.NodeName)
	}
	unused := unusedNodes(s, p, w, placement, used)
	out := unused.Intersection(sets.New(ptr.Deref(s.listener.Status, listenersv1alpha1.ListenerStatus{}).UnusedNodes...))
	if used.Len() > 0 && out.Len() < unused.Len() {
		age := x.age(usedNodes(s.listener.UID), strings.Join(sets.List(used), " "))
		if remaining := x.unused - age; remaining > 0 {
			left := withoutNodes(s, w, placement, out)
			if reported := condition(s.listener, listenersv1alpha1.ListenerReady).Reason == listenersv1alpha1.ReasonNodesWithoutPods; !reported && age < idlePeriod {
				return left, min(remaining, idlePeriod-age)
			}
			left.EmptyNodes = sets.List(unused.Difference(out))
			return left, remaining
		}
		out = unused
	}
	x.Delete(usedNodes(s.listener.UID))
	return withoutNodes(s, w, placement, out), 0
}

// unusedNodes returns the names of the nodes with reservations at which nothing can answer: the Pods of the Listener
// are on other nodes, the used ones, and nodes do not forward to each other. A Listener that was created for a claim
// has none, and neither has one whose overrides replace the selector of the Service: other Pods respond.
func unusedNodes(s *snapshot, p *plan, w *written, placement exposure.Placement, used sets.Set[string]) sets.Set[string] {
	if s.class == nil || claim.OwnsListener(s.listener) || forwards(s, w) || replacesSelector(s, p) {
		return nil
	}
	return sets.New(nodeNames(placement.Nodes)...).Difference(used)
}

// forwards reports whether a node forwards connections to Pods on other nodes: from node ports, unless the Service has
// the external traffic policy Local. Host ports are those of the node's own Pods.
func forwards(s *snapshot, w *written) bool {
	if s.backend.IsNodeScoped(s.class) && !s.backend.PlainService {
		return false
	}
	return w.service == nil || w.service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal
}

// withoutNodes returns the placement without some nodes, unless none of the others has an address.
func withoutNodes(s *snapshot, w *written, placement exposure.Placement, out sets.Set[string]) exposure.Placement {
	if out.Len() == 0 {
		return placement
	}
	choice := (&exposure.Listener{Listener: s.listener, Class: s.class, Service: w.service}).NodeChoice()
	hasAddress := func(node *corev1.Node) bool {
		_, problem := exposure.NodeAddresses(node, choice)
		return problem == ""
	}
	p := placement
	p.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), func(node *corev1.Node) bool { return out.Has(node.Name) })
	if !slices.ContainsFunc(p.Nodes, hasAddress) {
		return placement
	}
	p.UnusedNodes = sets.List(out)
	return p
}

// idle is why nothing responds at the addresses of a Listener, if that lasts, or empty.
type idle struct{ idleReason, idleMessage string }

// nothingListens returns why nothing can respond at an address of the Listener, or empty strings: no Pod mounts it, no
// Pod has the labels that it selects, or no container declares a port. Programs may listen on ports that no container
// declares, so that is no error; no container can declare a number that its program reads from its volume. If overrides
// replace the selector of the Service, other Pods respond.
func nothingListens(s *snapshot, p *plan, w *written, placement exposure.Placement) idle {
	if s.class == nil || w.service == nil || s.serviceTerminating() || replacesSelector(s, p) {
		return idle{}
	}
	selected := slices.DeleteFunc(slices.Clone(placement.Mounting), func(pod *corev1.Pod) bool {
		return !labels.SelectorFromSet(s.listener.Spec.ExtraPodSelectorLabels).Matches(labels.Set(pod.Labels))
	})
	switch undeclared := undeclaredPorts(w.service, selected, s.class.TargetsNodePorts()); {
	case len(placement.Mounting) == 0:
		return idle{listenersv1alpha1.ReasonReserved, "reserved; no Pod mounts it"}
	case len(selected) == 0:
		return idle{listenersv1alpha1.ReasonNoMatchingPods, "no Pod that mounts it has the labels of spec.extraPodSelectorLabels: " + labels.FormatLabels(s.listener.Spec.ExtraPodSelectorLabels)}
	case len(undeclared) > 0:
		return idle{listenersv1alpha1.ReasonPortNotDeclared, "no container of its Pods declares these ports, on which a program has to listen: " + strings.Join(undeclared, ", ")}
	default:
		return idle{}
	}
}

// notReady returns the names of the nodes of the Listener that are not ready, and whether these are all of them.
func notReady(p *exposure.Placement) (nodes []string, all bool) {
	for _, node := range p.Nodes {
		if !claim.NodeReady(node) {
			nodes = append(nodes, node.Name)
		}
	}
	return nodes, len(nodes) > 0 && len(nodes) == len(p.Nodes)
}

// undeclaredPorts returns the ports of a Service that no container declares, except node ports if targetsNodePorts.
func undeclaredPorts(service *corev1.Service, pods []*corev1.Pod, targetsNodePorts bool) []string {
	declared := sets.New[string]()
	for _, pod := range pods {
		for _, p := range claim.ContainerPorts(pod) {
			protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
			declared.Insert(fmt.Sprintf("%d/%s", p.ContainerPort, protocol), fmt.Sprintf("%s/%s", p.Name, protocol))
		}
	}
	var undeclared []string
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		target := port.TargetPort.String()
		if port.TargetPort == (intstr.IntOrString{}) {
			target = strconv.Itoa(int(port.Port))
		}
		isDeclared := declared.Has(fmt.Sprintf("%s/%s", target, cmp.Or(port.Protocol, corev1.ProtocolTCP)))
		if !isDeclared && (!targetsNodePorts || !exposure.TargetsNodePort(port)) {
			undeclared = append(undeclared, fmt.Sprintf("%s (%s)", target, port.Name))
		}
	}
	return undeclared
}

// idleFor returns why nothing responds at the addresses, if that lasts, and the rest of the period after which it is
// reported, or 0. Kubernetes has waited before it says that a node is not ready.
func (x *settler) idleFor(s *snapshot, p *plan, w *written, placement exposure.Placement) (idle, time.Duration) {
	found, ready := nothingListens(s, p, w, placement), condition(s.listener, listenersv1alpha1.ListenerReady)
	isReported := ready.Status == metav1.ConditionTrue &&
		slices.Contains([]string{listenersv1alpha1.ReasonReserved, listenersv1alpha1.ReasonNoMatchingPods, listenersv1alpha1.ReasonPortNotDeclared}, ready.Reason)
	if nodes, all := notReady(&placement); all {
		found = idle{listenersv1alpha1.ReasonNodesNotReady, "no node of its addresses is ready, so they may not respond: " + columns.Names(nodes)}
	} else if found.idleReason != "" && !isReported {
		if remaining := x.idle - x.age(unresponsive(s.listener.UID), ""); remaining > 0 {
			return idle{}, remaining
		}
	}
	x.Delete(unresponsive(s.listener.UID))
	return found, 0
}
