package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
)

// addresses returns the addresses at which Gateways serve the routes, in the order of preference of the ports. If each
// route has a port of the Gateway, addresses of the type that the class prefers come first.
func (b routes) addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	all := []listenersv1alpha1.IngressAddress{}
	e := b.Addresses(l, func(port string, object exposure.Object) ([]listenersv1alpha1.IngressAddress,
		[]perport.Problem) {
		served, problems := b.served(l, port, routeOf(object))
		for _, s := range served {
			all = add(all, s, port)
		}
		return served, problems
	})
	e.Addresses = all
	if b.ownPort {
		preferred := l.Class.AddressPreference(l.Class.Spec.ServiceType)
		e.Addresses = first(all, func(a listenersv1alpha1.IngressAddress) bool { return a.AddressType == preferred })
	}
	return e
}

// first returns a list with those at first that pass.
func first[T any](all []T, passes func(T) bool) []T {
	others := slices.DeleteFunc(slices.Clone(all), passes)
	return append(slices.DeleteFunc(slices.Clone(all), func(t T) bool { return !passes(t) }), others...)
}

// add adds the address of a port to the first entry for the same address that has no other number for the port.
func add(list []listenersv1alpha1.IngressAddress, served listenersv1alpha1.IngressAddress,
	port string) []listenersv1alpha1.IngressAddress {
	for i := range list {
		if number, has := list[i].Ports[port]; list[i].Address == served.Address &&
			(!has || number == served.Ports[port]) {
			list[i].Ports[port] = served.Ports[port]
			return list
		}
	}
	return append(list, served)
}

// served returns the addresses at which Gateways serve the route of a port, and why others do not.
func (b routes) served(l *exposure.Listener, port string,
	r route) (addresses []listenersv1alpha1.IngressAddress, problems []perport.Problem) {
	for _, parent := range r.parents {
		name, isGateway := gatewayOf(r.GetNamespace(), parent)
		set := b.ownListenerSet(l, parent)
		switch {
		case set != nil:
			name = gatewayOfSet(set)
		case !isGateway:
			continue
		}
		entries, p := b.servedBy(l, port, r, parent, set, findGateway(l, name))
		served := "is served by Gateway %s: %s"
		if len(entries) == 0 {
			served = "is not served by Gateway %s: %s"
		}
		if p.Text != "" {
			p.Text = fmt.Sprintf(served, name, p.Text)
			problems = append(problems, p)
		}
		addresses = exposure.AppendNew(addresses, entries...)
	}
	if len(addresses) == 0 && len(problems) == 0 {
		problems = []perport.Problem{{Text: "refers to no Gateway; another client has changed it, or deleted its " +
			"ListenerSet"}}
	}
	return addresses, problems
}

// servedBy is served for one parent: the Gateway, which may be nil, or a ListenerSet of it, if that is not nil.
func (b routes) servedBy(l *exposure.Listener, port string, r route, parent gatewayv1.ParentReference,
	set *gatewayv1.ListenerSet, gateway *gatewayv1.Gateway,
) (addresses []listenersv1alpha1.IngressAddress, p perport.Problem) {
	var numbers []int32
	switch {
	case gateway == nil:
		return nil, perport.Problem{Text: "the Gateway does not exist"}
	case set != nil:
		numbers, p = programmedEntry(l, parent, set, gateway)
	default:
		numbers, p = b.programmedPorts(l, r, parent, gateway)
	}
	if p.Text == "" { // otherwise, not every controller decides about the route
		p = undecided(r, parent)
	}
	if p.Text != "" {
		return nil, p
	}
	hosts, leftOut := l.Usable(gatewayAddresses(gateway)...)
	switch {
	case len(gateway.Status.Addresses) == 0:
		return nil, perport.Problem{Text: "the Gateway has no address in its status yet; if this lasts, check its " +
			"controller, and the load balancer that it uses"}
	case b.ownPort && len(hosts) == 0:
		return nil, perport.Problem{Text: exposure.UnusableMessage("the Gateway", leftOut),
			Reason: listenersv1alpha1.ReasonUnusableAddress}
	case leftOut != "":
		p.Text = "clients outside the cluster cannot use all of its addresses: " + leftOut
	}
	if !b.ownPort { // its own address may belong to a proxy in front of the cluster
		hosts = []listenersv1alpha1.IngressAddress{{Address: r.host(),
			AddressType: listenersv1alpha1.AddressTypeHostname}}
	}
	for _, a := range hosts {
		for _, number := range numbers {
			a.Ports = map[string]int32{port: number}
			addresses = append(addresses, a)
		}
	}
	return addresses, p
}

// programmedPorts returns the ports of the listeners of a Gateway that serve a route, or why there is none. Without
// such a listener, the controller may have accepted the route in an earlier version of the Gateway.
func (b routes) programmedPorts(l *exposure.Listener, r route, parent gatewayv1.ParentReference,
	gateway *gatewayv1.Gateway) ([]int32, perport.Problem) {
	var ports []int32
	firstCause := ""
	for i := range gateway.Spec.Listeners {
		listener := &gateway.Spec.Listeners[i]
		if !selects(parent, listener) || !b.speaks(listener) ||
			!allows(gateway, listener, l.Namespace, l.NamespaceLabels) || !b.servesHost(listener, r) {
			continue
		}
		var conditions []metav1.Condition
		if i := slices.IndexFunc(gateway.Status.Listeners,
			func(s gatewayv1.ListenerStatus) bool { return s.Name == listener.Name }); i >= 0 {
			conditions = gateway.Status.Listeners[i].Conditions
		}
		if cause := notServing("its listener "+string(listener.Name), conditions, "the Gateway",
			gateway.Status.Conditions, "its GatewayClass exists and the controller of that runs"); cause != "" {
			firstCause = cmp.Or(firstCause, cause)
		} else {
			ports = append(ports, int32(listener.Port))
		}
	}
	p := perport.Problem{Reason: listenersv1alpha1.ReasonGatewayRouteNotAccepted}
	switch {
	case len(ports) > 0:
		return ports, perport.Problem{}
	case firstCause != "":
		p = perport.Problem{Text: firstCause}
	case b.ownPort && parent.SectionName != nil:
		p.Text = fmt.Sprintf("it has no listener %s with protocol %s that allows namespace %s; add it again, or "+
			"delete the route, which then gets another one", *parent.SectionName, b.protocols[0], l.Namespace)
	default:
		p.Text = fmt.Sprintf("it has no listener that the class refers to, with a protocol of %s, for host %s, and "+
			"that allows namespace %s; add one to the Gateway, or correct its allowedRoutes", b.Plural, r.host(),
			l.Namespace)
	}
	return nil, p
}

// programmedEntry returns the port of the listener of a ListenerSet that serves a route, or why it does not.
func programmedEntry(l *exposure.Listener, parent gatewayv1.ParentReference, set *gatewayv1.ListenerSet,
	gateway *gatewayv1.Gateway) ([]int32, perport.Problem) {
	name, owner := string(ptr.Deref(parent.SectionName, "")), fmt.Sprintf("ListenerSet %s/%s", set.Namespace, set.Name)
	entry := entryOf(set, name)
	var conditions []metav1.Condition
	if i := slices.IndexFunc(set.Status.Listeners,
		func(s gatewayv1.ListenerEntryStatus) bool { return string(s.Name) == name }); i >= 0 {
		conditions = set.Status.Listeners[i].Conditions
	}
	conflict := meta.FindStatusCondition(conditions, string(gatewayv1.ListenerEntryConditionConflicted))
	switch cause := notServing("listener "+name+" of "+owner, conditions, owner, set.Status.Conditions,
		"the controller of the Gateway runs, and supports ListenerSets"); {
	case entry == nil:
		return nil, perport.Problem{Text: fmt.Sprintf("%s has no listener %s; another client has changed it", owner,
			name)}
	case !allowsListenerSets(gateway, l.Namespace, l.NamespaceLabels):
		return nil, perport.Problem{Reason: listenersv1alpha1.ReasonGatewayRouteNotAccepted,
			Text: notAllowed(gatewayOfSet(set), l.Namespace)}
	case conflict != nil && conflict.Status == metav1.ConditionTrue:
		return nil, perport.Problem{Text: fmt.Sprintf("%s is in conflict with another listener of the Gateway at "+
			"port %d: %s", owner, entry.Port, exposure.Quote(conflict.Reason, conflict.Message))}
	case cause != "":
		return nil, perport.Problem{Text: cause}
	}
	return []int32{int32(entry.Port)}, perport.Problem{}
}

// reasonNoEndpoints is the reason of ResolvedRefs with which Envoy Gateway says that no Pod is ready. Pods do not start
// before they have the address of the route.
const reasonNoEndpoints = "EndpointsNotFound"

// undecided returns why a controller does not serve a route, by the conditions of the route for this parent.
func undecided(r route, parent gatewayv1.ParentReference) perport.Problem {
	waiting := perport.Problem{Text: "its controller has not accepted the route yet; if this lasts, check whether " +
		"the controller runs, and serves routes of this kind"}
	i := slices.IndexFunc(r.statuses, func(s gatewayv1.RouteParentStatus) bool {
		return sameParent(r, s.ParentRef, parent)
	})
	if i < 0 {
		return waiting
	}
	for _, conditionType := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted,
		gatewayv1.RouteConditionResolvedRefs} {
		switch c := meta.FindStatusCondition(r.statuses[i].Conditions, string(conditionType)); {
		case conditionType == gatewayv1.RouteConditionResolvedRefs && (c == nil || c.Reason == reasonNoEndpoints):
			// Not every controller sets it.
		case c == nil || c.Status == metav1.ConditionUnknown:
			return waiting
		case c.Status == metav1.ConditionFalse:
			p := perport.Problem{Text: fmt.Sprintf("%s is false: %s%s", conditionType,
				exposure.Quote(c.Reason, c.Message), remedies[c.Reason])}
			if c.Reason != string(gatewayv1.RouteReasonPending) {
				p.Reason = listenersv1alpha1.ReasonGatewayRouteNotAccepted
			}
			return p
		}
	}
	return perport.Problem{}
}

// remedies are what to do about reasons for which a route or a listener of a Gateway is not served.
var remedies = map[string]string{
	string(gatewayv1.RouteReasonNotAllowedByListeners): "; an administrator of the Gateway has to allow the " +
		"namespace in allowedRoutes of its listener",
	string(gatewayv1.RouteReasonNoMatchingListenerHostname): "; an administrator of the Gateway has to allow the " +
		"host in hostname of its listener",
	string(gatewayv1.RouteReasonNoMatchingParent): "; the Gateway needs a listener with the name and the port that " +
		"the route refers to",
	string(gatewayv1.RouteReasonRefNotPermitted): "; a ReferenceGrant in the namespace of the object that is " +
		"referred to is missing",
}

func sameParent(r route, a, b gatewayv1.ParentReference) bool {
	nameA, isGatewayA := gatewayOf(r.GetNamespace(), a)
	nameB, isGatewayB := gatewayOf(r.GetNamespace(), b)
	sameKind := isGatewayA && isGatewayB || isA(listenerSetKind, a) && isA(listenerSetKind, b)
	return sameKind && nameA == nameB && ptr.Equal(a.SectionName, b.SectionName) && ptr.Equal(a.Port, b.Port)
}

// notServing returns why a listener of a Gateway, or of a ListenerSet, does not serve, or "". Its own conditions take
// precedence over those of its owner, which with some controllers are false as soon as any listener is not valid.
func notServing(listener string, conditions []metav1.Condition, owner string, ofOwner []metav1.Condition,
	notYet string) string {
	accepted, resolved, programmed := string(gatewayv1.ListenerConditionAccepted),
		string(gatewayv1.ListenerConditionResolvedRefs), string(gatewayv1.ListenerConditionProgrammed)
	cause := isFalse(listener, conditions, accepted, resolved, programmed)
	if cause != "" || meta.IsStatusConditionTrue(conditions, programmed) ||
		meta.IsStatusConditionTrue(ofOwner, programmed) {
		return cause
	}
	return cmp.Or(isFalse(owner, ofOwner, accepted, programmed),
		owner+" is not programmed yet; if this lasts, check whether "+notYet)
}

// isFalse describes the first of the conditions of these types that is false, or returns "".
func isFalse(object string, conditions []metav1.Condition, types ...string) string {
	for _, t := range types {
		if c := meta.FindStatusCondition(conditions, t); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("%s of %s is false: %s%s", t, object, exposure.Quote(c.Reason, c.Message),
				remedies[c.Reason])
		}
	}
	return ""
}

// gatewayAddresses returns the addresses of a Gateway, which may be nil. Only its controller knows the types of some.
func gatewayAddresses(gateway *gatewayv1.Gateway) []listenersv1alpha1.IngressAddress {
	var addresses []listenersv1alpha1.IngressAddress
	for _, a := range ptr.Deref(gateway, gatewayv1.Gateway{}).Status.Addresses {
		addressType := listenersv1alpha1.AddressType(ptr.Deref(a.Type, gatewayv1.IPAddressType))
		if addressType == listenersv1alpha1.AddressType(gatewayv1.IPAddressType) {
			addressType = listenersv1alpha1.AddressTypeIP
		}
		addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: a.Value, AddressType: addressType})
	}
	return addresses
}
