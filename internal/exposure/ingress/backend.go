// Package ingress is the backend that exposes Listeners through Ingresses. Each port has an Ingress of its own; the
// addresses are the hosts of the Ingresses that a controller has taken.
package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

var kind = networkingv1.SchemeGroupVersion.WithKind("Ingress")

// Backend returns the backend for classes with spec.ingress.
func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:    "Ingress",
		Exposes: func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Ingress != nil },
		Kind: &exposure.Kind{
			GroupVersionKind: kind,
			Resource:         "ingresses",
			BuiltIn:          true,
			Hosts:            hostsOf,
			AddToScheme:      networkingv1.AddToScheme,
			ForeignReason:    listenersv1alpha1.ReasonForeignIngress,
			RejectedReason:   listenersv1alpha1.ReasonIngressRejected,
		},
		Objects:   objects,
		Addresses: addresses,
	}
}
