package exposure

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/message"
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// port is a port of a Listener, or a port of a Pod, which may have no name.
type port struct {
	protocol corev1.Protocol
	name     string
	number   int32
}

// ProtocolOf returns the protocol of a port of a Listener, which is TCP by default.
func ProtocolOf(p listenersv1alpha1.ListenerPort) corev1.Protocol {
	return cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)
}

func sorted(ports iter.Seq[port]) []port {
	return slices.SortedFunc(ports, func(a, b port) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
}

// ExposedPorts returns the ports of a Listener that its class exposes, in the order of the Listener.
func ExposedPorts(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) []listenersv1alpha1.ListenerPort {
	return slices.DeleteFunc(slices.Clone(listener.Spec.Ports), func(p listenersv1alpha1.ListenerPort) bool {
		return len(class.Spec.Ports) > 0 && !slices.Contains(class.Spec.Ports, p.Name)
	})
}

// OrderedPorts returns the ports of the Service in the order of preference: that in which the class lists them, or else
// the Listener. Ports that only overrides add come last.
func (l *Listener) OrderedPorts() []corev1.ServicePort {
	order := l.Class.ListedPorts()
	for _, p := range l.Spec.Ports {
		order = append(order, p.Name)
	}
	places := map[string]int{} // negative, so that ports that are not in the order come last
	for i, name := range slices.Backward(order) {
		places[name] = i - len(order)
	}
	return slices.SortedStableFunc(slices.Values(l.Service.Spec.Ports), func(a, b corev1.ServicePort) int {
		return cmp.Compare(places[a.Name], places[b.Name])
	})
}

func noPorts(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) *Refusal {
	if len(listener.Spec.Ports) == 0 {
		return Refuse(listenersv1alpha1.ReasonNoPorts, "spec.ports is empty, and overrides add no port; name at least one port to expose")
	}
	names := make([]string, 0, len(listener.Spec.Ports))
	for _, p := range listener.Spec.Ports {
		names = append(names, p.Name)
	}
	return Refuse(listenersv1alpha1.ReasonNoPorts, "ListenerClass %s exposes only the ports %s, and the Listener has only %s; rename a port, or use another class",
		class.Name, strings.Join(class.Spec.Ports, ", "), strings.Join(names, ", "))
}

// servicePorts returns the ports of the Service of a Listener, sorted by protocol and name. Of several ports with the
// same protocol and name, the last one applies. The refusal is for ports that no Service can have.
func servicePorts(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) ([]port, *Refusal) {
	last, byName, byNumber := map[port]port{}, map[string]port{}, map[port]string{}
	for _, p := range ExposedPorts(class, listener) {
		last[port{protocol: ProtocolOf(p), name: p.Name}] = port{ProtocolOf(p), p.Name, p.Port}
	}
	ports := sorted(maps.Values(last))
	for _, p := range ports {
		if problem := checkPort(p); problem != "" {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidPorts, "spec.ports: port %q: %s", p.name, problem)
		}
		if other, ok := byName[p.name]; ok {
			return nil, Refuse(listenersv1alpha1.ReasonDuplicatePortName,
				"spec.ports: the name %q is used for both %s and %s; each port of a Service must have a name of its own",
				p.name, other.protocol, p.protocol)
		}
		byName[p.name] = p
		number := port{protocol: p.protocol, number: p.number}
		if other, ok := byNumber[number]; ok {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidPorts, "spec.ports: %q and %q are both %s port %d; remove one of them",
				other, p.name, p.protocol, p.number)
		}
		byNumber[number] = p.name
	}
	return ports, nil
}

// RepeatedPorts returns the names that several ports of a Listener with the same protocol have, sorted. Only the last
// of these ports is exposed.
func RepeatedPorts(listener *listenersv1alpha1.Listener) []string {
	seen, repeated := sets.New[port](), sets.New[string]()
	for _, l := range listener.Spec.Ports {
		p := port{protocol: ProtocolOf(l), name: l.Name}
		if seen.Has(p) {
			repeated.Insert(message.Printable(l.Name, validation.DNS1123LabelMaxLength))
		}
		seen.Insert(p)
	}
	return sets.List(repeated)
}

// checkPort returns why a port is invalid, or "". The rules are those of Kubernetes for the ports of a Service, except
// that Kubernetes allows a single port without a name. Here it must have one, because ports are published by name.
func checkPort(p port) string {
	if problems := validation.IsDNS1123Label(p.name); len(problems) > 0 {
		return "the name is not valid: " + strings.Join(problems, ", ")
	}
	if problems := validation.IsValidPortNum(int(p.number)); len(problems) > 0 {
		return "the port number is not valid: " + strings.Join(problems, ", ")
	}
	if !slices.Contains(protocols, p.protocol) {
		return "the protocol " + string(p.protocol) + " is none of TCP, UDP and SCTP"
	}
	return ""
}

// ContainerPort returns the number of a port of a Pod that is given by its number or its name, or 0.
func ContainerPort(pod *corev1.Pod, port intstr.IntOrString, protocol corev1.Protocol) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, p := range claim.ContainerPorts(pod) {
		if p.Name == port.StrVal && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
			return p.ContainerPort
		}
	}
	return 0
}
