// Package settle decides when the status of a Listener follows what is observed: sources report other addresses for a
// moment, Pods are replaced, and nodes restart. It knows the time, but no client.
package settle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
)

// IdlePeriod is how long nothing may respond at the addresses of a Listener before that is reported. A Pod that is
// replaced, or becomes the leader, takes less, and changes no status then.
const IdlePeriod = time.Minute

// Settler decides when the status follows what is observed: other addresses, nodes without Pods, or no response.
type Settler struct {
	*Since
	Nodes *settling.Nodes
	// Started returns when the first Listener was reconciled since a restart.
	Started func() time.Time
	// Idle and Unused are how long nothing may respond, and no Pod be on a node.
	Idle, Unused time.Duration
}

// New returns a Settler. Without nodes, it has settled addresses of its own.
func New(c clock.PassiveClock, nodes *settling.Nodes, unused time.Duration) *Settler {
	return &Settler{
		Since: &Since{cache.NewExpiring(), c}, Nodes: cmp.Or(nodes, settling.NewNodes(c)),
		Started: sync.OnceValue(c.Now),
		Idle:    IdlePeriod, Unused: unused,
	}
}

// OrphanedFor returns for how long no owner has kept a Listener without a Pod, as far as this process knows.
func (x *Settler) OrphanedFor(s *observe.Snapshot) time.Duration {
	if owners := claim.KeepOf(s.Listener).Owners; s.Awaiting {
		if age := x.Age(kept(s.Listener.UID), fmt.Sprint(owners)); len(owners) == 0 {
			return age
		}
	}
	return 0
}

// isChanged reports whether the Listener or its class was changed so lately that load balancers may still follow.
func (x *Settler) isChanged(s *observe.Snapshot) bool {
	if status := s.Listener.Status; status != nil && status.ObservedGeneration != s.Listener.Generation {
		if status.ObservedGeneration != 0 {
			x.Mark(changedListener(s.Listener.UID))
		}
		return true
	}
	return slices.ContainsFunc([]any{changedListener(s.Listener.UID), ChangedClass(s.Listener.Class())},
		func(key any) bool {
			last, ok := x.Get(key)
			return ok && x.Clock.Since(last.(period).since) < x.Nodes.Period
		})
}

// SettleNodes gives nodes their settled addresses, and returns after what time others are followed, or 0.
func (x *Settler) SettleNodes(s *observe.Snapshot, p *exposure.Placement) (left time.Duration) {
	x.Started()
	published := exposure.AddressSet(s.Listener.Status.TargetAddresses())
	if x.isChanged(s) {
		published = nil
	}
	for i, node := range p.Nodes {
		settled, nodeLeft := x.Nodes.Settle(node, published)
		p.Nodes[i], left = settled, requests.Earliest(left, nodeLeft)
	}
	return left
}

// Settle returns the addresses of a Listener with the published ones in place of others that do not last, and in their
// order while there are no others. left is after what time others are followed, or 0.
func (x *Settler) Settle(s *observe.Snapshot, w *observe.Written, placement exposure.Placement,
	a decide.Addresses) (_ decide.Addresses, left time.Duration) {
	if !hasSource(s, w) {
		return a, 0
	}
	published, uid := s.Listener.Status.TargetAddresses(), s.Listener.UID
	isReported := !x.isChanged(s) && !slices.ContainsFunc(placement.Nodes,
		func(n *corev1.Node) bool { return x.Nodes.Written(n.Name) })
	_, wasIncomplete := x.Get(incomplete(uid))
	switch {
	case isReported && endpointSet(published).Equal(endpointSet(a.Published.Addresses)):
		a.Published.Addresses = exposure.InOrderOf(published, a.Published.Addresses)
	case isReported && (!wasIncomplete || !a.Desired.Complete) && x.mayReturn(s, placement, published, a):
		if left = x.Nodes.Period - x.Age(unpublished(uid), ""); left > 0 {
			if a.KeepsStatus = true; !a.Previous { // those of a previous exposure still say what they wait for
				a.Desired.Reason, a.Desired.Message, a.Published.Reason, a.Published.Message = "", "", "", ""
			}
			return a, left
		}
	}
	x.Delete(unpublished(uid))
	if x.Delete(incomplete(uid)); !a.Desired.Complete {
		x.Mark(incomplete(uid))
	}
	return a, 0
}

// hasSource reports whether the addresses follow from what others report about a Service that was there before.
func hasSource(s *observe.Snapshot, w *observe.Written) bool {
	if s.Class == nil || s.Objects.Service == nil || w.Objects.Service == nil || w.Refusal != nil ||
		s.ServiceTerminating() {
		return false
	}
	return !s.Backend.Headless && (!s.Backend.PlainService ||
		s.Class.Spec.ServiceType != listenersv1alpha1.ServiceTypeClusterIP)
}

// mayReturn reports whether the published addresses may come back: others than their ports have changed, and of nodes,
// whose own addresses have settled, one still has a lost address, or an earlier process may have seen it.
func (x *Settler) mayReturn(s *observe.Snapshot, placement exposure.Placement,
	published []listenersv1alpha1.IngressAddress, a decide.Addresses) bool {
	before, now := exposure.AddressSet(published), exposure.AddressSet(a.Published.Addresses)
	switch {
	case len(published) == 0, before.Equal(now), (s.Listener.Status.NodePorts == nil) != (a.Published.NodePorts == nil):
		return false
	case a.Published.NodePorts == nil && !s.Backend.IsNodeScoped(s.Class):
		return true
	}
	lost := before.Difference(now)
	hasLost := func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Addresses,
			func(a corev1.NodeAddress) bool { return lost.Has(a.Address) })
	}
	return slices.ContainsFunc(placement.Nodes, hasLost) || x.Clock.Since(x.Started()) < x.Nodes.Period &&
		len(placement.Nodes) > 0 && columns.Names(decide.NodeNames(placement.Nodes)) == s.Listener.Status.Summary.Nodes
}

func endpointSet(addresses []listenersv1alpha1.IngressAddress) sets.Set[string] {
	set := sets.New[string]()
	for _, a := range addresses {
		for name, port := range a.Ports {
			set.Insert(fmt.Sprintf("%s %s %d", a.Address, name, port))
		}
	}
	return set
}

// LeaveOut removes nodes from the placement that are drained, and those at which nothing can answer, if that lasts. It
// returns the rest of the period after which more of them are left out, or 0. After a restart, the period starts again,
// but what was left out before is in the status. While the Listener has no Pod at all, it keeps the addresses that it
// has.
func (x *Settler) LeaveOut(s *observe.Snapshot, p *decide.Plan, w *observe.Written,
	placement exposure.Placement) (exposure.Placement, time.Duration) {
	placement.Nodes, placement.DrainedNodes = withoutNodes(s, w, placement.Nodes, drainedNodes(placement))
	used := sets.New[string]()
	for _, pod := range placement.Mounting {
		used.Insert(pod.Spec.NodeName)
	}
	unused := unusedNodes(s, p, w, placement, used)
	out := unused.Intersection(sets.New(ptr.Deref(s.Listener.Status,
		listenersv1alpha1.ListenerStatus{}).UnusedNodes...))
	if used.Len() > 0 && out.Len() < unused.Len() {
		age := x.Age(usedNodes(s.Listener.UID), strings.Join(sets.List(used), " "))
		if remaining := x.Unused - age; remaining > 0 {
			left := placement
			left.Nodes, left.UnusedNodes = withoutNodes(s, w, placement.Nodes, out)
			if reported := observe.Condition(s.Listener,
				listenersv1alpha1.ListenerReady).Reason == listenersv1alpha1.ReasonNodesWithoutPods; !reported &&
				age < IdlePeriod {
				return left, min(remaining, IdlePeriod-age)
			}
			left.EmptyNodes = sets.List(unused.Difference(out))
			return left, remaining
		}
		out = unused
	}
	x.Delete(usedNodes(s.Listener.UID))
	placement.Nodes, placement.UnusedNodes = withoutNodes(s, w, placement.Nodes, out)
	return placement, 0
}

// drainedNodes returns the names of the nodes that take no Pods any more, and on which each Pod of the Listener ends:
// clients are led elsewhere before they have ended. A node that is only cordoned keeps its Pods.
func drainedNodes(placement exposure.Placement) sets.Set[string] {
	drained := sets.New[string]()
	for _, node := range placement.Nodes {
		if node.Spec.Unschedulable {
			drained.Insert(node.Name)
		}
	}
	for _, pod := range placement.Mounting {
		if pod.DeletionTimestamp.IsZero() {
			drained.Delete(pod.Spec.NodeName)
		}
	}
	return drained
}

// unusedNodes returns the names of the nodes with reservations at which nothing can answer: the Pods of the Listener
// are on other nodes, the used ones, and nodes do not forward to each other. A Listener that was created for a claim
// has none, and neither has one whose overrides replace the selector of the Service: other Pods respond.
func unusedNodes(s *observe.Snapshot, p *decide.Plan, w *observe.Written, placement exposure.Placement,
	used sets.Set[string]) sets.Set[string] {
	if s.Class == nil || claim.OwnsListener(s.Listener) || forwards(s, w) || decide.ReplacesSelector(s, p) {
		return nil
	}
	return sets.New(decide.NodeNames(placement.Nodes)...).Difference(used)
}

// forwards reports whether a node forwards connections to Pods on other nodes: from node ports, unless the Service has
// the external traffic policy Local. Host ports are those of the node's own Pods.
func forwards(s *observe.Snapshot, w *observe.Written) bool {
	if s.Backend.IsNodeScoped(s.Class) && !s.Backend.PlainService {
		return false
	}
	return w.Objects.Service == nil ||
		w.Objects.Service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal
}

// withoutNodes returns nodes without some, and the sorted names of these, unless none of the others has an address.
func withoutNodes(s *observe.Snapshot, w *observe.Written, nodes []*corev1.Node,
	out sets.Set[string]) (left []*corev1.Node, without []string) {
	if s.Class == nil || out.Len() == 0 {
		return nodes, nil
	}
	choice := (&exposure.Listener{Listener: s.Listener, Class: s.Class, Service: w.Objects.Service}).NodeChoice()
	hasAddress := func(node *corev1.Node) bool {
		_, problem := exposure.NodeAddresses(node, choice)
		return problem == ""
	}
	left = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return out.Has(node.Name) })
	if !slices.ContainsFunc(left, hasAddress) {
		return nodes, nil
	}
	return left, sets.List(out)
}

// IdleFor returns why nothing responds at the addresses, if that lasts, and the rest of the period after which it is
// reported, or 0. Kubernetes has waited before it says that a node is not ready.
func (x *Settler) IdleFor(s *observe.Snapshot, p *decide.Plan, w *observe.Written,
	placement exposure.Placement) (decide.Idle, time.Duration) {
	found, ready := decide.NothingListens(s, p, w, placement),
		observe.Condition(s.Listener, listenersv1alpha1.ListenerReady)
	isReported := ready.Status == metav1.ConditionTrue &&
		slices.Contains([]string{listenersv1alpha1.ReasonReserved, listenersv1alpha1.ReasonNoMatchingPods,
			listenersv1alpha1.ReasonPortNotDeclared}, ready.Reason)
	if nodes, all := decide.NotReady(&placement); all {
		found = decide.Idle{Reason: listenersv1alpha1.ReasonNodesNotReady,
			Message: "no node of its addresses is ready, so they may not respond: " + columns.Names(nodes)}
	} else if found.Reason != "" && !isReported {
		if remaining := x.Idle - x.Age(Unresponsive(s.Listener.UID), ""); remaining > 0 {
			return decide.Idle{}, remaining
		}
	}
	x.Delete(Unresponsive(s.Listener.UID))
	return found, 0
}
