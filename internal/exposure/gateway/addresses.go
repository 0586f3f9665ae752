package gateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// addresses returns the addresses at which Gateways serve the routes, in the order of preference of the ports. If the
// class has no routes of this kind any more, they are those of the remaining routes.
func (b routes) addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var ports, missing, leftOut []string
	if b.exposes(l.Class) {
		ports, leftOut = b.exposedPorts(l)
	} else {
		ports = l.PortsWithObject(nameOf)
	}
	for _, port := range ports {
		served, problems := b.served(l, port)
		for _, p := range problems {
			text := fmt.Sprintf("%s %s/%s %s", b.kind, l.Namespace, nameOf(l, port), p.text)
			if len(served) > 0 {
				leftOut = append(leftOut, text)
				continue
			}
			missing = append(missing, text)
			e.NeedsAction = e.NeedsAction || p.needsAction
		}
		for _, s := range served {
			e.Addresses = add(e.Addresses, s, port)
		}
	}
	if b.ownPort {
		sortByType(e.Addresses, l.Class)
	}
	e.Complete = len(ports) > 0 && len(missing) == 0
	switch {
	case e.NeedsAction:
		e.Reason = listenersv1alpha1.ReasonGatewayRouteNotAccepted
	case len(missing) > 0:
		e.Reason = listenersv1alpha1.ReasonWaitingForGateway
	}
	e.Message = strings.Join(slices.Concat(missing, leftOut), "; ")
	return e
}

// add adds the address of a port to the first entry for the same address that has no other number for the port.
func add(list []listenersv1alpha1.IngressAddress, served listenersv1alpha1.IngressAddress, port string) []listenersv1alpha1.IngressAddress {
	for i := range list {
		if number, has := list[i].Ports[port]; list[i].Address == served.Address && (!has || number == served.Ports[port]) {
			list[i].Ports[port] = served.Ports[port]
			return list
		}
	}
	return append(list, served)
}

// sortByType puts the addresses of the type that the class prefers first.
func sortByType(addresses []listenersv1alpha1.IngressAddress, class *listenersv1alpha1.ListenerClass) {
	preferred := class.AddressPreference(class.Spec.ServiceType)
	slices.SortStableFunc(addresses, func(a, b listenersv1alpha1.IngressAddress) int {
		switch a.AddressType {
		case b.AddressType:
			return 0
		case preferred:
			return -1
		default:
			return 1
		}
	})
}

// problem is why a Gateway does not serve a route.
type problem struct {
	text string
	// needsAction states that it takes a change by a user or administrator.
	needsAction bool
}

// served returns the addresses at which Gateways serve the route of a port, and why others do not.
func (b routes) served(l *exposure.Listener, port string) (addresses []listenersv1alpha1.IngressAddress, problems []problem) {
	r := find(l, nameOf(l, port))
	if r == nil {
		return nil, []problem{{text: "does not exist yet"}}
	}
	for _, parent := range r.parents {
		name, ok := gatewayOf(r.GetNamespace(), parent)
		if !ok {
			continue
		}
		entries, p := b.servedBy(l, r, parent, findGateway(l, name))
		if p.text != "" {
			p.text = fmt.Sprintf("is not served by Gateway %s: %s", name, p.text)
			problems = append(problems, p)
		}
		for _, a := range entries {
			a.Ports = map[string]int32{port: a.Ports[""]}
			addresses = exposure.AppendNew(addresses, a)
		}
	}
	if len(addresses) == 0 && len(problems) == 0 {
		problems = []problem{{text: "names no Gateway; another client has changed it"}}
	}
	return addresses, problems
}

// servedBy returns the addresses at which a Gateway, which may be nil, serves a route, with the port under an empty
// name, or why it does not.
func (b routes) servedBy(l *exposure.Listener, r *route, parent gatewayv1.ParentReference, gateway *gatewayv1.Gateway) ([]listenersv1alpha1.IngressAddress, problem) {
	if gateway == nil {
		return nil, problem{text: "the Gateway does not exist"}
	}
	ports, p := b.programmedPorts(l, r, parent, gateway)
	if p.text == "" { // otherwise, not every controller decides about the route
		p = undecided(r, parent)
	}
	if p.text != "" {
		return nil, p
	}
	hosts := gatewayAddresses(gateway)
	if len(hosts) == 0 {
		return nil, problem{text: "the Gateway has no address in its status yet; if this lasts, check its controller, and the load balancer that it uses"}
	}
	if !b.ownPort {
		hosts = []listenersv1alpha1.IngressAddress{{Address: hostOf(r), AddressType: listenersv1alpha1.AddressTypeHostname}}
	}
	var addresses []listenersv1alpha1.IngressAddress
	for _, h := range hosts {
		for _, port := range ports {
			addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: h.Address, AddressType: h.AddressType, Ports: map[string]int32{"": port}})
		}
	}
	return addresses, problem{}
}

// programmedPorts returns the ports of the listeners of a Gateway that serve a route, or why there is none.
func (b routes) programmedPorts(l *exposure.Listener, r *route, parent gatewayv1.ParentReference, gateway *gatewayv1.Gateway) ([]int32, problem) {
	var ports []int32
	first := b.noListener(l, r, parent)
	for i := range gateway.Spec.Listeners {
		listener := &gateway.Spec.Listeners[i]
		if !selects(parent, listener) || !b.speaks(listener) || !allows(gateway, listener, l.Namespace, l.NamespaceLabels) || !b.ownPort && !servesHost(listener, hostOf(r)) {
			continue
		}
		if text := notProgrammed(gateway, listener); text == "" {
			ports = append(ports, int32(listener.Port))
		} else if first.needsAction {
			first = problem{text: text}
		}
	}
	if len(ports) == 0 {
		return nil, first
	}
	return ports, problem{}
}

// hostOf returns the host of a route, or "".
func hostOf(r *route) string {
	if len(r.hosts) == 0 {
		return ""
	}
	return string(r.hosts[0])
}

// noListener returns the problem of a route for which the Gateway has no listener, although its controller has accepted
// the route, maybe in an earlier version of the Gateway.
func (b routes) noListener(l *exposure.Listener, r *route, parent gatewayv1.ParentReference) problem {
	if b.ownPort && parent.SectionName != nil {
		return problem{text: fmt.Sprintf("it has no listener %s with protocol %s that allows namespace %s; add it again, or delete the route, which then gets another one",
			*parent.SectionName, b.protocols[0], l.Namespace), needsAction: true}
	}
	return problem{text: fmt.Sprintf("it has no listener that the class refers to, with a protocol of %ss, for host %s, and that allows namespace %s; "+
		"add one to the Gateway, or correct its allowedRoutes", b.kind, hostOf(r), l.Namespace), needsAction: true}
}

// undecided returns why the controller of the Gateway does not serve a route, by the conditions of the route for this
// parent.
func undecided(r *route, parent gatewayv1.ParentReference) problem {
	waiting := problem{text: "its controller has not accepted the route yet; if this lasts, check whether the controller runs, and serves routes of this kind"}
	for i := range r.statuses {
		status := &r.statuses[i]
		if !sameParent(r, status.ParentRef, parent) {
			continue
		}
		for _, conditionType := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			switch c := condition(status.Conditions, conditionType); {
			case c == nil && conditionType == gatewayv1.RouteConditionResolvedRefs: // which not every controller sets
			case c == nil || c.Status == metav1.ConditionUnknown:
				return waiting
			case c.Status == metav1.ConditionFalse:
				return problem{text: fmt.Sprintf("%s is false: %s: %s%s", conditionType, c.Reason, c.Message, remedy(c.Reason)), needsAction: c.Reason != string(gatewayv1.RouteReasonPending)}
			}
		}
		return problem{}
	}
	return waiting
}

// remedy returns what to do about a reason for which a route or a listener of a Gateway is not served, or "".
func remedy(reason string) string {
	switch reason {
	case string(gatewayv1.RouteReasonNotAllowedByListeners):
		return "; an administrator of the Gateway has to allow the namespace in allowedRoutes of its listener"
	case string(gatewayv1.RouteReasonNoMatchingListenerHostname):
		return "; an administrator of the Gateway has to allow the host in hostname of its listener"
	case string(gatewayv1.RouteReasonNoMatchingParent):
		return "; the Gateway needs a listener with the name and the port that the route refers to"
	case string(gatewayv1.RouteReasonRefNotPermitted):
		return "; a ReferenceGrant in the namespace of the object that is referred to is missing"
	default:
		return ""
	}
}

// sameParent reports whether two parent references of a route are to the same.
func sameParent(r *route, a, b gatewayv1.ParentReference) bool {
	nameA, isGatewayA := gatewayOf(r.GetNamespace(), a)
	nameB, isGatewayB := gatewayOf(r.GetNamespace(), b)
	return isGatewayA && isGatewayB && nameA == nameB && ptr.Equal(a.SectionName, b.SectionName) && ptr.Equal(a.Port, b.Port)
}

// notProgrammed returns why a listener of a Gateway does not serve, or "". Its own condition takes precedence over that
// of the Gateway, which with some controllers is false as soon as any listener is not valid.
func notProgrammed(gateway *gatewayv1.Gateway, listener *gatewayv1.Listener) string {
	for i := range gateway.Status.Listeners {
		status := &gateway.Status.Listeners[i]
		if status.Name != listener.Name {
			continue
		}
		for _, conditionType := range []gatewayv1.ListenerConditionType{
			gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerConditionResolvedRefs, gatewayv1.ListenerConditionProgrammed,
		} {
			if c := condition(status.Conditions, conditionType); c != nil && c.Status == metav1.ConditionFalse {
				return fmt.Sprintf("%s of its listener %s is false: %s: %s%s", conditionType, listener.Name, c.Reason, c.Message, remedy(c.Reason))
			}
		}
		if c := condition(status.Conditions, gatewayv1.ListenerConditionProgrammed); c != nil && c.Status == metav1.ConditionTrue {
			return ""
		}
	}
	switch c := condition(gateway.Status.Conditions, gatewayv1.GatewayConditionProgrammed); {
	case c == nil || c.Status == metav1.ConditionUnknown:
		return "the Gateway is not programmed yet; if this lasts, check whether its GatewayClass exists and the controller of that runs"
	case c.Status == metav1.ConditionFalse:
		return fmt.Sprintf("Programmed of the Gateway is false: %s: %s", c.Reason, c.Message)
	default:
		return ""
	}
}

// gatewayAddresses returns the addresses in the status of a Gateway, without those that are not valid or of types that
// only its controller knows.
func gatewayAddresses(gateway *gatewayv1.Gateway) []listenersv1alpha1.IngressAddress {
	var addresses []listenersv1alpha1.IngressAddress
	for _, a := range gateway.Status.Addresses {
		switch t := ptr.Deref(a.Type, gatewayv1.IPAddressType); {
		case t == gatewayv1.IPAddressType && address.IsUnicastIP(a.Value):
			addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: a.Value, AddressType: listenersv1alpha1.AddressTypeIP})
		case t == gatewayv1.HostnameAddressType && address.IsHostname(a.Value):
			addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: a.Value, AddressType: listenersv1alpha1.AddressTypeHostname})
		}
	}
	return addresses
}
