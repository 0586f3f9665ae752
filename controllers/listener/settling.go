package listener

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
)

// settler decides when the status of a Listener follows what is observed: other addresses than the published ones, that
// nothing responds, or nodes without Pods.
type settler struct {
	since
	nodes *settling.Nodes
	// started returns when the first Listener was reconciled. After a restart, the published addresses are in the statuses.
	started func() time.Time
	// idle and unused are how long nothing may respond, and no Pod be on a node.
	idle, unused time.Duration
}

func newSettler(c clock.PassiveClock, nodes *settling.Nodes, unused time.Duration) *settler {
	return &settler{since{cache.NewExpiring(), c}, nodes, sync.OnceValue(c.Now), idlePeriod, unused}
}

// since has since when states last, by keys that name them. They start again after a restart, and expire.
type since struct {
	*cache.Expiring
	clock clock.PassiveClock
}

type (
	// complete has the backend of a Listener whose addresses are complete while a previous exposure exists.
	complete types.UID
	// releasing is a Listener that waits for the node ports or cluster IPs of its deleted Service.
	releasing types.UID
	// unpublished is a Listener whose addresses differ from the published ones.
	unpublished types.UID
	// incomplete is a Listener that publishes fewer addresses than it will have.
	incomplete types.UID
	// unresponsive is a Listener at whose addresses nothing responds.
	unresponsive types.UID
	// usedNodes has the nodes of the Pods of a Listener while others are unused.
	usedNodes types.UID
	// changedClass is a class that was changed a moment ago, and changedListener a Listener.
	changedClass    string
	changedListener types.UID
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

// isChanged reports whether the Listener or its class was changed a moment ago: controllers that follow, such as
// those of load balancers, take a while.
func (x *settler) isChanged(s *snapshot) bool {
	if status := s.listener.Status; status != nil && status.ObservedGeneration != s.listener.Generation {
		if status.ObservedGeneration != 0 {
			x.mark(changedListener(s.listener.UID))
		}
		return true
	}
	for _, key := range []any{changedListener(s.listener.UID), changedClass(s.listener.Class())} {
		if last, ok := x.Get(key); ok && x.clock.Since(last.(period).since) < x.nodes.Period {
			return true
		}
	}
	return false
}

// settleNodes gives the nodes of a placement their settled addresses, and returns after what time others are followed,
// or 0.
func (x *settler) settleNodes(s *snapshot, p *exposure.Placement) (left time.Duration) {
	x.started()
	published := addressSet(s.listener.Status.TargetAddresses())
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
func (x *settler) settle(s *snapshot, w *written, placement exposure.Placement, a addresses) (_ addresses, left time.Duration) {
	if !hasSource(s, w) {
		return a, 0
	}
	published, uid := s.listener.Status.TargetAddresses(), s.listener.UID
	isReported := !x.isChanged(s) && !slices.ContainsFunc(placement.Nodes, func(n *corev1.Node) bool { return x.nodes.Written(n.Name) })
	switch {
	case isReported && endpointSet(published).Equal(endpointSet(a.published.Addresses)):
		a.published.Addresses = inOrderOf(published, a.published.Addresses)
	case isReported && !x.completes(uid, a) && x.mayReturn(s, placement, published, a):
		if left = x.nodes.Period - x.age(unpublished(uid), ""); left > 0 {
			return a.keep(), left
		}
	}
	x.Delete(unpublished(uid))
	if a.desired.Complete {
		x.Delete(incomplete(uid))
	} else {
		x.mark(incomplete(uid))
	}
	return a, 0
}

// completes reports whether a Listener that published fewer addresses than it will have now has them all.
func (x *settler) completes(uid types.UID, a addresses) bool {
	_, was := x.Get(incomplete(uid))
	return was && a.desired.Complete
}

// keep returns the addresses with the published ones in their place. Those of a previous exposure still say what they
// wait for.
func (a addresses) keep() addresses {
	if a.kept = true; !a.previous {
		a.desired.Reason, a.desired.Message, a.published.Reason, a.published.Message = "", "", "", ""
	}
	return a
}

// inOrderOf returns a copy of the addresses, which are the published ones, in the order of these.
func inOrderOf(published, all []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	position := func(a listenersv1alpha1.IngressAddress) int {
		return slices.IndexFunc(published, func(p listenersv1alpha1.IngressAddress) bool { return p.Address == a.Address })
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b listenersv1alpha1.IngressAddress) int { return cmp.Compare(position(a), position(b)) })
}

// hasSource reports whether the addresses follow from what others report, rather than from the Service alone, which was
// there before and is not being deleted.
func hasSource(s *snapshot, w *written) bool {
	if s.class == nil || s.service == nil || w.service == nil || w.refusal != nil || s.serviceTerminating() {
		return false
	}
	return !s.backend.Headless && (!s.backend.PlainService || s.class.Spec.ServiceType != listenersv1alpha1.ServiceTypeClusterIP)
}

// mayReturn reports whether the published addresses may come back, although the Listener has others: their ports are
// not those of the same addresses, and of addresses of nodes, whose own have settled, a node still has one, or an
// earlier process may have seen it.
func (x *settler) mayReturn(s *snapshot, placement exposure.Placement, published []listenersv1alpha1.IngressAddress, a addresses) bool {
	before, now := addressSet(published), addressSet(a.published.Addresses)
	switch {
	case len(published) == 0, before.Equal(now), (s.listener.Status.NodePorts == nil) != (a.published.NodePorts == nil):
		return false
	case a.published.NodePorts == nil && !s.backend.IsNodeScoped(s.class):
		return true
	}
	names := make([]string, len(placement.Nodes))
	for i, node := range placement.Nodes {
		names[i] = node.Name
		if slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return before.Has(a.Address) && !now.Has(a.Address) }) {
			return true
		}
	}
	return x.clock.Since(x.started()) < x.nodes.Period && len(names) > 0 && columns.Names(names) == s.listener.Status.Summary.Nodes
}

func addressSet(addresses []listenersv1alpha1.IngressAddress) sets.Set[string] {
	set := sets.New[string]()
	for _, a := range addresses {
		set.Insert(a.Address)
	}
	return set
}

// endpointSet returns the addresses with each of their ports.
func endpointSet(addresses []listenersv1alpha1.IngressAddress) sets.Set[string] {
	set := sets.New[string]()
	for _, a := range addresses {
		for _, port := range slices.Sorted(maps.Keys(a.Ports)) {
			set.Insert(a.Address + " " + port + " " + strconv.Itoa(int(a.Ports[port])))
		}
	}
	return set
}
