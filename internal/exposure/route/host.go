package route

import (
	routev1 "github.com/openshift/api/route/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// routeField returns the field of a Route's spec that the class has a template for: host or subdomain.
func routeField(class *listenersv1alpha1.RouteExposure) string {
	if class.SubdomainTemplate != "" {
		return "subdomain"
	}
	return "host"
}

// templateOf returns the template of the class, which may be empty.
func templateOf(class *listenersv1alpha1.ListenerClass) host.Template {
	t := host.Template{
		Exposure: "spec.route", Field: "hostTemplate", Text: string(class.Spec.Route.HostTemplate),
		WholeDomain: class.Spec.Route.WildcardPolicy == listenersv1alpha1.RouteWildcardPolicySubdomain,
	}
	if class.Spec.Route.SubdomainTemplate != "" {
		t.Field, t.Text = "subdomainTemplate", string(class.Spec.Route.SubdomainTemplate)
	}
	return t
}

// hostsOf returns the host that a Route requests. For a subdomain, they are the subdomain in any domain of a router,
// and the hosts that routers have made of it.
func hostsOf(o exposure.Object) []string {
	route, ok := o.(*routev1.Route)
	switch {
	case !ok:
		return nil
	case route.Spec.Host != "" || route.Spec.Subdomain == "":
		return []string{route.Spec.Host}
	}
	hosts := []string{route.Spec.Subdomain + ".*"}
	for i := range route.Status.Ingress {
		hosts = append(hosts, route.Status.Ingress[i].Host)
	}
	return hosts
}
