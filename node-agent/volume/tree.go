package volume

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// The names that consumers read (contract 1.4).
const (
	addressesDir = "addresses"
	defaultLink  = "default-address"
	addressFile  = "address"
	portsDir     = "ports"
)

// tree is the content of a volume: its addresses, the default one first.
type tree []directory

// directory is the directory of one address.
type directory struct {
	address string
	ports   map[string]string // file content by file name
}

// path is where the directory lies in the tree.
func (d *directory) path() string { return path.Join(addressesDir, d.address) }

// newTree decides the content of a volume, and tells what had to be left out. The API validates less than a file name
// needs, and others than the operator may write a Listener's status.
func newTree(addresses []listenersv1alpha1.IngressAddress) (tree, []string) {
	var (
		want    tree
		skipped []string
		seen    = map[string]bool{}
	)
	for i := range addresses {
		a := &addresses[i]
		switch {
		case !validAddress(a.Address):
			skipped = append(skipped, fmt.Sprintf("address %q: neither an IP address nor a host name", a.Address))
			continue
		case seen[a.Address]:
			continue
		}
		seen[a.Address] = true
		d := directory{address: a.Address, ports: map[string]string{}}
		for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
			if problem := checkPort(name, a.Ports[name]); problem != "" {
				skipped = append(skipped, fmt.Sprintf("port %q of address %q: %s", name, a.Address, problem))
				continue
			}
			d.ports[name] = strconv.Itoa(int(a.Ports[name]))
		}
		want = append(want, d)
	}
	return want, skipped
}

// validAddress tells whether an address can be one, and hence a file name. An IPv6 zone may hold any character, and
// means nothing in a Pod. Upper case is for nodes whose own host name has it.
func validAddress(address string) bool {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(address))) == 0
}

// checkPort applies the rules for ports of a Service, and returns what is wrong, or "".
func checkPort(name string, port int32) string {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return "the name is none that a Service accepts"
	}
	if problems := validation.IsValidPortNum(int(port)); len(problems) > 0 {
		return fmt.Sprintf("%d is no port number", port)
	}
	return ""
}
