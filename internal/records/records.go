// Package records computes the DNS records of Listeners whose classes publish a name in place of the addresses.
package records

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// Record is a set of DNS records with the same name and type (RFC 1035, 3596 and 2782).
type Record struct {
	// Name is fully qualified, without a dot at the end.
	Name string
	// Type is A, AAAA, CNAME or SRV.
	Type string
	// TTL is in seconds.
	TTL int64
	// Targets are the data of the records, each once, in the order of the status.
	Targets []string
}

// Of returns the records of a Listener by its status, sorted by name and type: its name leads to the addresses in
// targets, and to a host name only if there is no IP address, because a name has either (RFC 1034, section 3.6.2). Of
// several host names, the first one counts. The ports that clients have to find out have SRV records, unless the name
// leads to a host name. There are none if the class publishes no name in place of the addresses, or another name than
// the status still has: by a previous class, others may share that. The Service, if there is one, says which Pod the
// name is made from.
func Of(l *exposure.Listener) []Record {
	listener, hostname := l.Listener, l.Class.Spec.Hostname
	own := host.NameOf(l)
	if own == "" || hostname.Annotated() || listener.Status == nil {
		return nil
	}
	all := collected{ttl: int64(ptr.Deref(hostname.TTLSeconds, listenersv1alpha1.DefaultTTLSeconds))}
	var alias string
	for _, target := range listener.Status.Targets {
		name, ip := target.Advertised.Address, net.ParseIP(target.Address)
		switch {
		case name != own:
			continue
		case ip == nil:
			alias = cmp.Or(alias, target.Address)
			continue
		case ip.To4() != nil:
			all.add(name, "A", target.Address)
		default:
			all.add(name, "AAAA", target.Address)
		}
		for service, number := range otherPorts(listener, target.Advertised) {
			all.add(service+"."+name, "SRV", fmt.Sprintf("0 0 %d %s", number, name))
		}
	}
	if len(all.records) == 0 && alias != "" {
		all.add(own, "CNAME", alias)
	}
	slices.SortFunc(all.records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return all.records
}

// collected are records without duplicates.
type collected struct {
	ttl     int64
	records []Record
	places  map[[2]string]int
	seen    sets.Set[[3]string]
}

func (c *collected) add(name, kind, target string) {
	if c.places == nil {
		c.places, c.seen = map[[2]string]int{}, sets.New[[3]string]()
	}
	place, known := c.places[[2]string{name, kind}]
	if !known {
		place, c.places[[2]string{name, kind}] = len(c.records), len(c.records)
		c.records = append(c.records, Record{Name: name, Type: kind, TTL: c.ttl})
	}
	if id := [3]string{name, kind, target}; !c.seen.Has(id) {
		c.seen.Insert(id)
		c.records[place].Targets = append(c.records[place].Targets, target)
	}
}

// otherPorts returns the ports of an address, by the first two labels of their SRV records, if any of them has another
// number than the Listener. A name that is too long for a label has none.
func otherPorts(listener *listenersv1alpha1.Listener, a listenersv1alpha1.IngressAddress) map[string]int32 {
	same := map[string]int32{}
	for _, p := range listener.Spec.Ports {
		same[p.Name] = p.Port
	}
	if maps.Equal(same, a.Ports) {
		return nil
	}
	ports := map[string]int32{}
	for name, number := range a.Ports {
		protocol := strings.ToLower(string(listener.PortProtocol(name)))
		if len(validation.IsDNS1123Label(name)) == 0 && len(name) < validation.DNS1123LabelMaxLength {
			ports["_"+name+"._"+protocol] = number
		}
	}
	return ports
}
