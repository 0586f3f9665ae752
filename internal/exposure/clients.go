package exposure

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// AllowedClients returns the ranges of clients that may reach a Listener from outside the cluster: its own, or else
// those of the class, or none if all clients may. The refusal is for a Listener that would allow more than its class.
func AllowedClients(class *listenersv1alpha1.ListenerClass,
	listener *listenersv1alpha1.Listener) ([]netip.Prefix, *Refusal) {
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
		return slices.ContainsFunc(byClass, func(c netip.Prefix) bool {
			return c.Bits() <= p.Bits() && c.Contains(p.Addr())
		})
	})
	if len(wider) > 0 {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidAllowedClients,
			"spec.allowedClients may only restrict ListenerClass %s, which allows %s, and %s is not within one of "+
				"these ranges; remove it, or use another class", class.Name, message.List(FormatClients(byClass)),
			message.List(FormatClients(wider)))
	}
	return own, nil
}

// parseClients returns ranges without the bits of single addresses in them.
func parseClients(ranges []listenersv1alpha1.CIDR, path string) ([]netip.Prefix, *Refusal) {
	var parsed []netip.Prefix
	for _, cidr := range ranges {
		p, err := netip.ParsePrefix(string(cidr))
		if err != nil || p.Addr().Is4In6() { // the API server validates them
			return nil, Refuse(listenersv1alpha1.ReasonInvalidAllowedClients,
				"%s: %s is no range of addresses, such as 192.0.2.0/24; correct it", path,
				message.Printable(string(cidr), maxClientLength))
		}
		parsed = append(parsed, p.Masked())
	}
	return parsed, nil
}

const maxClientLength = 43

func FormatClients(clients []netip.Prefix) []string {
	var formatted []string
	for _, p := range clients {
		formatted = append(formatted, p.String())
	}
	return formatted
}

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
		problem = "the proxy alone sees the addresses of clients, and has no portable setting for them; remove " +
			"allowedClients, and configure the proxy, for example by annotations in ListenerClass " + l.Class.Name
	default:
		problem = b.Clients.Problem(l, service, clients)
	}
	if problem == "" {
		return nil
	}
	return Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable, "allowedClients cannot be enforced: %s",
		problem)
}

// PodsProblem is Clients.Problem of a NetworkPolicy for the Pods that mount the Listener.
func PodsProblem(l *Listener, service *corev1ac.ServiceApplyConfiguration, _ []netip.Prefix) string {
	if service.Spec.Selector[names.PodMountLabel(l.UID)] != names.ListenerLabel(l.Name) {
		return "overrides replace spec.selector of the Service, so that Pods respond which do not mount the " +
			"Listener; remove that"
	}
	for i := range service.Spec.Ports {
		if target := service.Spec.Ports[i].TargetPort; target != nil && target.Type == intstr.String {
			return fmt.Sprintf("overrides lead port %s of the Service to a container port by its name; set the "+
				"number instead", ptr.Deref(service.Spec.Ports[i].Name, ""))
		}
	}
	return ""
}

// ClientPolicySuffix follows the name of the Listener in the name of its NetworkPolicy.
const ClientPolicySuffix = "-allowed-clients"

// ClientPolicy returns the NetworkPolicy that keeps other clients from the Pods of a Listener, or nil if none has to,
// or if the ports that it concerns are not known yet. service is the Service with the target ports that it has.
//
// A NetworkPolicy denies the Pods that it selects everything but what it admits. So it admits everybody to their other
// ports, apart from those that the policies of other Listeners of these Pods restrict, and Pods to all ports: only
// clients outside are restricted. If any other policy selects a Pod, it admits neither: then nobody expects these ports
// to be open, and policies only add to each other.
func (b *Backend) ClientPolicy(l *Listener, service *corev1ac.ServiceApplyConfiguration,
	others OtherPolicies) *unstructured.Unstructured {
	clients, refusal := AllowedClients(l.Class, l.Listener)
	if refusal != nil || len(clients) == 0 || !b.RestrictsPods(service) {
		return nil
	}
	restricted := b.restrictedPorts(l, service)
	if restricted.Len() == 0 {
		return nil
	}
	var from []any
	for _, cidr := range FormatClients(clients) {
		from = append(from, map[string]any{"ipBlock": map[string]any{"cidr": cidr}})
	}
	rules := []any{nil}
	if others.onlyListeners {
		from = append(from, map[string]any{"namespaceSelector": map[string]any{}})
		rules = append(rules, map[string]any{"ports": otherPorts(restricted.Union(others.restricted))})
	}
	var ports []any
	for _, p := range sorted(maps.Keys(restricted)) {
		ports = append(ports, map[string]any{"protocol": string(p.protocol), "port": int64(p.number)})
	}
	rules[0] = map[string]any{"from": from, "ports": ports}
	return NewObject(l, networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), l.Name+ClientPolicySuffix, nil, nil,
		map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{names.PodMountLabel(l.UID): names.ListenerLabel(
				l.Name)}},
			"policyTypes": []any{string(networkingv1.PolicyTypeIngress)},
			"ingress":     rules,
		})
}

// restrictedPorts returns the ports of the Pods that clients of the Listener are led to, as far as they are known.
func (b *Backend) restrictedPorts(l *Listener, service *corev1ac.ServiceApplyConfiguration) sets.Set[port] {
	ports := sets.New[port]()
	if b.Clients.Ports != nil {
		for _, p := range b.Clients.Ports(l) {
			ports.Insert(port{protocol: ProtocolOf(p), number: p.Port})
		}
		return ports
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		number := ptr.Deref(p.Port, 0)
		switch {
		case p.TargetPort != nil:
			number = p.TargetPort.IntVal
		case l.Class.TargetsNodePorts():
			continue // until the Service has a node port
		}
		ports.Insert(port{protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP), number: number})
	}
	return ports
}

// OtherPolicies is what NetworkPolicies say about the Pods of a Listener, apart from its own.
type OtherPolicies struct {
	// restricted are the ports that the policies of other Listeners of these Pods restrict.
	restricted sets.Set[port]
	// onlyListeners states that no policy but those of Listeners selects any of these Pods.
	onlyListeners bool
}

// Limits of the work that NetworkPolicies of users cost. Of what is above, every policy is taken for one that selects
// every Pod: beside it, the policies of Listeners admit less.
const (
	maxSelector    = 64      // labels and values of the selector of a policy
	maxComparisons = 1 << 20 // of a label or value of a policy with a Pod
	parsing        = 10      // comparisons that take as long as to parse a label or value
)

// ReadPolicies reads the NetworkPolicies of a namespace, except the Listener's own. pods are the Pods that mount it.
func ReadPolicies(listener *listenersv1alpha1.Listener, pods []*corev1.Pod,
	others []*networkingv1.NetworkPolicy) OtherPolicies {
	// It is selected by what selects all Pods.
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: listener.Spec.ExtraPodSelectorLabels}}
	pods = append(slices.Clone(pods), next)
	comparisons := 0
	for _, policy := range others {
		comparisons += (parsing + len(pods)) * (1 + selectorSize(policy.Spec.PodSelector))
	}
	if comparisons > maxComparisons {
		return OtherPolicies{}
	}
	restricted := sets.New[port]()
	for _, policy := range others {
		if !slices.ContainsFunc(pods, SelectsForIngress(policy)) {
			continue
		}
		if !IsClientPolicy(policy) || len(policy.Spec.Ingress) == 0 {
			return OtherPolicies{}
		}
		for _, p := range policy.Spec.Ingress[0].Ports {
			restricted.Insert(port{protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP),
				number: ptr.Deref(p.Port, intstr.IntOrString{}).IntVal})
		}
	}
	return OtherPolicies{restricted: restricted, onlyListeners: true}
}

// SelectsForIngress returns a function that reports whether a NetworkPolicy decides which clients reach a Pod of its
// namespace. None does for a Pod in the network of its node.
func SelectsForIngress(policy *networkingv1.NetworkPolicy) func(*corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || len(policy.Spec.PolicyTypes) > 0 && !slices.Contains(policy.Spec.PolicyTypes,
		networkingv1.PolicyTypeIngress) {
		selector = labels.Nothing()
	}
	return func(pod *corev1.Pod) bool { return !pod.Spec.HostNetwork && selector.Matches(labels.Set(pod.Labels)) }
}

// BoundSelector returns the selector of a NetworkPolicy, or, if it is too large, a selector of every Pod.
func BoundSelector(selector metav1.LabelSelector) metav1.LabelSelector {
	if selectorSize(selector) > maxSelector {
		return metav1.LabelSelector{}
	}
	return selector
}

func selectorSize(selector metav1.LabelSelector) int {
	size := len(selector.MatchLabels) + len(selector.MatchExpressions)
	for i := range selector.MatchExpressions {
		size += len(selector.MatchExpressions[i].Values)
	}
	return size
}

// IsClientPolicy reports whether a NetworkPolicy is one that ClientPolicy has returned, for any Listener.
func IsClientPolicy(policy metav1.Object) bool {
	listener, ok := strings.CutSuffix(policy.GetName(), ClientPolicySuffix)
	return ok && names.ListenerLabel(listener) == names.ListenerLabel(ListenerOf(policy))
}

// otherPorts returns all ports but these, of all protocols, as ports of a NetworkPolicy.
func otherPorts(ports sets.Set[port]) []any {
	var others []any
	for _, protocol := range protocols {
		next, end := int64(1), port{protocol: protocol, number: math.MaxUint16 + 1}
		for _, p := range append(sorted(maps.Keys(ports)), end) {
			if p.protocol != protocol {
				continue
			}
			entry, last := map[string]any{"protocol": string(protocol), "port": next}, int64(p.number)-1
			switch {
			case next == 1 && p == end:
				delete(entry, "port")
			case next < last:
				entry["endPort"] = last
			}
			if next <= last {
				others = append(others, entry)
			}
			next = last + 2
		}
	}
	return others
}
