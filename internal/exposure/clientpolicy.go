package exposure

import (
	"cmp"
	"maps"
	"math"
	"slices"

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
	"github.com/listener-operator/listener-operator/internal/names"
)

// ClientPolicySuffix follows the name of the Listener in that of its NetworkPolicy.
const ClientPolicySuffix = "-allowed-clients"

// protocols are those of ports.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// podPort is a port of a Pod.
type podPort struct {
	protocol corev1.Protocol
	number   int32
}

// ClientPolicy returns the NetworkPolicy that keeps other clients from the Pods of a Listener, or nil if none has to,
// or if the ports that it concerns are not known yet. service is the Service with the target ports that it has.
//
// A NetworkPolicy denies the Pods that it selects everything but what it admits. So it admits everybody to their other
// ports, apart from those that the policies of other Listeners of these Pods restrict, and Pods to all ports: only
// clients outside are restricted. If any other policy selects a Pod, it admits neither: then nobody expects these ports
// to be open, and policies only add to each other.
func (b *Backend) ClientPolicy(l *Listener, service *corev1ac.ServiceApplyConfiguration, others OtherPolicies) *unstructured.Unstructured {
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
	for _, p := range sorted(restricted) {
		ports = append(ports, map[string]any{"protocol": string(p.protocol), "port": int64(p.number)})
	}
	rules[0] = map[string]any{"from": from, "ports": ports}
	return NewObject(l, networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), l.Name+ClientPolicySuffix, nil, nil, map[string]any{
		"podSelector": map[string]any{"matchLabels": map[string]any{names.PodMountLabel(l.UID): l.Name}},
		"policyTypes": []any{string(networkingv1.PolicyTypeIngress)},
		"ingress":     rules,
	})
}

// restrictedPorts returns the ports of the Pods that clients of the Listener are led to, as far as they are known.
func (b *Backend) restrictedPorts(l *Listener, service *corev1ac.ServiceApplyConfiguration) sets.Set[podPort] {
	ports := sets.New[podPort]()
	if b.Clients.Ports != nil {
		for _, p := range b.Clients.Ports(l) {
			ports.Insert(podPort{cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP), p.Port})
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
		ports.Insert(podPort{ptr.Deref(p.Protocol, corev1.ProtocolTCP), number})
	}
	return ports
}

// OtherPolicies is what NetworkPolicies say about the Pods of a Listener, apart from its own.
type OtherPolicies struct {
	// restricted are the ports that the policies of other Listeners of these Pods restrict.
	restricted sets.Set[podPort]
	// onlyListeners states that no policy but those of Listeners selects any of these Pods.
	onlyListeners bool
}

// Limits of the work that NetworkPolicies of users cost. Of what is above, every policy is taken for one that selects
// every Pod: beside it, the policies of Listeners admit less.
const (
	// maxSelector is how many labels and values the selector of a policy may have.
	maxSelector = 64
	// maxComparisons is how many labels and values of policies are compared with Pods. To parse one takes as long as to
	// compare it with so many Pods.
	maxComparisons, parsing = 1 << 20, 10
)

// ReadPolicies reads the NetworkPolicies of a namespace but that of the Listener. pods are the Pods that mount it.
func ReadPolicies(listener *listenersv1alpha1.Listener, pods []*corev1.Pod, others []*networkingv1.NetworkPolicy) OtherPolicies {
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: listener.Spec.ExtraPodSelectorLabels}} // selected by what selects all Pods
	pods = append(slices.Clone(pods), next)
	comparisons := 0
	for _, policy := range others {
		comparisons += (parsing + len(pods)) * (1 + selectorSize(policy.Spec.PodSelector))
	}
	if comparisons > maxComparisons {
		return OtherPolicies{}
	}
	restricted := sets.New[podPort]()
	for _, policy := range others {
		if !slices.ContainsFunc(pods, ingressSelector(policy)) {
			continue
		}
		if !IsClientPolicy(policy) || len(policy.Spec.Ingress) == 0 {
			return OtherPolicies{}
		}
		for _, p := range policy.Spec.Ingress[0].Ports {
			restricted.Insert(podPort{ptr.Deref(p.Protocol, corev1.ProtocolTCP), ptr.Deref(p.Port, intstr.IntOrString{}).IntVal})
		}
	}
	return OtherPolicies{restricted: restricted, onlyListeners: true}
}

// ingressSelector returns a function that reports whether a NetworkPolicy decides which clients reach a Pod of its
// namespace. None does for a Pod in the network of its node.
func ingressSelector(policy *networkingv1.NetworkPolicy) func(*corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || len(policy.Spec.PolicyTypes) > 0 && !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		selector = labels.Nothing()
	}
	return func(pod *corev1.Pod) bool { return !pod.Spec.HostNetwork && selector.Matches(labels.Set(pod.Labels)) }
}

// SelectsForIngress reports whether a NetworkPolicy of a Pod's namespace decides which clients reach the Pod.
func SelectsForIngress(policy *networkingv1.NetworkPolicy, pod *corev1.Pod) bool {
	return ingressSelector(policy)(pod)
}

// BoundSelector returns the selector of a NetworkPolicy, or one that selects every Pod in place of one that is too
// large.
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
	owner := metav1.GetControllerOf(policy)
	return owner != nil && owner.Kind == "Listener" && policy.GetName() == owner.Name+ClientPolicySuffix
}

// otherPorts returns all ports but these, of all protocols, as ports of a NetworkPolicy.
func otherPorts(ports sets.Set[podPort]) []any {
	var others []any
	for _, protocol := range protocols {
		next := int32(1)
		add := func(last int32) {
			switch entry := map[string]any{"protocol": string(protocol), "port": int64(next)}; {
			case next == 1 && last == math.MaxUint16:
				others = append(others, map[string]any{"protocol": string(protocol)})
			case next == last:
				others = append(others, entry)
			case next < last:
				entry["endPort"] = int64(last)
				others = append(others, entry)
			}
		}
		for _, p := range sorted(ports) {
			if p.protocol == protocol {
				add(p.number - 1)
				next = p.number + 1
			}
		}
		add(math.MaxUint16)
	}
	return others
}

// sorted returns ports by protocol and number.
func sorted(ports sets.Set[podPort]) []podPort {
	return slices.SortedFunc(maps.Keys(ports), func(a, b podPort) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.number, b.number))
	})
}
