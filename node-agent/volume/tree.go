package volume

import (
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
)

// The names that consumers read (contract: the files).
const (
	addressesDir = "addresses"
	defaultLink  = "default-address"
	addressFile  = "address"
	portsDir     = "ports"
)

// Files at the root of the volume that the contract does not have: the default address for programs that read
// environment variables or properties instead of files. The second one is for the kubelet, which reads variables
// (fileKeyRef) only if their values are in single quotes.
const (
	envFile       = "default-address.env"
	quotedEnvFile = "default-address.quoted.env"
)

// envFiles are these files, and what is around their values.
var envFiles = []struct{ name, quote string }{{envFile, ""}, {quotedEnvFile, "'"}}

// tree is the content of a volume: its addresses, the default one first.
type tree []directory

// directory is the directory of an address.
type directory struct {
	address string
	ports   map[string]string // file content by file name
}

// path returns the path of the directory in the tree.
func (d *directory) path() string { return path.Join(addressesDir, d.address) }

// env returns a line for each variable, with its value in quotes. Without any, a shell, systemd and
// java.util.Properties read them alike, because no value has a character that needs quotes. A name of a port is in
// capital letters with underscores. An endpoint is address and port, with an IPv6 address in brackets.
func (d *directory) env(quote string) string {
	var b strings.Builder
	write := func(variable, value string) { fmt.Fprintf(&b, "LISTENER_%s=%s%s%s\n", variable, quote, value, quote) }
	write("ADDRESS", d.address)
	for _, name := range slices.Sorted(maps.Keys(d.ports)) {
		variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		write("PORT_"+variable, d.ports[name])
		write("ENDPOINT_"+variable, net.JoinHostPort(d.address, d.ports[name]))
	}
	return b.String()
}

// Limits of what is written into a volume. The operator writes far less; other content of a PodListeners object, which
// may have more than a MiB, must not use up the inodes of the node.
const (
	// maxFiles is the maximum number of addresses and ports of a volume: three addresses with as many ports as a class
	// can permit.
	maxFiles = 4096
	// maxSkipped is the maximum number of descriptions of what was left out.
	maxSkipped = 10
)

// newTree returns the content of a volume with these addresses, and descriptions of what was left out. Names are
// validated here because the API permits some that are not valid file names, and because other clients than the
// operator may be permitted to write the status of Listeners.
func newTree(addresses []listenersv1alpha1.IngressAddress) (tree, []string) {
	var (
		want    tree
		skipped skipped
		seen    = map[string]bool{}
		files   int
	)
	for i := range addresses {
		a := &addresses[i]
		switch {
		case !address.IsIP(a.Address) && !address.IsHostname(a.Address):
			skipped.add("address %.253q: neither an IP address nor a host name", a.Address)
			continue
		case seen[a.Address]:
			continue
		case files == maxFiles:
			skipped.add("address %.253q: a volume has at most %d addresses and ports", a.Address, maxFiles)
			continue
		}
		files++
		seen[a.Address] = true
		d := directory{address: a.Address, ports: map[string]string{}}
		for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
			problem := checkPort(name, a.Ports[name])
			if problem == "" && files == maxFiles {
				problem = fmt.Sprintf("a volume has at most %d addresses and ports", maxFiles)
			}
			if problem != "" {
				skipped.add("port %.253q of address %q: %s", name, a.Address, problem)
				continue
			}
			files++
			d.ports[name] = strconv.Itoa(int(a.Ports[name]))
		}
		want = append(want, d)
	}
	return want, skipped.descriptions()
}

// skipped describes what was left out of a volume.
type skipped struct {
	first []string
	count int
}

func (s *skipped) add(format string, args ...any) {
	if s.count++; s.count <= maxSkipped {
		s.first = append(s.first, fmt.Sprintf(format, args...))
	}
}

func (s *skipped) descriptions() []string {
	if more := s.count - len(s.first); more > 0 {
		return append(s.first, fmt.Sprintf("and %d more", more))
	}
	return s.first
}

// checkPort validates a port like that of a Service, and returns the problem, or "".
func checkPort(name string, port int32) string {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return "not a valid name for a port of a Service"
	}
	if problems := validation.IsValidPortNum(int(port)); len(problems) > 0 {
		return fmt.Sprintf("%d is not a valid port number", port)
	}
	return ""
}
