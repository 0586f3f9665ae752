// Package hostport is the backend that exposes Listeners at the ports of nodes that their Pods declare as hostPort, or
// open by themselves in the network of the node. The program in a Pod then listens on the port that it advertises. The
// backend generates no object, and its Service has no node ports.
//
// It must never change a Pod: a Pod without these ports is reported.
package hostport

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Backend returns the backend for classes with spec.hostPort.
func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:       "HostPort",
		Exposes:    func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.HostPort != nil },
		Addresses:  addresses,
		NodeScoped: func(*listenersv1alpha1.ListenerClass) bool { return true },
		PodAddresses: func(listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass, pod *corev1.Pod, node *corev1.Node) *exposure.Exposed {
			return podAddresses(&exposure.Listener{Listener: listener, Class: class}, pod, node)
		},
		Clients: exposure.Clients{
			ByPolicy: func(*corev1ac.ServiceApplyConfiguration) bool { return true },
			Problem:  func(*exposure.Listener, *corev1ac.ServiceApplyConfiguration, []netip.Prefix) string { return "" },
			Ports: func(l *exposure.Listener) []listenersv1alpha1.ListenerPort {
				return exposure.ExposedPorts(l.Class, l.Listener)
			},
		},
	}
}
