// Package hostport is the backend that exposes Listeners at the ports of nodes that their Pods declare as hostPort, or
// open by themselves in the network of the node. The program in a Pod then listens on the port that it advertises. The
// backend generates no object, and its Service has no node ports.
//
// It must never change a Pod: a Pod without these ports is reported.
package hostport

import (
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Backend exposes the Listeners of classes with spec.hostPort.
type Backend struct{}

var _ exposure.Backend = Backend{}

// Name implements exposure.Backend.
func (Backend) Name() string { return "HostPort" }

// PlainService implements exposure.Backend.
func (Backend) PlainService() bool { return false }

// Exposes implements exposure.Backend.
func (Backend) Exposes(class *listenersv1alpha1.ListenerClass) bool {
	return class.Spec.HostPort != nil
}

// Kinds implements exposure.Backend.
func (Backend) Kinds() []exposure.Kind { return nil }

// Objects implements exposure.Backend.
func (Backend) Objects(*exposure.Listener) ([]exposure.Desired, error) { return nil, nil }

// Scope implements exposure.Backend.
func (Backend) Scope(*listenersv1alpha1.ListenerClass) listenersv1alpha1.ListenerScope {
	return listenersv1alpha1.ListenerScopeNode
}

// References implements exposure.Backend.
func (Backend) References(*exposure.Listener) []exposure.Reference { return nil }

// PodAddresses implements exposure.Backend.
func (Backend) PodAddresses(l *exposure.Listener, pod *corev1.Pod, node *corev1.Node) *exposure.Exposed {
	return podAddresses(l, pod, node)
}
