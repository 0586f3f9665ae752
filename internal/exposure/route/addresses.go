package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
)

// addresses returns the admitted hosts of each port's Route, in the order of preference of the ports. Of the routers,
// only those count that the class lists, in its order, or all if it lists none.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	routers := ptr.Deref(l.Class.Spec.Route, listenersv1alpha1.RouteExposure{}).Routers
	var rejected []exposure.Rejected
	e := routes.Addresses(l, func(port string, route *routev1.Route) (addresses []listenersv1alpha1.IngressAddress, problems []perport.Problem) {
		ingresses := ingressesOf(route, routers)
		number := int32(443)
		if route.Spec.TLS == nil || route.Spec.TLS.Termination == "" {
			number = 80
		}
		hosts, rejections, since := admittedHosts(l, route, ingresses)
		if since != nil {
			rejected = append(rejected, exposure.Rejected{Object: route, Since: *since})
		}
		for _, host := range hosts {
			addresses = append(addresses, listenersv1alpha1.IngressAddress{
				Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number},
			})
		}
		switch {
		case len(hosts) > 0:
			if said := slices.Concat(rejections, warnings(ingresses)); len(said) > 0 { // clients reach the Route nevertheless
				problems = []perport.Problem{{Text: strings.Join(said, ", ")}}
			}
			return addresses, problems
		case len(rejections) > 0:
			return nil, []perport.Problem{{Text: strings.Join(rejections, ", "), Reason: listenersv1alpha1.ReasonRouteNotAdmitted}}
		case len(routers) > 0:
			return nil, []perport.Problem{{Text: "is not admitted yet by any of the routers that the class lists: " + strings.Join(routers, ", ")}}
		default:
			return nil, []perport.Problem{{Text: "is not admitted yet by any router; if this lasts, check whether a router selects its labels"}}
		}
	})
	e.Rejected = rejected
	return e
}

// admittedHosts returns the hosts for which routers have admitted a Route, and why others have not. A router that has
// not decided counts as neither. since is when one has rejected it because of the Secret that it refers to, or nil. The
// router looks at the Secret again when the Route changes, or after half an hour.
func admittedHosts(l *exposure.Listener, route *routev1.Route, ingresses []routev1.RouteIngress) (hosts, rejections []string, since *metav1.Time) {
	for _, ingress := range ingresses {
		condition, host := admittedCondition(ingress), ingress.Host
		_, unusable := l.Usable(listenersv1alpha1.IngressAddress{Address: host, AddressType: listenersv1alpha1.AddressTypeHostname})
		switch {
		case condition.Status == corev1.ConditionFalse:
			text := fmt.Sprintf("is rejected by router %q: %s", ingress.RouterName, exposure.Quote(condition.Reason, condition.Message))
			if remedy := certificateRemedy(route, condition.Reason); remedy != "" {
				text += "; " + remedy
				since = cmp.Or(since, condition.LastTransitionTime, &route.CreationTimestamp)
			}
			rejections = append(rejections, text)
		case condition.Status != corev1.ConditionTrue, host == "", slices.Contains(hosts, host):
		case !address.IsHostname(host):
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for %q, which is not a host name", ingress.RouterName, host))
		case !isChosen(l, route, host):
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for %s, which is not its host; if this lasts, delete the Route, which is then created again",
				ingress.RouterName, host))
		case unusable != "":
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for a host that clients outside the cluster cannot use: %s", ingress.RouterName, unusable))
		default:
			hosts = append(hosts, host)
		}
	}
	return hosts, rejections, since
}

// warnings returns what routers that have admitted a Route say about it in other conditions, such as that a later
// version of the router will not serve it.
func warnings(ingresses []routev1.RouteIngress) (warnings []string) {
	for _, ingress := range ingresses {
		for _, c := range ingress.Conditions {
			if said := exposure.Quote(c.Reason, c.Message); c.Type != routev1.RouteAdmitted && c.Status == corev1.ConditionTrue && said != "" {
				warnings = append(warnings, fmt.Sprintf("is %s, says router %q: %s", c.Type, ingress.RouterName, said))
			}
		}
	}
	return warnings
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

// certificateRemedy returns what to do if a router rejects a Route for this reason because of the Secret that the Route
// refers to, or "" if it rejects it for something else. The reasons that begin with ExternalCertificate are about the
// Secret itself, such as its deletion, and the other one is about its content.
func certificateRemedy(route *routev1.Route, reason string) string {
	switch {
	case route.Spec.TLS == nil || route.Spec.TLS.ExternalCertificate == nil:
		return ""
	case strings.HasPrefix(reason, "ExternalCertificate"):
		return secretRemedy
	case reason == "ExtendedValidationFailed":
		return contentRemedy
	default:
		return ""
	}
}

// ingressesOf returns the entries of the given routers, in their order, or all entries if none is given. Routers append
// their entry to the status and do not move it afterwards, so the order is stable.
func ingressesOf(route *routev1.Route, routers []string) []routev1.RouteIngress {
	chosen := slices.DeleteFunc(slices.Clone(route.Status.Ingress), func(i routev1.RouteIngress) bool {
		return len(routers) > 0 && !slices.Contains(routers, i.RouterName)
	})
	slices.SortStableFunc(chosen, func(a, b routev1.RouteIngress) int {
		return slices.Index(routers, a.RouterName) - slices.Index(routers, b.RouterName)
	})
	return chosen
}

// admittedCondition returns the condition Admitted of a router, which is empty while the router has not decided.
func admittedCondition(ingress routev1.RouteIngress) routev1.RouteIngressCondition {
	for _, condition := range ingress.Conditions {
		if condition.Type == routev1.RouteAdmitted {
			return condition
		}
	}
	return routev1.RouteIngressCondition{}
}
