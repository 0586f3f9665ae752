package listener

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

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
	unused := sets.New[string]()
	if s.class == nil || claim.OwnsListener(s.listener) || forwards(s, w) || replacesSelector(s, p) {
		return unused
	}
	for _, node := range placement.Nodes {
		if !used.Has(node.Name) {
			unused.Insert(node.Name)
		}
	}
	return unused
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
