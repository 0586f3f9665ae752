package advertise

import (
	"maps"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Forward is an advertised address with a port, and where whatever is there has to forward connections to: to any of
// the targets. Its JSON is part of the output of kubectl listener.
type Forward struct {
	// Name is the name of the port of the Listener.
	Name     string          `json:"name"`
	Protocol corev1.Protocol `json:"protocol"`
	Address  string          `json:"address"`
	Port     int32           `json:"port"`
	// Targets have no duplicates.
	Targets []Destination `json:"targets"`
}

// Destination is an address in the cluster, with a port, and the node that has the address, if it is that of a node.
type Destination struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
	Node    string `json:"node,omitempty"`
}

// HostPort returns the address and the port as one text, with IPv6 addresses in brackets.
func (f Forward) HostPort() string { return hostPort(f.Address, f.Port) }

// String returns the address and the port as one text, with the node.
func (d Destination) String() string {
	if d.Node == "" {
		return hostPort(d.Address, d.Port)
	}
	return hostPort(d.Address, d.Port) + " (" + d.Node + ")"
}

func hostPort(address string, port int32) string {
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// Forwards returns what is advertised for a Listener, in the order of its status, and there by the names of the ports.
// It is empty if its class advertises nothing.
func Forwards(listener *listenersv1alpha1.Listener) []Forward {
	forwards := []Forward{}
	if listener.Status == nil {
		return forwards
	}
	type port struct {
		name, address string
		number        int32
	}
	places, seen := map[port]int{}, map[port]map[Destination]bool{}
	for _, target := range listener.Status.Targets {
		for _, name := range slices.Sorted(maps.Keys(target.Ports)) {
			number, ok := target.Advertised.Ports[name]
			if !ok {
				continue
			}
			p := port{name, target.Advertised.Address, number}
			if seen[p] == nil {
				places[p], seen[p] = len(forwards), map[Destination]bool{}
				forwards = append(forwards, Forward{Name: name, Protocol: listener.PortProtocol(name), Address: p.address, Port: number})
			}
			to := Destination{Address: target.Address, Port: target.Ports[name], Node: target.NodeName}
			if !seen[p][to] {
				seen[p][to] = true
				forwards[places[p]].Targets = append(forwards[places[p]].Targets, to)
			}
		}
	}
	return forwards
}
