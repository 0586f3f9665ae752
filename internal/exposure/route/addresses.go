package route

import (
	"fmt"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Ports of a router.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// Addresses implements exposure.Backend: the admitted hosts of each port's Route, in the order of the Service's ports.
// For a class without routes, as one that has just changed, they are those of the Routes that are left.
func (Backend) Addresses(l *exposure.Listener) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	var ports, missing, leftOut []string
	var routers []string
	if l.Class.Spec.Route != nil {
		ports, leftOut = routed(l)
		routers = l.Class.Spec.Route.Routers
	} else {
		ports = left(l)
	}
	for _, port := range ports {
		name := nameOf(l, port)
		hosts, why := admitted(find(l, name), routers)
		if why.message != "" {
			missing = append(missing, fmt.Sprintf("Route %s/%s %s", l.Namespace, name, why.message))
			if e.Reason == "" || why.reason == listenersv1alpha1.ReasonRouteNotAdmitted {
				e.Reason = why.reason
			}
		}
		for _, host := range hosts {
			e.Addresses = append(e.Addresses, listenersv1alpha1.IngressAddress{
				Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: outside(find(l, name))},
			})
		}
	}
	e.Complete = len(ports) > 0 && len(missing) == 0
	e.Warn = e.Reason == listenersv1alpha1.ReasonRouteNotAdmitted
	e.Message = strings.Join(slices.Concat(missing, leftOut), "; ")
	return e
}

// left returns the names of the ports that have a Route.
func left(l *exposure.Listener) []string {
	var ports []string
	for _, p := range l.Service.Spec.Ports {
		if find(l, nameOf(l, p.Name)) != nil {
			ports = append(ports, p.Name)
		}
	}
	return ports
}

// verdict is why a Route has no host.
type verdict struct{ reason, message string }

// admitted returns the hosts under which routers have admitted a Route, and if there is none why. If routers are named,
// only those count, in their order.
func admitted(route *routev1.Route, routers []string) (hosts []string, why verdict) {
	if route == nil {
		return nil, verdict{listenersv1alpha1.ReasonWaitingForRouter, "does not exist yet"}
	}
	var rejections []string
	for _, ingress := range chosen(route.Status.Ingress, routers) {
		condition := conditionOf(ingress)
		switch {
		case condition == nil:
		case condition.Status == corev1.ConditionTrue && ingress.Host != "":
			if !slices.Contains(hosts, ingress.Host) {
				hosts = append(hosts, ingress.Host)
			}
		case condition.Status == corev1.ConditionFalse:
			rejections = append(rejections, fmt.Sprintf("is rejected by router %q: %s: %s", ingress.RouterName, condition.Reason, condition.Message))
		}
	}
	switch {
	case len(hosts) > 0:
		return hosts, verdict{}
	case len(rejections) > 0:
		return nil, verdict{listenersv1alpha1.ReasonRouteNotAdmitted, strings.Join(rejections, ", ")}
	case len(routers) > 0:
		return nil, verdict{listenersv1alpha1.ReasonWaitingForRouter, "has not been taken up by any of the routers that the class names: " + strings.Join(routers, ", ")}
	default:
		return nil, verdict{listenersv1alpha1.ReasonWaitingForRouter, "has not been taken up by any router; if it stays so, its labels may fit none"}
	}
}

// chosen returns the entries of the routers that count, in their order. Routers add their entries at the end, and keep
// them in place.
func chosen(ingresses []routev1.RouteIngress, routers []string) []routev1.RouteIngress {
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

func conditionOf(ingress routev1.RouteIngress) *routev1.RouteIngressCondition {
	for i := range ingress.Conditions {
		if ingress.Conditions[i].Type == routev1.RouteAdmitted {
			return &ingress.Conditions[i]
		}
	}
	return nil
}

// outside returns the port that clients use.
func outside(route *routev1.Route) int32 {
	if route.Spec.TLS == nil || route.Spec.TLS.Termination == "" {
		return portHTTP
	}
	return portHTTPS
}
