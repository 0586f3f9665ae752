// Package route is the backend that exposes Listeners through OpenShift Routes. Each port has a Route of its own; the
// addresses are the hosts for which routers have admitted the Routes.
package route

import (
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
)

var routeKind = routev1.GroupVersion.WithKind("Route")

var routes = perport.Objects[*routev1.Route]{
	Kind: "Route", Plural: "Routes", Protocol: corev1.ProtocolTCP, NameOf: nameOf,
	Exposes: func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Route != nil },
	Waiting: listenersv1alpha1.ReasonWaitingForRouter,
}

// Backend returns the backend for classes with spec.route.
func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:    "Route",
		Exposes: routes.Exposes,
		Generates: []*exposure.Kind{{
			GroupVersionKind: routeKind,
			Resource:         "routes",
			Aggregated:       true, // by OpenShift's API server; elsewhere a CustomResourceDefinition
			AddToScheme:      routev1.Install,
			Hosts:            hostsOf,
			ForeignReason:    listenersv1alpha1.ReasonForeignRoute,
			RejectedReason:   listenersv1alpha1.ReasonRouteRejected,
			Remedy:           remedy,
		}},
		Objects:   objects,
		Addresses: addresses,
		Clients:   exposure.Clients{Problem: clientsProblem},
	}
}

// What to do if the Secret with the certificate of a Route is rejected, by the API server or by a router.
const (
	secretRemedy = "create the Secret that the class names in certificateSecretName, with the type kubernetes.io/tls, " +
		"and let ServiceAccount openshift-ingress/router get, list and watch it"
	contentRemedy = "correct the certificate and the key in the Secret that the class names in certificateSecretName"
)

// remedy recognises that the operator lacks the permission for routes/custom-host, or that the Secret with the
// certificate is absent or not for the router. OpenShift checks both in the validation of Routes and reports them as a
// field that may not be set, not as a forbidden request.
func remedy(rejection string) string {
	switch {
	case strings.Contains(rejection, "you do not have permission to set"), strings.Contains(rejection, "permission on custom-host"):
		return "the operator lacks the permission for routes/custom-host; bind its ServiceAccount to the ClusterRole listener-operator-custom-host, " +
			"or remove hosts and certificates from the class"
	case strings.Contains(rejection, "spec.tls.externalCertificate"):
		return secretRemedy
	default:
		return ""
	}
}
