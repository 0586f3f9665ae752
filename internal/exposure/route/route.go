package route

import (
	"cmp"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// annotationGenerated is set by OpenShift's API server on a Route whose host it has chosen.
const annotationGenerated = "openshift.io/host.generated"

const (
	// maxLabel is the maximum length of a DNS label.
	maxLabel = 63
	// minName is the minimum length to which the name of a Route is shortened.
	minName = 20
)

// objects returns a Route for each routed port.
func objects(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	ports, _ := routedPorts(l)
	if len(ports) == 0 {
		return nil, exposure.NoPorts(l, "Routes", "TCP")
	}
	hosts, refusal := templateOf(l.Class).Of(l, ports)
	if refusal != nil {
		return nil, refusal
	}
	var routes []exposure.Desired
	for _, port := range ports {
		routes = append(routes, desiredRoute(l, port, hosts))
	}
	return routes, nil
}

// routedPorts returns the names of the ports that have a Route, in the order of preference, and descriptions of those
// that cannot have one although the class does not exclude them.
func routedPorts(l *exposure.Listener) (ports, leftOut []string) {
	return exposure.PortsOf(l, "Routes", corev1.ProtocolTCP)
}

// nameOf returns the name of a port's Route. Without a template, the cluster makes the first DNS label of the host from
// the name and the namespace of the Route. The name is short enough for that, unless the namespace is very long.
func nameOf(l *exposure.Listener, port string) string {
	return exposure.Shorten(l.Name+"-"+port, max(maxLabel-len("-")-len(l.Namespace), minName))
}

// desiredRoute returns the Route of a port. It does not set fields that the cluster chooses.
func desiredRoute(l *exposure.Listener, port string, hosts host.Hosts) exposure.Desired {
	class := l.Class.Spec.Route
	spec := map[string]any{
		"to":   map[string]any{"kind": "Service", "name": l.Service.Name},
		"port": map[string]any{"targetPort": port},
	}
	if hosts.ByPort[port] != "" {
		spec[routeField(class)] = hosts.ByPort[port]
	}
	if tls := tlsOf(class); tls != nil {
		spec["tls"] = tls
	}
	if class.WildcardPolicy != "" {
		spec["wildcardPolicy"] = string(class.WildcardPolicy)
	}
	route := exposure.NewObject(l, routeKind, nameOf(l, port), class.Labels, hosts.Annotations(class.Annotations), spec)
	return exposure.Desired{Unstructured: route, Recreate: mustRecreate(l, route.GetName(), hosts.ByPort[port])}
}

// tlsOf returns the spec.tls of the Routes, or nil without TLS.
func tlsOf(class *listenersv1alpha1.RouteExposure) map[string]any {
	termination := class.Termination
	switch termination {
	case listenersv1alpha1.RouteTerminationNone:
		return nil
	case "":
		termination = listenersv1alpha1.RouteTerminationPassthrough
	}
	tls := map[string]any{"termination": string(termination)}
	if class.InsecureEdgeTerminationPolicy != "" {
		tls["insecureEdgeTerminationPolicy"] = string(class.InsecureEdgeTerminationPolicy)
	}
	if class.CertificateSecretName != "" {
		tls["externalCertificate"] = map[string]any{"name": class.CertificateSecretName}
	}
	if class.DestinationCACertificate != "" {
		tls["destinationCACertificate"] = class.DestinationCACertificate
	}
	return tls
}

// mustRecreate reports whether the existing Route cannot be changed to the desired one: OpenShift ignores the removal
// of a host, ignores the subdomain of a Route with a host, and does not allow a change of the wildcard policy.
func mustRecreate(l *exposure.Listener, name, desiredHost string) bool {
	existing := find(l, name)
	if existing == nil {
		return false
	}
	none := string(listenersv1alpha1.RouteWildcardPolicyNone)
	current := cmp.Or(string(existing.Spec.WildcardPolicy), none)
	desired := cmp.Or(string(l.Class.Spec.Route.WildcardPolicy), none)
	switch {
	case current != desired:
		return true
	case desiredHost == "":
		return existing.Spec.Subdomain != "" || existing.Spec.Host != "" && existing.Annotations[annotationGenerated] != "true"
	case routeField(l.Class.Spec.Route) == "subdomain":
		return existing.Spec.Host != ""
	default:
		return false
	}
}

// find returns the Listener's Route with the name, or nil.
func find(l *exposure.Listener, name string) *routev1.Route {
	for _, o := range l.Objects {
		if o.GetName() == name {
			return o.(*routev1.Route)
		}
	}
	return nil
}
