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
	text := strings.Join(FormatClients(clients[:min(len(clients), maxListedClients)]), ", ")
	if more := len(clients) - maxListedClients; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// FormatClients returns ranges as texts.
func FormatClients(clients []netip.Prefix) []string {
	var formatted []string
	for _, p := range clients {
		formatted = append(formatted, p.String())
	}
	return formatted
}

// restrictLoadBalancer lets the load balancer of a Service refuse other clients. Ranges of one family restrict no
// clients of the other family, so the Service gets only the family of the ranges, unless the class chooses families.
func restrictLoadBalancer(spec *corev1ac.ServiceSpecApplyConfiguration, clients []netip.Prefix) {
	spec.LoadBalancerSourceRanges = FormatClients(clients)
	families := FamiliesOf(clients)
	if spec.IPFamilies == nil && spec.IPFamilyPolicy == nil && len(families) == 1 {
		spec.IPFamilies = families
	}
}

// FamiliesOf returns the families of ranges of addresses.
func FamiliesOf(clients []netip.Prefix) []corev1.IPFamily {
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
func (b *Backend) CheckClients(l *Listener, service *corev1ac.ServiceApplyConfiguration) *Refusal {
	clients, refusal := AllowedClients(l.Class, l.Listener)
	if refusal != nil || len(clients) == 0 {
		return refusal
	}
	problem := ""
	switch {
	case len(service.Spec.ExternalIPs) > 0:
		problem = "overrides set spec.externalIPs of the Service, at which nothing filters clients; remove them"
	case ptr.Deref(service.Spec.Type, corev1.ServiceTypeClusterIP) != corev1.ServiceType(l.Class.Spec.ServiceType):
		problem = "overrides change spec.type of the Service; remove that, and use a class with this serviceType"
	case b.Clients.Problem == nil:
		problem = "the proxy alone sees the addresses of clients, and has no portable setting for them; remove allowedClients, and configure the proxy, for example " +
			"by annotations in ListenerClass " + l.Class.Name
	default:
		problem = b.Clients.Problem(l, service, clients)
	}
	if problem == "" {
		return nil
	}
	return Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable, "allowedClients cannot be enforced: %s", problem)
}

// PodsProblem is Clients.Problem of a NetworkPolicy for the Pods that mount the Listener.
func PodsProblem(l *Listener, service *corev1ac.ServiceApplyConfiguration, _ []netip.Prefix) string {
	if service.Spec.Selector[names.PodMountLabel(l.UID)] != l.Name {
		return "overrides replace spec.selector of the Service, so that Pods respond which do not mount the Listener; remove that"
	}
	for i := range service.Spec.Ports {
		if target := service.Spec.Ports[i].TargetPort; target != nil && target.Type == intstr.String {
			return fmt.Sprintf("overrides lead port %s of the Service to a container port by its name; set the number instead", ptr.Deref(service.Spec.Ports[i].Name, ""))
		}
	}
	return ""
}
