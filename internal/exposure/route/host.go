package route

import (
	"strings"

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
