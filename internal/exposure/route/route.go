package route

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

const (
	// annotationPod is the name of the Pod that the host of a Route is made from.
	annotationPod = "listeners.stackable.tech/pod"
	// annotationGenerated is set by OpenShift's API server on a Route whose host it has chosen.
	annotationGenerated = "openshift.io/host.generated"
)

const (
	// maxLabel is the maximum length of a DNS label.
	maxLabel = 63
	// minName is the minimum length to which the name of a Route is shortened.
	minName = 20
)

// Objects implements exposure.Backend. It returns a Route for each routed port.
func (Backend) Objects(l *exposure.Listener) ([]exposure.Desired, error) {
	ports, _ := routedPorts(l)
	if len(ports) == 0 {
		return nil, exposure.Refuse(listenersv1alpha1.ReasonNoRoutablePorts,
			"no port of the Listener can have a Route: Routes support only TCP%s; use another class, or list other ports in the class", listedPorts(l.Class))
	}
	pod, err := podOf(l)
	if err != nil {
		return nil, err
	}
	var routes []exposure.Desired
	portOf := map[string]string{} // by host
	for _, port := range ports {
		host, err := hostOf(l, port, pod)
		if err != nil {
			return nil, err
		}
		if other, taken := portOf[host]; taken && host != "" {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "ports %s and %s would have the same host %s; add {port} to %s of ListenerClass %s, "+
				"or list only one of them in its spec.route.ports", other, port, host, templateOf(l.Class).classField, l.Class.Name)
		}
		portOf[host] = port
		routes = append(routes, desiredRoute(l, port, host, pod))
	}
	return routes, nil
}

// routedPorts returns the names of the ports that have a Route, in the order of the Service, and descriptions of those
// that cannot have one although the class does not exclude them.
func routedPorts(l *exposure.Listener) (ports, leftOut []string) {
	for _, p := range l.Service.Spec.Ports {
		switch {
		case p.Name == "" || len(l.Class.Spec.Route.Ports) > 0 && !slices.Contains(l.Class.Spec.Route.Ports, p.Name):
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			leftOut = append(leftOut, fmt.Sprintf("port %s (Routes do not support %s)", p.Name, p.Protocol))
		default:
			ports = append(ports, p.Name)
		}
	}
	return ports, leftOut
}

// listedPorts is the part of a message about the ports that the class lists.
func listedPorts(class *listenersv1alpha1.ListenerClass) string {
	if len(class.Spec.Route.Ports) == 0 {
		return ""
	}
	return fmt.Sprintf(", and ListenerClass %s lists the ports %s", class.Name, strings.Join(class.Spec.Route.Ports, ", "))
}

// nameOf returns the name of a port's Route. Without a template, the cluster makes the first DNS label of the host from
// the name and the namespace of the Route. The name is short enough for that, unless the namespace is very long.
func nameOf(l *exposure.Listener, port string) string {
	return exposure.Shorten(l.Name+"-"+port, max(maxLabel-len("-")-len(l.Namespace), minName))
}

// desiredRoute returns the Route of a port. It does not set fields that the cluster chooses.
func desiredRoute(l *exposure.Listener, port, host, pod string) exposure.Desired {
	class := l.Class.Spec.Route
	spec := map[string]any{
		"to":   map[string]any{"kind": "Service", "name": l.Service.Name},
		"port": map[string]any{"targetPort": port},
	}
	if host != "" {
		spec[templateOf(l.Class).routeField] = host
	}
	if tls := tlsOf(class); tls != nil {
		spec["tls"] = tls
	}
	if class.WildcardPolicy != "" {
		spec["wildcardPolicy"] = string(class.WildcardPolicy)
	}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	route.SetGroupVersionKind(routeKind)
	route.SetNamespace(l.Namespace)
	route.SetName(nameOf(l, port))
	route.SetLabels(exposure.Labels(l.Listener, class.Labels))
	annotations := map[string]string{}
	maps.Copy(annotations, class.Annotations)
	if pod != "" {
		annotations[annotationPod] = pod
	}
	if len(annotations) > 0 {
		route.SetAnnotations(annotations)
	}
	exposure.SetOwner(route, l.Listener)
	return exposure.Desired{Unstructured: route, Recreate: mustRecreate(l, route.GetName(), host)}
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
func mustRecreate(l *exposure.Listener, name, host string) bool {
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
	case host == "":
		return existing.Spec.Subdomain != "" || existing.Spec.Host != "" && existing.Annotations[annotationGenerated] != "true"
	case templateOf(l.Class).routeField == "subdomain":
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
