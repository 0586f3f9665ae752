// Package route reaches Listeners through OpenShift Routes: one for each port, whose host and outside port are those
// that a router has admitted.
package route

import (
	"strings"

	routev1 "github.com/openshift/api/route/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Backend is the one for classes with spec.route.
type Backend struct{}

var (
	_ exposure.Backend = Backend{}

	routeKind = routev1.GroupVersion.WithKind("Route")
)

// Name implements exposure.Backend.
func (Backend) Name() string { return "Route" }

// PlainService implements exposure.Backend.
func (Backend) PlainService() bool { return false }

// Exposes implements exposure.Backend.
func (Backend) Exposes(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Route != nil }

// Kinds implements exposure.Backend.
func (Backend) Kinds() []exposure.Kind {
	return []exposure.Kind{{
		GroupVersionKind: routeKind,
		Resource:         "routes",
		Aggregated:       true, // by OpenShift's API server; elsewhere a CustomResourceDefinition
		AddToScheme:      routev1.Install,
		ForeignReason:    listenersv1alpha1.ReasonForeignRoute,
		RejectedReason:   listenersv1alpha1.ReasonRouteRejected,
		Remedy:           remedy,
	}}
}

// remedy recognises that the operator lacks the right routes/custom-host. OpenShift checks it in the strategy of
// Routes, where it is no ordinary lack of a right but a field that may not be set.
func remedy(rejection string) string {
	if !strings.Contains(rejection, "you do not have permission to set") && !strings.Contains(rejection, "permission on custom-host") {
		return ""
	}
	return "the operator lacks the right to routes/custom-host; bind its ServiceAccount to the ClusterRole listener-operator-custom-host, " +
		"or have the class leave hosts to the router, and certificates to the Pods or the router"
}
