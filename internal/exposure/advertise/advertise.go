// Package advertise computes what is published in place of the addresses that lead to a Listener in the cluster, if its
// class says so. It is the same for all backends, which know nothing of it.
//
// It must never give a namespace an address that the template of the class has reserved for another one. Two Listeners
// may nevertheless get the same address: controllers/listener refuses one of them.
package advertise

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

const (
	// otherwise stands for the address that would be published without a template, and is the default.
	otherwise = "{address}"
	maxPort   = 65535
)

var (
	// chosenByUsers matches the placeholders whose values users choose.
	chosenByUsers = regexp.MustCompile(`\{(listener|namespace|podName|port)\}`)
	// term matches a number or placeholder of a template of ports with the sign before it.
	term = regexp.MustCompile(`([+-]?)(?:([0-9]{1,5})|\{([^{}]*)\})`)
)

// Targets returns the addresses of a Listener, whose class advertises others, with what is published in their place.
// Addresses with {port} in the template are split by ports, in the order of preference of the ports.
func Targets(l *exposure.Listener, p exposure.Placement,
	addresses []listenersv1alpha1.IngressAddress) ([]listenersv1alpha1.Target, *exposure.Refusal) {
	pod, refusal := host.PodOfAdvertised(l)
	if refusal != nil {
		return nil, refusal
	}
	advertise, path := l.Class.Advertised()
	t := templates{l, string(advertise.AddressTemplate), string(advertise.PortTemplate), pod, path}
	t.address, t.port = cmp.Or(t.address, otherwise), cmp.Or(t.port, "{addressPort}")
	if chosenByUsers.MatchString(t.address) && !host.SeparatesNamespaces(t.address) {
		return nil, t.refuse(t.path,
			"may give namespaces addresses of each other; use {namespace} as the only placeholder between two dots, "+
				"as in {podName}.{namespace}, or end a part between two dots with {hash}, as in "+
				"{podName}-{namespace}-{hash}")
	}
	nodes := nodesOf(l, p)
	var targets []listenersv1alpha1.Target
	for _, a := range addresses {
		ofAddress, refusal := t.targets(a, nodes[a.Address])
		if refusal != nil {
			return nil, refusal
		}
		targets = append(targets, ofAddress...)
	}
	return targets, t.repeated(targets)
}

// nodesOf returns the names of the nodes that have an address, by the address.
func nodesOf(l *exposure.Listener, p exposure.Placement) map[string]string {
	nodes := map[string]string{}
	for _, node := range slices.Backward(p.Nodes) { // of several nodes that advertise an address, the first one counts
		addresses, _ := exposure.NodeAddresses(node, l.NodeChoice())
		for _, a := range addresses {
			nodes[a.Address] = node.Name
		}
	}
	return nodes
}

// templates are those of a class for a Listener. pod is the name of its only Pod, or "" if they do not refer to it, and
// path is where the class has the template of the address.
type templates struct {
	*exposure.Listener
	address, port, pod, path string
}

const portPath = "spec.advertise.portTemplate"

func (t templates) refuse(path, format string, args ...any) *exposure.Refusal {
	return exposure.Refuse(listenersv1alpha1.ReasonInvalidAdvertisement, "%s of ListenerClass %s %s",
		path, t.Class.Name, fmt.Sprintf(format, args...))
}

// targets returns what is published in place of an address, which is that of a node, or of none.
func (t templates) targets(a listenersv1alpha1.IngressAddress,
	node string) ([]listenersv1alpha1.Target, *exposure.Refusal) {
	var targets []listenersv1alpha1.Target
	for _, port := range t.ordered(a.Ports) {
		advertised, addressType, refusal := t.addressOf(a, node, port)
		if refusal != nil {
			return nil, refusal
		}
		number, refusal := t.portOf(a, port)
		if refusal != nil {
			return nil, refusal
		}
		i := slices.IndexFunc(targets, func(known listenersv1alpha1.Target) bool {
			return known.Advertised.Address == advertised
		})
		if i < 0 {
			i = len(targets)
			targets = append(targets, listenersv1alpha1.Target{
				Address: a.Address, AddressType: a.AddressType, NodeName: node, Ports: map[string]int32{},
				Advertised: listenersv1alpha1.IngressAddress{Address: advertised, AddressType: addressType,
					Ports: map[string]int32{}},
			})
		}
		targets[i].Ports[port], targets[i].Advertised.Ports[port] = a.Ports[port], number
	}
	return targets, nil
}

func (t templates) ordered(ports map[string]int32) []string {
	var names []string
	for _, p := range t.OrderedPorts() {
		if _, ok := ports[p.Name]; ok {
			names = append(names, p.Name)
		}
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(ports)),
		func(name string) bool { return slices.Contains(names, name) })
	return append(names, others...)
}

func (t templates) addressOf(a listenersv1alpha1.IngressAddress, node,
	port string) (string, listenersv1alpha1.AddressType, *exposure.Refusal) {
	refuse := func(format string, args ...any) (string, listenersv1alpha1.AddressType, *exposure.Refusal) {
		return "", "", t.refuse(t.path, format, args...)
	}
	switch {
	case t.address == otherwise:
		return a.Address, a.AddressType, nil
	case node == "" && strings.Contains(t.address, "{nodeName}"):
		return refuse("contains {nodeName}, but %s is not the address of a node; remove it, or use serviceType "+
			"NodePort", a.Address)
	}
	if !strings.Contains(t.address, "{port}") {
		port = "" // also for {hash}, so that all ports have the same address
	}
	// These may have dots.
	text := strings.NewReplacer("{nodeName}", node, otherwise, strings.ToLower(a.Address)).Replace(t.address)
	advertised, unknown := host.ExpandHost(text, t.Listener, port, t.pod)
	switch {
	case len(unknown) > 0:
		return refuse("contains the unknown placeholder {%s}; the known ones are {listener}, {namespace}, "+
			"{className}, {podName}, {podIndex}, {port}, {hash}, {nodeName} and {address}", unknown[0])
	case address.IsIP(advertised) && address.Inside(advertised, "") == "":
		return netip.MustParseAddr(advertised).String(), listenersv1alpha1.AddressTypeIP, nil
	case !address.IsHostname(advertised) || address.EndsWithNumber(advertised):
		return refuse("results in %q, which is neither an IP address nor a host name that clients can use", advertised)
	}
	return advertised, listenersv1alpha1.AddressTypeHostname, nil
}

func (t templates) portOf(a listenersv1alpha1.IngressAddress, name string) (int32, *exposure.Refusal) {
	values := map[string]string{"addressPort": strconv.Itoa(int(a.Ports[name])), "podIndex": host.PodIndex(t.pod)}
	for _, p := range t.Service.Spec.Ports {
		if p.Name == name {
			values["servicePort"], values["nodePort"] = number(p.Port), number(p.NodePort)
		}
	}
	sum := int64(0)
	for _, parts := range term.FindAllStringSubmatch(t.port, -1) {
		sign, literal, placeholder := parts[1], parts[2], parts[3]
		value, err := strconv.ParseInt(cmp.Or(literal, values[placeholder]), 10, 32)
		switch {
		case err != nil && placeholder == "podIndex":
			return 0, t.refuse(portPath, "contains {podIndex}, which is too large in the name of Pod %s", t.pod)
		case err != nil:
			return 0, t.refuse(portPath, "contains {%s}, which has no value for port %s of Service %s/%s",
				placeholder, name, t.Namespace, t.Name)
		case sign == "-":
			value = -value
		}
		sum += value
	}
	if sum < 1 || sum > maxPort {
		return 0, t.refuse(portPath, "(%s) results in %d for port %s, which is not a port number from 1 to %d",
			t.port, sum, name, maxPort)
	}
	return int32(sum), nil
}

func number(port int32) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(int(port))
}

// repeated returns the refusal of a Listener of which two ports would be published as the same one, or nil.
func (t templates) repeated(targets []listenersv1alpha1.Target) *exposure.Refusal {
	portOf := map[string]string{}
	for _, target := range targets {
		for _, port := range t.ordered(target.Advertised.Ports) {
			e := endpoint(t.Listener.Listener, target.Advertised, port)
			if other, taken := portOf[e]; taken && other != port {
				return t.refuse(portPath,
					"publishes both port %s and port %s as %s; use {servicePort}, {nodePort} or {addressPort}, or "+
						"{port} in spec.advertise.addressTemplate, or list one of them in spec.ports of the class",
					other, port, e)
			}
			portOf[e] = port
		}
	}
	return nil
}

// Endpoints returns what targets of a Listener are published as, without duplicates, in their order.
func Endpoints(listener *listenersv1alpha1.Listener, targets []listenersv1alpha1.Target) (endpoints []string) {
	seen := map[string]bool{}
	for _, target := range targets {
		for _, port := range slices.Sorted(maps.Keys(target.Advertised.Ports)) {
			if e := endpoint(listener, target.Advertised, port); !seen[e] {
				seen[e] = true
				endpoints = append(endpoints, e)
			}
		}
	}
	return endpoints
}

// endpoint returns an advertised address with a port in a canonical form. The protocol is left out for TCP.
func endpoint(listener *listenersv1alpha1.Listener, a listenersv1alpha1.IngressAddress, port string) string {
	canonical := strings.ToLower(a.Address)
	if ip, err := netip.ParseAddr(a.Address); err == nil {
		canonical = ip.Unmap().String()
	}
	text := hostPort(canonical, a.Ports[port])
	if protocol := listener.PortProtocol(port); protocol != corev1.ProtocolTCP {
		text += "/" + string(protocol)
	}
	return text
}

// Published returns the addresses that targets are published as, without duplicates.
func Published(targets []listenersv1alpha1.Target) []listenersv1alpha1.IngressAddress {
	published := []listenersv1alpha1.IngressAddress{}
	for _, target := range targets {
		published = exposure.AppendNew(published, target.Advertised)
	}
	return published
}

// Instead returns what is published in place of some of the addresses that targets have.
func Instead(targets []listenersv1alpha1.Target,
	addresses []listenersv1alpha1.IngressAddress) []listenersv1alpha1.IngressAddress {
	var instead []listenersv1alpha1.Target
	for _, a := range addresses {
		for _, target := range targets {
			if target.Address == a.Address && contains(a.Ports, target.Ports) {
				instead = append(instead, target)
			}
		}
	}
	return Published(instead)
}

func contains(ports, others map[string]int32) bool {
	for name, number := range others {
		if ports[name] != number {
			return false
		}
	}
	return true
}

// Forward is an advertised address with a port, and where whatever is there has to forward connections to: to any of
// the targets. Its JSON is part of the output of kubectl listener.
type Forward struct {
	Name     string          `json:"name"`
	Protocol corev1.Protocol `json:"protocol"`
	Address  string          `json:"address"`
	Port     int32           `json:"port"`
	// Targets have no duplicates.
	Targets []Destination `json:"targets"`
}

// Destination is an address in the cluster, with a port, and the node that has the address, if a node has it.
type Destination struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
	Node    string `json:"node,omitempty"`
}

// HostPort returns the address and the port as one text, with IPv6 addresses in brackets.
func (f Forward) HostPort() string { return hostPort(f.Address, f.Port) }

func (d Destination) String() string {
	if d.Node == "" {
		return hostPort(d.Address, d.Port)
	}
	return hostPort(d.Address, d.Port) + " (" + d.Node + ")"
}

func hostPort(address string, port int32) string {
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// Forwards returns what is advertised for a Listener, in the order of its status and of the names of the ports.
func Forwards(listener *listenersv1alpha1.Listener) []Forward {
	forwards := []Forward{}
	type port struct {
		name, address string
		number        int32
	}
	type forwarded struct {
		port
		to Destination
	}
	places, seen := map[port]int{}, map[forwarded]bool{}
	for _, target := range ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Targets {
		for _, name := range slices.Sorted(maps.Keys(target.Ports)) {
			number, ok := target.Advertised.Ports[name]
			if !ok {
				continue
			}
			p := port{name, target.Advertised.Address, number}
			place, known := places[p]
			if !known {
				place, places[p] = len(forwards), len(forwards)
				forwards = append(forwards, Forward{Name: name, Protocol: listener.PortProtocol(name),
					Address: p.address, Port: number})
			}
			to := Destination{Address: target.Address, Port: target.Ports[name], Node: target.NodeName}
			if f := (forwarded{p, to}); !seen[f] {
				seen[f] = true
				forwards[place].Targets = append(forwards[place].Targets, to)
			}
		}
	}
	return forwards
}
