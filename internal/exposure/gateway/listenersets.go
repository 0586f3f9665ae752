package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/registry"
)

const listenerSetKind = "ListenerSet"

// listenerSets returns the kind of the ListenerSets. The backends of TCPRoutes and of UDPRoutes share it, because no
// two listeners of a Gateway get the same number: not every implementation serves TCP and UDP at one port.
func (b routes) listenerSets() *exposure.Kind {
	return &exposure.Kind{
		GroupVersionKind: groupVersion.WithKind(listenerSetKind),
		Resource:         "listenersets",
		NeededBy:         func(class *listenersv1alpha1.ListenerClass) bool { return class.GatewayPortRange() != "" },
		Owns:             func(o exposure.Object) bool { return strings.HasSuffix(o.GetName(), b.listenerSetSuffix()) },
		Holds:            setPortsOf,
		Exclusive:        listenersv1alpha1.WaitingKindGatewayPort,
		Trim:             trimListenerSet,
		AddToScheme:      gatewayv1.Install,
	}
}

// trimListenerSet keeps which ports of which Gateway a ListenerSet of another client has.
func trimListenerSet(o exposure.Object) {
	set := o.(*gatewayv1.ListenerSet)
	set.Annotations, set.Labels, set.Status = nil, nil, gatewayv1.ListenerSetStatus{}
	for i := range set.Spec.Listeners {
		set.Spec.Listeners[i] = gatewayv1.ListenerEntry{Name: set.Spec.Listeners[i].Name,
			Port: set.Spec.Listeners[i].Port}
	}
}

// listenerSetSuffix ends the names of ListenerSets, so that those of TCPRoute and UDPRoute do not replace each other.
func (b routes) listenerSetSuffix() string { return "-" + strings.ToLower(string(b.protocols[0])) }

func (b routes) listenerSetName(l *exposure.Listener) types.NamespacedName {
	return types.NamespacedName{Namespace: l.Namespace, Name: l.Name + b.listenerSetSuffix()}
}

// withListenerSet returns the ListenerSet of a Listener, which has a listener for each port, and the routes to these.
func (b routes) withListenerSet(l *exposure.Listener, others exposure.Others,
	ports []string) ([]exposure.Desired, *exposure.Refusal) {
	desired, refusal := b.desired(l, host.Template{}, func(port string) []any {
		return []any{parentRef(listenerSetKind, b.listenerSetName(l), port, 0)}
	})
	if refusal != nil {
		return nil, refusal
	}
	gateway, numbers, refusal := b.allocate(l, others, ports)
	if refusal != nil {
		return nil, refusal
	}
	var listeners []any
	for _, port := range ports {
		listeners = append(listeners, map[string]any{
			"name": port, "port": int64(numbers[port]), "protocol": string(b.protocols[0]),
			"allowedRoutes": map[string]any{
				"namespaces": map[string]any{"from": string(gatewayv1.NamespacesFromSame)},
				"kinds":      []any{map[string]any{"group": gatewayv1.GroupName, "kind": b.Kind}},
			},
		})
	}
	spec := map[string]any{"parentRef": parentRef("Gateway", gateway, "", 0), "listeners": listeners}
	set := exposure.NewObject(l, groupVersion.WithKind(listenerSetKind), b.listenerSetName(l).Name, nil, nil, spec)
	return slices.Insert(desired, 0, exposure.Desired{Unstructured: set}), nil
}

// allocate returns the Gateway of the class that serves a Listener, and a port of it for each port of the Listener. A
// Listener stays at its Gateway, also while that does not exist, or does not allow the namespace, because it may again.
func (b routes) allocate(l *exposure.Listener, others exposure.Others,
	ports []string) (gatewayName, map[string]int32, *exposure.Refusal) {
	own, gateways := b.existingListenerSet(l), b.references(l.Class, nil)
	var staying *gatewayv1.ListenerSet
	if own != nil && slices.Contains(gateways, gatewayOfSet(own)) {
		staying, gateways = own, []gatewayName{gatewayOfSet(own)}
	}
	reason, messages := "", []string(nil) // the reason is the one for the first Gateway
	var waiting listenersv1alpha1.WaitingFor
	refuse := func(why, format string, args ...any) {
		reason, messages = cmp.Or(reason, why), append(messages, fmt.Sprintf(format, args...))
	}
	for _, name := range publishedFirst(l, gateways) {
		gateway := findGateway(l, name)
		switch {
		case gateway == nil && staying == nil:
			refuse(listenersv1alpha1.ReasonNoGatewayListener,
				"Gateway %s does not exist; create it, or name another one in spec.gateway.parentRefs of "+
					"ListenerClass %s", name, l.Class.Name)
			continue
		case staying == nil && !allowsListenerSets(gateway, l.Namespace, l.NamespaceLabels):
			refuse(listenersv1alpha1.ReasonListenerSetNotAllowed, "%s", notAllowed(name, l.Namespace))
			waiting.NamespaceLimit = true
			continue
		}
		numbers, without := allocateNumbers(l, own, ports, usedBy(l, name, gateway, others, staying))
		if without == "" {
			return name, numbers, nil
		}
		refuse(listenersv1alpha1.ReasonGatewayPortsExhausted,
			"no port of Gateway %s is left for port %s: its other listeners have all of %s; extend "+
				"spec.gateway.portRange of ListenerClass %s, or delete Listeners",
			name, without, l.Class.GatewayPortRange(), l.Class.Name)
		waiting.Kind = listenersv1alpha1.WaitingKindGatewayPort
	}
	return gatewayName{}, nil, exposure.Refuse(reason, "%s", strings.Join(messages, "; ")).Awaiting(waiting)
}

func notAllowed(gateway gatewayName, namespace string) string {
	return fmt.Sprintf("Gateway %s does not allow ListenerSets of namespace %s; an administrator has to allow the "+
		"namespace in spec.allowedListeners of the Gateway", gateway, namespace)
}

// publishedFirst returns the Gateways with those at first whose address is published.
func publishedFirst(l *exposure.Listener, gateways []gatewayName) []gatewayName {
	last := exposure.AddressSet(l.Last()).UnsortedList()
	return first(gateways, func(name gatewayName) bool {
		return exposure.AddressSet(gatewayAddresses(findGateway(l, name))).HasAny(last...)
	})
}

// usedBy returns whether a Gateway, which may be nil, has no port of a number left: its own listeners have it, or
// another Listener does, or a ListenerSet that is older than the Listener's own, if there is one. Which ports those of
// unknown Listeners have proves nothing against what the Listener publishes: users may change ListenerSets.
func usedBy(
	l *exposure.Listener, name gatewayName, gateway *gatewayv1.Gateway, others exposure.Others,
	own *gatewayv1.ListenerSet,
) func(number int32) bool {
	if gateway == nil {
		return func(int32) bool { return false }
	}
	used, ofListeners := portsOf(name, gateway, others, own)
	return func(number int32) bool {
		return others.HasTaken(portKey(name, number)) || used[number] ||
			ofListeners[number] && !publishes(l, name, number)
	}
}

// portsOf returns the ports of a Gateway's own listeners, and of ListenerSets that precede own, or are of Listeners.
func portsOf(
	name gatewayName, gateway *gatewayv1.Gateway, others exposure.Others, own *gatewayv1.ListenerSet,
) (used, ofListeners map[int32]bool) {
	used, ofListeners = map[int32]bool{}, map[int32]bool{}
	for i := range gateway.Spec.Listeners {
		used[int32(gateway.Spec.Listeners[i].Port)] = true
	}
	for _, other := range others.Objects {
		set, ok := other.(*gatewayv1.ListenerSet)
		if ok && gatewayOfSet(set) == name && allowsListenerSets(gateway, set.Namespace,
			others.Namespaces[set.Namespace]) && (own == nil || older(set, own)) {
			ports := used
			if exposure.ControllingListener(set) != nil {
				ports = ofListeners
			}
			for i := range set.Spec.Listeners {
				ports[int32(set.Spec.Listeners[i].Port)] = true
			}
		}
	}
	return used, ofListeners
}

// portKey returns the key of a port of a Gateway that ListenerSets share.
func portKey(gateway gatewayName, number int32) registry.Key {
	return registry.Key{Kind: listenersv1alpha1.WaitingKindGatewayPort, Value: fmt.Sprintf("%s:%d", gateway, number)}
}

func setPortsOf(o exposure.Object) (keys []registry.Key) {
	set := o.(*gatewayv1.ListenerSet)
	for i := range set.Spec.Listeners {
		keys = append(keys, portKey(gatewayOfSet(set), int32(set.Spec.Listeners[i].Port)))
	}
	return keys
}

// allocateNumbers returns a port of a Gateway for each port of a Listener. A port keeps the number that is published,
// or that its ListenerSet has. without is a port for which there is none in the range, or "".
func allocateNumbers(l *exposure.Listener, own *gatewayv1.ListenerSet, ports []string,
	used func(int32) bool) (numbers map[string]int32, without string) {
	parsed, _ := utilnet.ParsePortRange(l.Class.GatewayPortRange()) // the API server validates it
	from := ptr.Deref(parsed, utilnet.PortRange{})
	numbers = map[string]int32{}
	chosen := map[int32]bool{}
	for _, port := range ports {
		for _, number := range kept(l, own, port, from) {
			if !chosen[number] && !used(number) {
				numbers[port], chosen[number] = number, true
				break
			}
		}
	}
	next := from.Base
	for _, port := range ports {
		if numbers[port] != 0 {
			continue
		}
		for next < from.Base+from.Size && (chosen[int32(next)] || used(int32(next))) { //nolint:gosec // a port
			next++
		}
		if next == from.Base+from.Size {
			return nil, port
		}
		numbers[port], chosen[int32(next)] = int32(next), true //nolint:gosec // a port
	}
	return numbers, ""
}

// kept returns the numbers that a port may keep, the preferred one first: its number in the ListenerSet if that is
// published, or published ones of the range, as other clients may change ListenerSets, and then its number anyway.
func kept(l *exposure.Listener, own *gatewayv1.ListenerSet, port string, from utilnet.PortRange) []int32 {
	var numbers, has []int32
	if entry := entryOf(own, port); entry != nil {
		has = append(has, int32(entry.Port))
	}
	for _, a := range l.Last() {
		switch published := a.Ports[port]; {
		case slices.Contains(has, published):
			return has
		case from.Contains(int(published)):
			numbers = append(numbers, published)
		}
	}
	return append(numbers, has...)
}

func entryOf(set *gatewayv1.ListenerSet, name string) *gatewayv1.ListenerEntry {
	listeners := ptr.Deref(set, gatewayv1.ListenerSet{}).Spec.Listeners
	if i := slices.IndexFunc(listeners, func(e gatewayv1.ListenerEntry) bool {
		return string(e.Name) == name
	}); i >= 0 {
		return &listeners[i]
	}
	return nil
}

func (b routes) existingListenerSet(l *exposure.Listener) *gatewayv1.ListenerSet {
	return find[*gatewayv1.ListenerSet](l.Objects, b.listenerSetName(l))
}

// ownListenerSet returns the Listener's own ListenerSet if a parent reference of a route is to it, or nil.
func (b routes) ownListenerSet(l *exposure.Listener, parent gatewayv1.ParentReference) *gatewayv1.ListenerSet {
	if name, _ := gatewayOf(l.Namespace, parent); !isA(listenerSetKind, parent) || name != b.listenerSetName(l) {
		return nil
	}
	return b.existingListenerSet(l)
}

func gatewayOfSet(set *gatewayv1.ListenerSet) gatewayName {
	parent := set.Spec.ParentRef
	return gatewayName{Namespace: string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(set.Namespace))),
		Name: string(parent.Name)}
}
