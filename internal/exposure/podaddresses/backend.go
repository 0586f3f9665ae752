// Package podaddresses is the backend that exposes Listeners at the addresses of their Pods, for clients in a network
// that routes these. It generates no object: package exposure builds the Service, which is headless. A Pod has its
// files before it has an IP address, so what is published is a name.
//
// It must never publish a port that nothing listens on: a headless Service translates no ports.
package podaddresses

import (
	"cmp"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// Backend returns the backend for classes with spec.pod.
func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:      "Pod",
		Exposes:   func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Pod != nil },
		Addresses: addresses,
		Headless:  true,
	}
}

// addresses returns the name that leads to the Pods: that of the class, or else the DNS name of the Service.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	if !exposure.IsHeadless(l.Service) {
		return exposure.Exposed{
			Addresses: []listenersv1alpha1.IngressAddress{}, Reason: listenersv1alpha1.ReasonWaitingForClusterIP, NeedsAction: true,
			Message: "Service " + l.Namespace + "/" + l.Name + " is not headless, so its name does not lead to the Pods",
		}
	}
	address := listenersv1alpha1.IngressAddress{
		Address: cmp.Or(host.NameOfService(l), l.DNSName()), AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{},
	}
	for _, p := range l.Service.Spec.Ports {
		if p.Name != "" { // ports are published by name
			address.Ports[p.Name] = cmp.Or(p.TargetPort.IntVal, p.Port)
		}
	}
	return exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{address}, Complete: true}
}
