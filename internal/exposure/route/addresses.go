package route

import (
	"fmt"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// The ports at which a router serves clients.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// addresses returns the admitted hosts of each port's Route, in the order of preference of the ports. If the class no
// longer has spec.route, they are those of the remaining Routes.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var ports, missing, leftOut []string
	var routers []string
	if l.Class.Spec.Route != nil {
		ports, leftOut = routedPorts(l)
		routers = l.Class.Spec.Route.Routers
	} else {
		ports = l.PortsWithObject(nameOf)
	}
	for _, port := range ports {
		name := nameOf(l, port)
		hosts, cause := admittedHosts(l, find(l, name), routers)
		if since := rejectedForCertificate(find(l, name), routers); since != nil {
			e.Rejected = append(e.Rejected, exposure.Rejected{Object: find(l, name), Since: *since})
		}
		if cause.message != "" {
			missing = append(missing, fmt.Sprintf("Route %s/%s %s", l.Namespace, name, cause.message))
			if e.Reason == "" || cause.reason == listenersv1alpha1.ReasonRouteNotAdmitted {
				e.Reason = cause.reason
			}
		}
		for _, host := range hosts {
			e.Addresses = append(e.Addresses, listenersv1alpha1.IngressAddress{
				Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: routerPort(find(l, name))},
			})
		}
	}
	e.Complete = len(ports) > 0 && len(missing) == 0
	e.NeedsAction = e.Reason == listenersv1alpha1.ReasonRouteNotAdmitted
	e.Message = strings.Join(slices.Concat(missing, leftOut), "; ")
	return e
}

// cause is why a Route has no admitted host.
type cause struct{ reason, message string }

// admittedHosts returns the hosts for which routers have admitted a Route, or why there is none. If routers are given,
// it considers only these, in their order.
func admittedHosts(l *exposure.Listener, route *routev1.Route, routers []string) (hosts []string, _ cause) {
	if route == nil {
		return nil, cause{listenersv1alpha1.ReasonWaitingForRouter, "does not exist yet"}
	}
	var rejections []string
	for _, ingress := range ingressesOf(route.Status.Ingress, routers) {
		host, rejection := admittedHost(ingress)
		if host != "" && !isChosen(l, route, host) {
			host, rejection = "", fmt.Sprintf("is admitted by router %q for %s, which is not its host; if this lasts, delete the Route, which is then created again",
				ingress.RouterName, host)
		}
		if rejection != "" {
			rejections = append(rejections, rejection)
		}
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	switch {
	case len(hosts) > 0:
		return hosts, cause{}
	case len(rejections) > 0:
		return nil, cause{listenersv1alpha1.ReasonRouteNotAdmitted, strings.Join(rejections, ", ")}
	case len(routers) > 0:
		return nil, cause{listenersv1alpha1.ReasonWaitingForRouter, "is not admitted yet by any of the routers that the class lists: " + strings.Join(routers, ", ")}
	default:
		return nil, cause{listenersv1alpha1.ReasonWaitingForRouter, "is not admitted yet by any router; if this lasts, check whether a router selects its labels"}
	}
}

// admittedHost returns the host for which a router has admitted a Route, or why it has not. Both are empty while the
// router has not decided.
func admittedHost(ingress routev1.RouteIngress) (host, rejection string) {
	condition := admittedCondition(ingress)
	switch {
	case condition == nil:
		return "", ""
	case condition.Status == corev1.ConditionFalse:
		return "", fmt.Sprintf("is rejected by router %q: %s: %s", ingress.RouterName, condition.Reason, condition.Message)
	case condition.Status != corev1.ConditionTrue, ingress.Host == "":
		return "", ""
	case !address.IsHostname(ingress.Host):
		return "", fmt.Sprintf("is admitted by router %q for %q, which is not a host name", ingress.RouterName, ingress.Host)
	default:
		return ingress.Host, ""
	}
}

// isChosen reports whether a host for which a router has admitted a Route is that of the class or, without a template,
// of OpenShift, which makes it from name and namespace of the Route. A user of the namespace who replaces the Route can
// choose another one, which its status has until the router follows. A host that is published stays until then.
func isChosen(l *exposure.Listener, route *routev1.Route, host string) bool {
	class, spec := l.Class.Spec.Route, &route.Spec
	switch {
	case class == nil, spec.Host == "" && spec.Subdomain == "", l.Publishes(host):
		return true
	case spec.Host == "":
		return strings.HasPrefix(host, spec.Subdomain+".")
	case class.HostTemplate == "" && class.SubdomainTemplate == "":
		return host == spec.Host && strings.HasPrefix(host, route.Name+"-"+l.Namespace+".")
	default:
		return host == spec.Host
	}
}

// The reasons for which a router rejects a Route because of the Secret with its certificate: the Secret, or its
// content, is not valid. A router looks at the Secret again when the Route changes, or after half an hour.
const (
	reasonExternalCertificate = "ExternalCertificateValidationFailed"
	reasonContent             = "ExtendedValidationFailed"
)

// rejectedForCertificate returns since when a router rejects a Route, which may be nil, because of the Secret that the
// Route refers to, or nil.
func rejectedForCertificate(route *routev1.Route, routers []string) *metav1.Time {
	if route == nil || route.Spec.TLS == nil || route.Spec.TLS.ExternalCertificate == nil {
		return nil
	}
	for _, ingress := range ingressesOf(route.Status.Ingress, routers) {
		condition := admittedCondition(ingress)
		if condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != reasonExternalCertificate && condition.Reason != reasonContent {
			continue
		}
		if condition.LastTransitionTime == nil {
			return &route.CreationTimestamp
		}
		return condition.LastTransitionTime
	}
	return nil
}

// ingressesOf returns the entries of the given routers, in their order, or all entries if none is given. Routers append
// their entry to the status and do not move it afterwards, so the order is stable.
func ingressesOf(ingresses []routev1.RouteIngress, routers []string) []routev1.RouteIngress {
	if len(routers) == 0 {
		return ingresses
	}
	var all []routev1.RouteIngress
	for _, router := range routers {
		for _, ingress := range ingresses {
			if ingress.RouterName == router {
				all = append(all, ingress)
			}
		}
	}
	return all
}

// admittedCondition returns the condition Admitted of a router, or nil.
func admittedCondition(ingress routev1.RouteIngress) *routev1.RouteIngressCondition {
	for i := range ingress.Conditions {
		if ingress.Conditions[i].Type == routev1.RouteAdmitted {
			return &ingress.Conditions[i]
		}
	}
	return nil
}

// routerPort returns the port of the router that clients connect to.
func routerPort(route *routev1.Route) int32 {
	if route.Spec.TLS == nil || route.Spec.TLS.Termination == "" {
		return portHTTP
	}
	return portHTTPS
}
