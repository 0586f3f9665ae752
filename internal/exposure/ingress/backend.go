// Package ingress is the backend that exposes Listeners through Ingresses. Each port has an Ingress of its own; the
// addresses are the hosts of the Ingresses that a controller has taken.
package ingress

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Backend exposes the Listeners of classes with spec.ingress.
type Backend struct{}

var (
	_ exposure.Backend = Backend{}

	kind = networkingv1.SchemeGroupVersion.WithKind("Ingress")
)

// Name implements exposure.Backend.
func (Backend) Name() string { return "Ingress" }

// PlainService implements exposure.Backend.
func (Backend) PlainService() bool { return false }

// Exposes implements exposure.Backend.
func (Backend) Exposes(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Ingress != nil }

// Scope implements exposure.Backend.
func (Backend) Scope(*listenersv1alpha1.ListenerClass) listenersv1alpha1.ListenerScope {
	return listenersv1alpha1.ListenerScopeCluster
}

// References implements exposure.Backend.
func (Backend) References(*exposure.Listener) []exposure.Reference { return nil }

// PodAddresses implements exposure.Backend.
func (Backend) PodAddresses(*exposure.Listener, *corev1.Pod, *corev1.Node) *exposure.Exposed {
	return nil
}

// Kinds implements exposure.Backend.
func (Backend) Kinds() []exposure.Kind {
	return []exposure.Kind{{
		GroupVersionKind: kind,
		Resource:         "ingresses",
		BuiltIn:          true,
		Hosts:            hostsOf,
		AddToScheme:      networkingv1.AddToScheme,
		ForeignReason:    listenersv1alpha1.ReasonForeignIngress,
		RejectedReason:   listenersv1alpha1.ReasonIngressRejected,
		Remedy:           func(string) string { return "" },
	}}
}
