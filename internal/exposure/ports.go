package exposure

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// port is a port of a Listener with its default protocol applied.
type port struct {
	protocol corev1.Protocol
	name     string
	number   int32
}

// servicePorts returns the ports of the Service of a Listener, sorted by protocol and name. Of several ports with the
// same protocol and name, the last one applies. The error is a *Refusal if no Service can have these ports.
func servicePorts(listener *listenersv1alpha1.Listener) ([]port, error) {
	ports := deduplicate(listener.Spec.Ports)
	byName, byNumber := map[string]port{}, map[port]string{}
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

func deduplicate(listed []listenersv1alpha1.ListenerPort) []port {
	type key struct {
		protocol corev1.Protocol
		name     string
	}
	last := map[key]port{}
	for _, l := range listed {
		p := port{protocol: corev1.ProtocolTCP, name: l.Name, number: l.Port}
		if l.Protocol != nil && *l.Protocol != "" {
			p.protocol = *l.Protocol
		}
		last[key{p.protocol, p.name}] = p
	}
	ports := make([]port, 0, len(last))
	for _, p := range last {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b port) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.name, b.name))
	})
	return ports
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
	switch p.protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return ""
	default:
		return "the protocol " + string(p.protocol) + " is none of TCP, UDP and SCTP"
	}
}
