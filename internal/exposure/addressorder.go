package exposure

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// The order of addresses is part of the API (contract: the order is part of the API), because consumers use the first
// one. They are in the order of the nodes, of which reservation.Placement returns a sorted list, of the entries in the
// status of a load balancer, or of the ports, and further as below.

// orderedTypes returns the types of addresses of a node, the preferred one first.
func (c NodeChoice) orderedTypes() []listenersv1alpha1.NodeAddressType {
	switch {
	case len(c.Types) > 0:
		return c.Types
	case c.Prefer == listenersv1alpha1.AddressTypeIP:
		return []listenersv1alpha1.NodeAddressType{"ExternalIP", "InternalIP", "Hostname"}
	}
	return []listenersv1alpha1.NodeAddressType{"Hostname", "ExternalIP", "InternalIP"}
}

// SortByFamily sorts addresses in the order of the IP families of the Service, if there are any. Host names come first.
func (l *Listener) SortByFamily(addresses []listenersv1alpha1.IngressAddress) {
	families := l.IPFamilies()
	slices.SortStableFunc(addresses, func(a, b listenersv1alpha1.IngressAddress) int {
		return slices.Index(families, FamilyOf(a.Address)) - slices.Index(families, FamilyOf(b.Address))
	})
}

// OrderedPorts returns the ports of the Service in the order of preference: that in which the class lists them, or else
// the Listener. Ports that only overrides add come last.
func (l *Listener) OrderedPorts() []corev1.ServicePort {
	order := l.Class.ListedPorts()
	for _, p := range l.Spec.Ports {
		order = append(order, p.Name)
	}
	places := map[string]int{} // negative, so that ports that are not in the order come last
	for i, name := range slices.Backward(order) {
		places[name] = i - len(order)
	}
	return slices.SortedStableFunc(slices.Values(l.Service.Spec.Ports), func(a, b corev1.ServicePort) int {
		return cmp.Compare(places[a.Name], places[b.Name])
	})
}

// InOrderOf returns all addresses in the order of the published ones: what others report in another order is no change.
func InOrderOf(published, all []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	position := func(a listenersv1alpha1.IngressAddress) int {
		return slices.IndexFunc(published, func(p listenersv1alpha1.IngressAddress) bool {
			return p.Address == a.Address
		})
	}
	return slices.SortedStableFunc(slices.Values(all),
		func(a, b listenersv1alpha1.IngressAddress) int { return cmp.Compare(position(a), position(b)) })
}
