package route

import (
	"strings"

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
		WholeDomain: class.Spec.Route.WildcardPolicy == listenersv1alpha1.RouteWildcardPolicySubdomain, Published: publishedBefore,
	}
	if class.Spec.Route.SubdomainTemplate != "" {
		t.Field, t.Text = "subdomainTemplate", string(class.Spec.Route.SubdomainTemplate)
	}
	return t
}

// publishedBefore returns the host that the port's Route has by the rules of earlier versions, which allowed ambiguous
// templates and had hashes of 32 bits, or "". Clients know that host, so it stays until the template changes or the
// Route is deleted.
func publishedBefore(l *exposure.Listener, port, pod string) string {
	existing, t := find(l, nameOf(l, port)), templateOf(l.Class)
	if existing == nil || t.HasHash() {
		return ""
	}
	labels := strings.Split(host.Replace(t.Text, func(name string) string {
		value, _ := host.Value(l, port, pod, name)
		return exposure.Label(value)
	}), ".")
	for i := range labels {
		labels[i] = exposure.Shorten(labels[i], maxLabel)
	}
	published := strings.Join(labels, ".")
	if current := map[string]string{"host": existing.Spec.Host, "subdomain": existing.Spec.Subdomain}; current[routeField(l.Class.Spec.Route)] != published {
		return ""
	}
	return published
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
