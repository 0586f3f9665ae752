package route

import (
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
	// maxLabel is how long a part of a host name may be between two dots.
	maxLabel = 63
	// minName is how short the name of a Route is cut at most.
	minName = 20
)

// Objects implements exposure.Backend: a Route for each port that gets one.
func (Backend) Objects(l *exposure.Listener) ([]exposure.Desired, error) {
	ports, _ := routed(l)
	if len(ports) == 0 {
		return nil, exposure.Refuse(listenersv1alpha1.ReasonNoRoutablePorts,
			"no port of the Listener gets a Route: Routes carry TCP alone%s; name another class, or have the class list other ports", listed(l.Class))
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
			return nil, exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "the ports %s and %s would both have the host %s; %s of ListenerClass %s has to tell "+
				"them apart by {port}, or spec.route.ports has to leave one out", other, port, host, template(l.Class).field, l.Class.Name)
		}
		portOf[host] = port
		routes = append(routes, desired(l, port, host, pod))
	}
	return routes, nil
}

// routed returns the names of the ports that get a Route, in the order of the Service, and what is left out against its
// will.
func routed(l *exposure.Listener) (ports, leftOut []string) {
	for _, p := range l.Service.Spec.Ports {
		switch {
		case p.Name == "" || len(l.Class.Spec.Route.Ports) > 0 && !slices.Contains(l.Class.Spec.Route.Ports, p.Name):
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			leftOut = append(leftOut, fmt.Sprintf("port %s (no Route carries %s)", p.Name, p.Protocol))
		default:
			ports = append(ports, p.Name)
		}
	}
	return ports, leftOut
}

func listed(class *listenersv1alpha1.ListenerClass) string {
	if len(class.Spec.Route.Ports) == 0 {
		return ""
	}
	return fmt.Sprintf(", and ListenerClass %s those named %s", class.Name, strings.Join(class.Spec.Route.Ports, ", "))
}

// nameOf returns the name of a port's Route. It is short enough for the host that the cluster makes of the Route's name
// and namespace if there is no template, as long as the namespace lets it.
func nameOf(l *exposure.Listener, port string) string {
	return exposure.Shorten(l.Name+"-"+port, max(maxLabel-len("-")-len(l.Namespace), minName))
}

// desired returns the Route of a port. It says nothing about fields that it leaves to the cluster.
func desired(l *exposure.Listener, port, host, pod string) exposure.Desired {
	class := l.Class.Spec.Route
	spec := map[string]any{
		"to":   map[string]any{"kind": "Service", "name": l.Service.Name},
		"port": map[string]any{"targetPort": port},
	}
	if host != "" {
		spec[template(l.Class).of] = host
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
	return exposure.Desired{Unstructured: route, Anew: anew(l, route.GetName(), host)}
}

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

// anew tells whether the Route that exists cannot become the desired one: OpenShift ignores that a host is taken away,
// and then the subdomain, and its wildcard policy can never change.
func anew(l *exposure.Listener, name, host string) bool {
	is := find(l, name)
	if is == nil {
		return false
	}
	wildcard := string(is.Spec.WildcardPolicy)
	if wildcard == "" {
		wildcard = string(listenersv1alpha1.RouteWildcardPolicyNone)
	}
	wanted := string(l.Class.Spec.Route.WildcardPolicy)
	if wanted == "" {
		wanted = string(listenersv1alpha1.RouteWildcardPolicyNone)
	}
	switch {
	case wildcard != wanted:
		return true
	case host == "":
		return is.Spec.Subdomain != "" || is.Spec.Host != "" && is.Annotations[annotationGenerated] != "true"
	case template(l.Class).of == "subdomain":
		return is.Spec.Host != ""
	default:
		return false
	}
}

// find returns the Listener's Route of the name, or nil.
func find(l *exposure.Listener, name string) *routev1.Route {
	for _, o := range l.Objects {
		if o.GetName() == name {
			return o.(*routev1.Route)
		}
	}
	return nil
}
