// Package route is the backend that exposes Listeners through OpenShift Routes. Each port has a Route of its own; the
// addresses are the hosts for which routers have admitted the Routes.
package route

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
	"github.com/listener-operator/listener-operator/internal/registry"
)

var routeKind = routev1.GroupVersion.WithKind("Route")

var routes = perport.Objects[*routev1.Route]{
	Kind: "Route", Plural: "Routes", Protocol: corev1.ProtocolTCP, NameOf: nameOf,
	Exposes: func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Route != nil },
	Waiting: listenersv1alpha1.ReasonWaitingForRouter,
}

func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:    "Route",
		Exposes: routes.Exposes,
		Generates: []*exposure.Kind{{
			GroupVersionKind: routeKind,
			Resource:         "routes",
			Aggregated:       true, // by OpenShift's API server; elsewhere a CustomResourceDefinition
			AddToScheme:      routev1.Install,
			Annotated:        true,
			Holds: func(o exposure.Object) []registry.Key {
				return registry.Keys(listenersv1alpha1.WaitingKindHost, hostsOf(o)...)
			},
			Remedy: remedy,
		}},
		Objects:   objects,
		Addresses: addresses,
		Clients:   exposure.Clients{Problem: clientsProblem},
	}
}

// What to do if the Secret with the certificate of a Route is rejected, by the API server or by a router.
const (
	secretRemedy = "create the Secret that the class names in certificateSecretName, with the type " +
		"kubernetes.io/tls, and let ServiceAccount openshift-ingress/router get, list and watch it"
	contentRemedy = "correct the certificate and the key in the Secret that the class names in certificateSecretName"
)

// remedy recognises that the operator lacks the permission for routes/custom-host, or that the Secret with the
// certificate is absent or not for the router. OpenShift checks both in the validation of Routes and reports them as a
// field that may not be set, not as a forbidden request.
func remedy(rejection string) string {
	switch {
	case strings.Contains(rejection, "you do not have permission to set"),
		strings.Contains(rejection, "permission on custom-host"):
		return "the operator lacks the permission for routes/custom-host; bind its ServiceAccount to the ClusterRole " +
			"listener-operator-custom-host, or remove hosts and certificates from the class"
	case strings.Contains(rejection, "spec.tls.externalCertificate"):
		return secretRemedy
	}
	return ""
}

// annotationGenerated is set by OpenShift's API server on a Route whose host it has chosen.
const annotationGenerated = "openshift.io/host.generated"

const (
	minName    = 20 // the minimum length to which the name of a Route is shortened
	hashLength = 8  // of the hash at the end of a shortened name, in characters
)

func objects(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	return routes.Desired(l, templateOf(l.Class.Spec.Route), desiredRoute)
}

func templateOf(class *listenersv1alpha1.RouteExposure) host.Template {
	whole := class.WildcardPolicy == listenersv1alpha1.RouteWildcardPolicySubdomain
	if class.SubdomainTemplate != "" {
		return host.Template{Path: "spec.route.subdomainTemplate", Text: string(class.SubdomainTemplate),
			WholeDomain: whole}
	}
	return host.Template{Path: "spec.route.hostTemplate", Text: string(class.HostTemplate), WholeDomain: whole}
}

// nameOf returns the name of a port's Route. Without a template, the cluster makes the first DNS label of the host from
// the name and the namespace of the Route. So a name that is too long for that ends with a hash of the whole name, but
// is not shortened further beside a very long namespace. Hosts of existing Routes contain these hashes.
func nameOf(l *exposure.Listener, port string) string {
	name, limit := l.Name+"-"+port, max(validation.DNS1123LabelMaxLength-len("-")-len(l.Namespace), minName)
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:limit-hashLength-len("-")], "-") + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// desiredRoute returns the Route of a port. It does not set fields that the cluster chooses.
func desiredRoute(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
	class, hostOfPort := l.Class.Spec.Route, hosts.ByPort[port]
	annotations := hosts.Annotations(class.Annotations)
	maps.Copy(annotations, clientsOf(l))
	spec := map[string]any{
		"to":   map[string]any{"kind": "Service", "name": l.Service.Name},
		"port": map[string]any{"targetPort": port},
	}
	switch {
	case hostOfPort == "":
	case class.SubdomainTemplate != "":
		spec["subdomain"] = hostOfPort
	default:
		spec["host"] = hostOfPort
		// OpenShift leaves the value of a Route that had a generated host before
		annotations[annotationGenerated] = "false"
	}
	if tls := tlsOf(class); tls != nil {
		spec["tls"] = tls
	}
	if class.WildcardPolicy != "" {
		spec["wildcardPolicy"] = string(class.WildcardPolicy)
	}
	existing, exists := routes.Find(l, port)
	return exposure.Desired{
		Unstructured: exposure.NewObject(l, routeKind, nameOf(l, port), class.Labels, annotations, spec),
		Recreate:     exists && mustRecreate(existing, class, hostOfPort),
	}, nil
}

func tlsOf(class *listenersv1alpha1.RouteExposure) map[string]any {
	if class.Termination == listenersv1alpha1.RouteTerminationNone {
		return nil
	}
	tls := map[string]any{"termination": string(cmp.Or(class.Termination,
		listenersv1alpha1.RouteTerminationPassthrough))}
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

// mustRecreate reports whether the existing Route cannot be changed to the desired one: OpenShift generates a host only
// for a new Route, ignores the subdomain of a Route with a host, and does not allow a change of the wildcard policy.
// When a host is no longer requested, OpenShift ignores that, or leaves the Route without a host.
func mustRecreate(existing *routev1.Route, class *listenersv1alpha1.RouteExposure, desiredHost string) bool {
	none := listenersv1alpha1.RouteWildcardPolicyNone
	switch {
	case cmp.Or(string(existing.Spec.WildcardPolicy), string(none)) != string(cmp.Or(class.WildcardPolicy, none)):
		return true
	case desiredHost == "":
		generated := existing.Annotations[annotationGenerated] == "true"
		return existing.Spec.Subdomain != "" || generated != (existing.Spec.Host != "")
	}
	return class.SubdomainTemplate != "" && existing.Spec.Host != ""
}

// hostsOf returns the host of a Route, or its subdomain in any domain of a router, and what routers have made of it.
func hostsOf(o exposure.Object) []string {
	route := o.(*routev1.Route)
	if route.Spec.Host != "" || route.Spec.Subdomain == "" {
		return []string{route.Spec.Host}
	}
	hosts := []string{route.Spec.Subdomain + ".*"}
	for _, ingress := range route.Status.Ingress {
		hosts = append(hosts, ingress.Host)
	}
	return hosts
}

// clientAnnotations let a router restrict the clients of a Route: the current one, and the one for earlier routers.
var clientAnnotations = []string{"haproxy.router.openshift.io/ip_allowlist", "haproxy.router.openshift.io/ip_whitelist"}

// clientsOf returns these annotations for a Route of the Listener. A list in which a router finds anything else than
// ranges, each after a single space, restricts nobody.
func clientsOf(l *exposure.Listener) map[string]string {
	clients, _ := exposure.AllowedClients(l.Class, l.Listener) // a refused Listener gets no Routes
	if len(clients) == 0 {
		return nil
	}
	annotations := map[string]string{}
	for _, annotation := range clientAnnotations {
		annotations[annotation] = strings.Join(exposure.FormatClients(clients), " ")
	}
	return annotations
}

func clientsProblem(l *exposure.Listener, _ *corev1ac.ServiceApplyConfiguration, _ []netip.Prefix) string {
	for _, annotation := range clientAnnotations {
		if _, ok := l.Class.Spec.Route.Annotations[annotation]; ok {
			return fmt.Sprintf("spec.route.annotations of ListenerClass %s has %s, which is the same for all "+
				"Listeners; use spec.allowedClients of the class instead", l.Class.Name, annotation)
		}
	}
	return ""
}

// addresses returns the admitted hosts of each port's Route, in the order of preference of the ports. Of the routers,
// only those count that the class lists, in its order, or all if it lists none.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	routers := ptr.Deref(l.Class.Spec.Route, listenersv1alpha1.RouteExposure{}).Routers
	var rejected []exposure.Rejected
	e := routes.Addresses(l, func(port string, route *routev1.Route) (addresses []listenersv1alpha1.IngressAddress,
		problems []perport.Problem) {
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
				Address: host, AddressType: listenersv1alpha1.AddressTypeHostname,
				Ports: map[string]int32{port: number},
			})
		}
		switch {
		case len(hosts) > 0:
			// Clients reach the Route nevertheless.
			if said := slices.Concat(rejections, warnings(ingresses)); len(said) > 0 {
				problems = []perport.Problem{{Text: strings.Join(said, ", ")}}
			}
			return addresses, problems
		case len(rejections) > 0:
			return nil,
				[]perport.Problem{{Text: strings.Join(rejections, ", "),
					Reason: listenersv1alpha1.ReasonRouteNotAdmitted}}
		case len(routers) > 0:
			return nil,
				[]perport.Problem{{Text: "is not admitted yet by any of the routers that the class lists: " +
					strings.Join(routers, ", ")}}
		default:
			return nil, []perport.Problem{{Text: "is not admitted yet by any router; if this lasts, check whether a " +
				"router selects its labels"}}
		}
	})
	e.Rejected = rejected
	return e
}

// admittedHosts returns the hosts for which routers have admitted a Route, and why others have not. A router that has
// not decided counts as neither. since is when one has rejected it because of the Secret that it refers to, or nil. The
// router looks at the Secret again when the Route changes, or after half an hour.
func admittedHosts(l *exposure.Listener, route *routev1.Route,
	ingresses []routev1.RouteIngress) (hosts, rejections []string, since *metav1.Time) {
	for _, ingress := range ingresses {
		condition, host := admittedCondition(ingress), ingress.Host
		_,
			unusable := l.Usable(listenersv1alpha1.IngressAddress{Address: host,
			AddressType: listenersv1alpha1.AddressTypeHostname})
		switch {
		case condition.Status == corev1.ConditionFalse:
			text := fmt.Sprintf("is rejected by router %q: %s", ingress.RouterName,
				exposure.Quote(condition.Reason, condition.Message))
			if remedy := certificateRemedy(route, condition.Reason); remedy != "" {
				text += "; " + remedy
				since = cmp.Or(since, condition.LastTransitionTime, &route.CreationTimestamp)
			}
			rejections = append(rejections, text)
		case condition.Status != corev1.ConditionTrue, host == "", slices.Contains(hosts, host):
		case !address.IsHostname(host):
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for %q, which is not a host name",
				ingress.RouterName, host))
		case !isChosen(l, route, host):
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for %s, which is not its host; if "+
				"this lasts, delete the Route, which is then created again", ingress.RouterName, host))
		case unusable != "":
			rejections = append(rejections, fmt.Sprintf("is admitted by router %q for a host that clients outside "+
				"the cluster cannot use: %s", ingress.RouterName, unusable))
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
			if said := exposure.Quote(c.Reason, c.Message); c.Type != routev1.RouteAdmitted &&
				c.Status == corev1.ConditionTrue && said != "" {
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
	}
	return host == spec.Host
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
	}
	return ""
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
