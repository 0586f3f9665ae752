// Package settling decides when addresses follow what Nodes, load balancers, routers and Gateways report, which may
// take one away, or put it elsewhere, for seconds. It must never delay what users and administrators write.
package settling

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/listener-operator/listener-operator/internal/names"
)

// Period is how long a source has to report other addresses than the published ones before these change. It is longer
// than the election of a keepalived or MetalLB speaker and than the restart of a controller, and shorter than clients
// retry. docs/address-changes.md has it, too.
const Period = 30 * time.Second

// Nodes has the settled addresses of Nodes, by name. Controllers share it, so that they publish the same ones.
type Nodes struct {
	// Period is the constant Period, except in tests.
	Period time.Duration

	clock clock.PassiveClock
	mu    sync.Mutex
	nodes map[string]*node
}

func NewNodes(c clock.PassiveClock) *Nodes {
	return &Nodes{Period: Period, clock: c, nodes: map[string]*node{}}
}

// node is what is known of a Node: its settled addresses, whether they have followed others since the operator started,
// and since when the Node reports others, or zero. annotation overrides the addresses, and was written at a time.
type node struct {
	uid        types.UID
	addresses  []corev1.NodeAddress
	followed   bool
	since      time.Time
	annotation string
	written    time.Time
}

// Settle returns a Node with its settled addresses, and after what time others are followed, or 0. Additional ones come
// last, and published ones, whose order an earlier process knew, first until others are followed for the first time.
func (n *Nodes) Settle(observed *corev1.Node, published sets.Set[string]) (_ *corev1.Node, left time.Duration) {
	now, addresses, annotation := n.clock.Now(), observed.Status.Addresses,
		observed.Annotations[names.AnnotationAdvertisedAddress]
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.nodes[observed.Name]
	if known == nil || known.uid != observed.UID {
		known = &node{uid: observed.UID, addresses: addresses, annotation: annotation}
		n.nodes[observed.Name] = known
	}
	if known.annotation != annotation {
		known.annotation, known.written = annotation, now
	}
	had := sets.New(known.addresses...)
	switch same := had.Equal(sets.New(addresses...)); {
	case same:
		known.since = time.Time{}
	case known.since.IsZero():
		known.since = now
	}
	if !known.since.IsZero() {
		if left = n.Period - now.Sub(known.since); left <= 0 || len(had) == 0 {
			known.addresses, known.followed, known.since = addresses, true, time.Time{}
			return observed, 0
		}
	}
	settled := append(slices.Clone(known.addresses), slices.DeleteFunc(slices.Clone(addresses), had.Has)...)
	if !known.followed {
		isPublished := func(a corev1.NodeAddress) bool { return published.Has(a.Address) }
		others := slices.DeleteFunc(slices.Clone(settled), isPublished)
		settled = append(slices.DeleteFunc(settled, func(a corev1.NodeAddress) bool { return !isPublished(a) }),
			others...)
	}
	if slices.Equal(settled, addresses) {
		return observed, left
	}
	copied := *observed
	copied.Status.Addresses = settled
	return &copied, left
}

// Written reports whether the annotation of a Node that overrides its addresses was written a moment ago.
func (n *Nodes) Written(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.nodes[name]
	return known != nil && !known.written.IsZero() && n.clock.Since(known.written) < n.Period
}

func (n *Nodes) Forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, name)
}
