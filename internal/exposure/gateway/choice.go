package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/registry"
)

type section struct {
	gateway gatewayName
	name    string
}

func (s section) key() registry.Key {
	return registry.Key{Kind: listenersv1alpha1.WaitingKindGatewayListener, Value: s.gateway.String() + "/" + s.name}
}

// sectionsOf returns the listeners of Gateways that a route names.
func sectionsOf(o exposure.Object) (keys []registry.Key) {
	for _, parent := range routeOf(o).parents {
		if gateway, ok := gatewayOf(o.GetNamespace(), parent); ok && parent.SectionName != nil {
			keys = append(keys, section{gateway, string(*parent.SectionName)}.key())
		}
	}
	return keys
}

type candidate struct {
	section
	listener *gatewayv1.Listener
	// problem is why it is not available, or "". forbidden states that it does not allow the namespace.
	problem   string
	forbidden bool
}

// choose returns the listener of a Gateway for the route of each port, which no other has. A route keeps its own,
// unless another Listener has it: users may change routes. Otherwise, it gets the one that is published.
func (b routes) choose(l *exposure.Listener, others exposure.Others,
	ports []string) (map[string]section, *exposure.Refusal) {
	published := func(port string, number int32) bool {
		return slices.ContainsFunc(l.Last(), func(a listenersv1alpha1.IngressAddress) bool {
			return a.Ports[port] == number
		})
	}
	rivals := rivals{others, claimsOf(others)}
	candidates := b.candidates(l)
	chosen, byPort := map[section]bool{}, map[string]section{}
	for _, port := range ports {
		if kept, ok := b.kept(l, rivals, port, candidates); ok && !chosen[kept] {
			byPort[port], chosen[kept] = kept, true
		}
	}
	if len(byPort) < len(ports) {
		b.findProblems(l, rivals, candidates)
	}
	for _, port := range ports {
		if _, ok := byPort[port]; ok {
			continue
		}
		free := slices.DeleteFunc(slices.Clone(candidates),
			func(c candidate) bool { return c.problem != "" || chosen[c.section] })
		if len(free) == 0 {
			return nil, b.noneFree(l, port, candidates, chosen)
		}
		next := free[max(0, slices.IndexFunc(free, func(c candidate) bool {
			return published(port, int32(c.listener.Port))
		}))].section
		byPort[port], chosen[next] = next, true
	}
	return byPort, nil
}

// candidates returns the listeners that the routes can attach to, in the order of the class and of its Gateways.
func (b routes) candidates(l *exposure.Listener) []candidate {
	var candidates []candidate
	for _, parent := range l.Class.Spec.Gateway.ParentRefs {
		name := gatewayName{Namespace: parent.Namespace, Name: parent.Name}
		listeners := ptr.Deref(findGateway(l, name), gatewayv1.Gateway{}).Spec.Listeners
		for i := range listeners {
			c := candidate{section: section{name, string(listeners[i].Name)}, listener: &listeners[i]}
			same := func(other candidate) bool { return other.section == c.section }
			inClass := (parent.SectionName == "" || parent.SectionName == c.name) &&
				(parent.Port == 0 || parent.Port == int32(c.listener.Port))
			if b.speaks(c.listener) && inClass && !slices.ContainsFunc(candidates, same) {
				candidates = append(candidates, c)
			}
		}
	}
	return candidates
}

// findProblems finds out which candidates are not available.
func (b routes) findProblems(l *exposure.Listener, r rivals, candidates []candidate) {
	for i := range candidates {
		c := &candidates[i]
		gateway := findGateway(l, c.gateway)
		other := r.holder(gateway, c.listener, nil)
		switch {
		case !allows(gateway, c.listener, l.Namespace, l.NamespaceLabels):
			c.problem, c.forbidden = fmt.Sprintf("its allowedRoutes do not allow namespace %s", l.Namespace), true
		case other != nil:
			c.problem = fmt.Sprintf("%s %s/%s has it", b.Kind, other.GetNamespace(), other.GetName())
		case r.HasTaken(c.key()):
			c.problem = fmt.Sprintf("Listener %s has it", r.Holder(c.key()))
		}
	}
}

type rivals struct {
	exposure.Others
	claims claims
}

func publishes(l *exposure.Listener, gateway gatewayName, number int32) bool {
	addresses := exposure.AddressSet(gatewayAddresses(findGateway(l, gateway)))
	return slices.ContainsFunc(l.Last(), func(a listenersv1alpha1.IngressAddress) bool {
		return addresses.Has(a.Address) && slices.Contains(slices.Collect(maps.Values(a.Ports)), number)
	})
}

// published returns what a Listener has by its status: listeners of Gateways or, if its class has a range, ports.
func (b routes) published(l *exposure.Listener) (keys []registry.Key) {
	for _, name := range b.references(l.Class, nil) {
		gateway := ptr.Deref(findGateway(l, name), gatewayv1.Gateway{})
		addresses := exposure.AddressSet(gatewayAddresses(&gateway))
		for _, a := range l.Status.TargetAddresses() {
			if !addresses.Has(a.Address) {
				continue
			}
			for port, number := range a.Ports {
				if l.PortProtocol(port) != b.Protocol {
					continue
				}
				if l.Class.GatewayPortRange() != "" {
					keys = append(keys, portKey(name, number))
					continue
				}
				for i := range gateway.Spec.Listeners {
					if listener := &gateway.Spec.Listeners[i]; int32(listener.Port) == number && b.speaks(listener) {
						keys = append(keys, section{name, string(listener.Name)}.key())
					}
				}
			}
		}
	}
	return keys
}

// claims are the oldest of the other routes with each parent, by their namespaces, which a Gateway allows or not. So
// the routes of a namespace cost no time for each listener of a Gateway.
type claims map[claim]map[string]exposure.Object

// claim is a parent of a route. An empty name is any listener of the Gateway, and port 0 one at any port.
type claim struct {
	section
	port int32
}

func claimsOf(others exposure.Others) claims {
	all := claims{}
	for _, other := range others.Objects {
		namespace := other.GetNamespace()
		for _, parent := range routeOf(other).parents {
			gateway, ok := gatewayOf(namespace, parent)
			c := claim{section{gateway, string(ptr.Deref(parent.SectionName, ""))}, ptr.Deref(parent.Port, 0)}
			if first := all[c][namespace]; !ok || first != nil && !older(other, first) {
				continue
			}
			if all[c] == nil {
				all[c] = map[string]exposure.Object{}
			}
			all[c][namespace] = other
		}
	}
	return all
}

// holder returns the oldest other route with a listener of a Gateway as its parent, which allows it, or nil. If own is
// given, it considers only routes that are older: the Gateway API gives them precedence.
func (r rivals) holder(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener, own exposure.Object) exposure.Object {
	first, key := own, gatewayName{Namespace: gateway.Namespace, Name: gateway.Name}
	for _, name := range []string{"", string(listener.Name)} {
		for _, port := range []gatewayv1.PortNumber{0, listener.Port} {
			for namespace, other := range r.claims[claim{section{key, name}, port}] {
				if (first == nil || older(other, first)) && allows(gateway, listener, namespace,
					r.Namespaces[namespace]) {
					first = other
				}
			}
		}
	}
	if first == own {
		return nil
	}
	return first
}

func older(a, b exposure.Object) bool {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// kept returns the listener of a Gateway that a port's route has. It keeps one that no longer exists, or that no longer
// allows the namespace, because it may return. ok is false if there is none, if the class no longer refers to it, if it
// has another protocol now, or if it belongs to another one.
func (b routes) kept(l *exposure.Listener, r rivals, port string, candidates []candidate) (_ section, ok bool) {
	existing, exists := b.Find(l, port)
	if !exists {
		return section{}, false
	}
	parents := routeOf(existing).parents
	if len(parents) != 1 || parents[0].SectionName == nil {
		return section{}, false
	}
	name, isGateway := gatewayOf(l.Namespace, parents[0])
	s := section{name, string(*parents[0].SectionName)}
	inClass := slices.ContainsFunc(l.Class.Spec.Gateway.ParentRefs, func(p listenersv1alpha1.GatewayParent) bool {
		return p.Namespace == name.Namespace && p.Name == name.Name && (p.SectionName == "" || p.SectionName == s.name)
	})
	if !isGateway || !inClass {
		return section{}, false
	}
	if i := slices.IndexFunc(candidates, func(c candidate) bool { return c.section == s }); i >= 0 {
		return s, r.leave(l, candidates[i], existing)
	}
	listeners := ptr.Deref(findGateway(l, name), gatewayv1.Gateway{}).Spec.Listeners
	return s, !slices.ContainsFunc(listeners, func(g gatewayv1.Listener) bool { return string(g.Name) == s.name })
}

// leave reports whether the route of a Listener may keep a listener of a Gateway: no other Listener and no older route
// has it. If the Listener publishes its port, routes of unknown Listeners do not count: users may change them.
func (r rivals) leave(l *exposure.Listener, c candidate, own exposure.Object) bool {
	if r.HasTaken(c.key()) {
		return false
	}
	other := r.holder(findGateway(l, c.gateway), c.listener, own)
	return other == nil || exposure.ControllingListener(other) != nil && publishes(l, c.gateway, int32(c.listener.Port))
}

func (b routes) noneFree(l *exposure.Listener, port string, candidates []candidate,
	chosen map[section]bool) *exposure.Refusal {
	var causes []string
	var waiting listenersv1alpha1.WaitingFor
	for _, name := range b.references(l.Class, nil) {
		var problems []string
		for _, c := range candidates {
			switch {
			case chosen[c.section]:
				c.problem = "another port of this Listener has it"
			case c.forbidden:
				waiting.NamespaceLimit = true
			default:
				waiting.Kind = listenersv1alpha1.WaitingKindGatewayListener
			}
			if c.gateway == name {
				problems = append(problems, c.name+": "+c.problem)
			}
		}
		switch {
		case findGateway(l, name) == nil:
			causes = append(causes, fmt.Sprintf("Gateway %s does not exist", name))
		case len(problems) == 0:
			causes = append(causes, fmt.Sprintf("Gateway %s has none that the class refers to", name))
		default:
			causes = append(causes, fmt.Sprintf("Gateway %s (%s)", name, strings.Join(problems, ", ")))
		}
	}
	return exposure.Refuse(listenersv1alpha1.ReasonNoGatewayListener,
		"port %s needs a listener of a Gateway with protocol %s for itself, and none is free: %s; "+
			"add a listener to a Gateway, or use another class", port, b.protocols[0], strings.Join(causes, "; ")).
		Awaiting(waiting)
}
