package exposure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// AllowedClients returns the ranges of addresses whose clients may reach a Listener from outside the cluster: those of
// the Listener, or else those of the class. Without any, all clients may. The refusal is for a Listener that would
// allow more than its class.
func AllowedClients(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) ([]netip.Prefix, *Refusal) {
	byClass, refusal := parseClients(class.Spec.AllowedClients, "spec.allowedClients of ListenerClass "+class.Name)
	if refusal != nil {
		return nil, refusal
	}
	own, refusal := parseClients(listener.Spec.AllowedClients, "spec.allowedClients")
	switch {
	case refusal != nil:
		return nil, refusal
	case len(own) == 0:
		return byClass, nil
	case len(byClass) == 0:
		return own, nil
	}
	wider := slices.DeleteFunc(slices.Clone(own), func(p netip.Prefix) bool {
		return slices.ContainsFunc(byClass, func(c netip.Prefix) bool { return c.Bits() <= p.Bits() && c.Contains(p.Addr()) })
	})
	if len(wider) > 0 {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidAllowedClients, "spec.allowedClients may only restrict ListenerClass %s, which allows %s, and %s is not within one of "+
			"these ranges; remove it, or use another class", class.Name, describeClients(byClass), describeClients(wider))
	}
	return own, nil
}

// parseClients returns ranges without the bits of single addresses in them.
func parseClients(ranges []listenersv1alpha1.CIDR, path string) ([]netip.Prefix, *Refusal) {
	var parsed []netip.Prefix
	for _, cidr := range ranges {
		p, err := netip.ParsePrefix(string(cidr))
		if err != nil || p.Addr().Is4In6() { // the API server validates them
			return nil, Refuse(listenersv1alpha1.ReasonInvalidAllowedClients, "%s: %s is no range of addresses, such as 192.0.2.0/24; correct it", path,
				message.Printable(string(cidr), maxClientLength))
		}
		parsed = append(parsed, p.Masked())
	}
	return parsed, nil
}

const (
	// maxListedClients is the number of ranges that a message lists.
	maxListedClients = 5
	// maxClientLength is the length of the longest range.
	maxClientLength = 43
)

// describeClients lists ranges in a message.
func describeClients(clients []netip.Prefix) string {
	text := strings.Join(formatClients(clients[:min(len(clients), maxListedClients)]), ", ")
	if more := len(clients) - maxListedClients; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func formatClients(clients []netip.Prefix) []string {
	var formatted []string
	for _, p := range clients {
		formatted = append(formatted, p.String())
	}
	return formatted
}

// restrictLoadBalancer lets the load balancer of a Service refuse other clients. Ranges of one family restrict no
// clients of the other family, so the Service gets only the family of the ranges, unless the class chooses families.
func restrictLoadBalancer(spec *corev1ac.ServiceSpecApplyConfiguration, clients []netip.Prefix) {
	spec.LoadBalancerSourceRanges = formatClients(clients)
	families := familiesOf(clients)
	if spec.IPFamilies == nil && spec.IPFamilyPolicy == nil && len(families) == 1 {
		spec.IPFamilies = families
	}
}

// familiesOf returns the families of ranges of addresses.
func familiesOf(clients []netip.Prefix) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, p := range clients {
		if family := FamilyOf(p.Addr().String()); !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	return families
}

// CheckClients returns a refusal if nothing would keep clients from the Listener that may not reach it, by the Service
// with all overrides: whoever asks for a restriction must not get none.
func CheckClients(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) *Refusal {
	clients, refusal := AllowedClients(class, listener)
	if refusal != nil || len(clients) == 0 {
		return refusal
	}
	if problem := unenforceable(service, class, listener, clients); problem != "" {
		return Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable, "allowedClients cannot be enforced: %s", problem)
	}
	return nil
}

// unenforceable returns why clients cannot be restricted, and what to do about it, or "".
func unenforceable(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener, clients []netip.Prefix) string {
	spec, serviceType := service.Spec, ptr.Deref(service.Spec.Type, corev1.ServiceTypeClusterIP)
	switch {
	case len(spec.ExternalIPs) > 0:
		return "overrides set spec.externalIPs of the Service, at which nothing filters clients; remove them"
	case serviceType != corev1.ServiceType(class.Spec.ServiceType):
		return "overrides change spec.type of the Service; remove that, and use a class with this serviceType"
	case class.Spec.Ingress != nil, class.Spec.Gateway != nil:
		return "the proxy alone sees the addresses of clients, and has no portable setting for them; remove allowedClients, and configure the Ingress controller " +
			"or the Gateway, for example by spec.ingress.annotations of ListenerClass " + class.Name
	case class.Spec.Route != nil:
		return routeProblem(class)
	case class.Spec.HostPort != nil:
		return ""
	case class.Spec.Pod != nil:
		return podsProblem(service, listener)
	case serviceType == corev1.ServiceTypeLoadBalancer:
		return loadBalancerProblem(spec, class, clients)
	case serviceType == corev1.ServiceTypeNodePort:
		return nodePortProblem(service, class, listener)
	default:
		return "nodes replace the addresses of clients that use a cluster IP from outside the cluster; remove allowedClients, or use a class with another serviceType"
	}
}

// routeProblem returns why Routes would not restrict clients, or "".
func routeProblem(class *listenersv1alpha1.ListenerClass) string {
	for _, annotation := range RouteClientAnnotations() {
		if _, ok := class.Spec.Route.Annotations[annotation]; ok {
			return fmt.Sprintf("spec.route.annotations of ListenerClass %s has %s, which is the same for all Listeners; use spec.allowedClients of the class instead", class.Name, annotation)
		}
	}
	return ""
}

// RouteClientAnnotations returns the annotations by which OpenShift's router restricts the clients of a Route: the
// current one, and the one that earlier routers know.
func RouteClientAnnotations() []string {
	return []string{"haproxy.router.openshift.io/ip_allowlist", "haproxy.router.openshift.io/ip_whitelist"}
}

// RouteClients returns these annotations for a Route of the Listener. A list in which a router finds anything else than
// ranges, each after a single space, restricts nobody.
func RouteClients(l *Listener) map[string]string {
	clients, _ := AllowedClients(l.Class, l.Listener) // a refused Listener gets no Routes
	if len(clients) == 0 {
		return nil
	}
	annotations := map[string]string{}
	for _, annotation := range RouteClientAnnotations() {
		annotations[annotation] = strings.Join(formatClients(clients), " ")
	}
	return annotations
}

// loadBalancerProblem returns why a load balancer would not restrict clients, or "".
func loadBalancerProblem(spec *corev1ac.ServiceSpecApplyConfiguration, class *listenersv1alpha1.ListenerClass, clients []netip.Prefix) string {
	hasNodePort := func(p corev1ac.ServicePortApplyConfiguration) bool { return ptr.Deref(p.NodePort, 0) != 0 }
	switch {
	case !slices.Equal(spec.LoadBalancerSourceRanges, formatClients(clients)):
		return "overrides change spec.loadBalancerSourceRanges of the Service, which has the allowed clients; remove that"
	case !ptr.Equal(spec.LoadBalancerClass, class.Spec.LoadBalancerClass):
		return "overrides change spec.loadBalancerClass of the Service, and another load balancer may admit all clients; remove that"
	case !ptr.Deref(class.Spec.LoadBalancerAllocateNodePorts, true) &&
		(ptr.Deref(spec.AllocateLoadBalancerNodePorts, true) || slices.ContainsFunc(spec.Ports, hasNodePort)):
		return fmt.Sprintf("overrides give the Service node ports, at which nothing filters clients, and ListenerClass %s has none; remove "+
			"spec.allocateLoadBalancerNodePorts and spec.ports[].nodePort", class.Name)
	}
	possible := spec.IPFamilies
	if ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack {
		possible = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for _, family := range possible {
		if !slices.Contains(familiesOf(clients), family) {
			nobody := map[corev1.IPFamily]string{corev1.IPv4Protocol: "0.0.0.0/32", corev1.IPv6Protocol: "::/128"}[family]
			return fmt.Sprintf("it has no range of %s, which the Service may have, and nodes would admit all clients over it; add one, or %s, which is nobody's", family, nobody)
		}
	}
	return ""
}

// nodePortProblem returns why a NetworkPolicy for the Pods behind node ports would not restrict clients, or "".
func nodePortProblem(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) string {
	if ptr.Deref(service.Spec.ExternalTrafficPolicy, "") != corev1.ServiceExternalTrafficPolicyLocal {
		return fmt.Sprintf("the Service has no externalTrafficPolicy Local, so Pods see the addresses of nodes instead of those of clients; set serviceExternalTrafficPolicy: Local "+
			"in ListenerClass %s, and remove overrides of it", class.Name)
	}
	return podsProblem(service, listener)
}

// podsProblem returns why a NetworkPolicy for the Pods that mount the Listener would not restrict its clients, or "".
func podsProblem(service *corev1ac.ServiceApplyConfiguration, listener *listenersv1alpha1.Listener) string {
	if service.Spec.Selector[names.PodMountLabel(listener.UID)] != listener.Name {
		return "overrides replace spec.selector of the Service, so that Pods respond which do not mount the Listener; remove that"
	}
	for i := range service.Spec.Ports {
		if target := service.Spec.Ports[i].TargetPort; target != nil && target.Type == intstr.String {
			return fmt.Sprintf("overrides lead port %s of the Service to a container port by its name; set the number instead", ptr.Deref(service.Spec.Ports[i].Name, ""))
		}
	}
	return ""
}
