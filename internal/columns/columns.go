// Package columns writes addresses and names in one short line, for kubectl get. No program may parse it.
package columns

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Address returns the first address with the port whose name sorts first, and how many other pairs of address and port
// there are, for example "203.0.113.7:30092 +2". It is empty if there is no address.
func Address(addresses []listenersv1alpha1.IngressAddress) string {
	if len(addresses) == 0 {
		return ""
	}
	first, others := addresses[0].Address, -1
	if ports := slices.Sorted(maps.Keys(addresses[0].Ports)); len(ports) > 0 {
		first = addresses[0].HostPort(ports[0])
	}
	for _, a := range addresses {
		others += max(len(a.Ports), 1)
	}
	return first + more(others)
}

// maxNames is how many names are listed. A column has to fit into a line.
const maxNames = 3

// Names returns the first names and how many more there are, for example "node-1,node-2,node-3 +4".
func Names(names []string) string {
	listed := names[:min(len(names), maxNames)]
	return strings.Join(listed, ",") + more(len(names)-len(listed))
}

// WaitingFor returns the kind and the value of what a Listener waits for, for example "Host web.example.com", or "".
func WaitingFor(w *listenersv1alpha1.WaitingFor) string {
	if w == nil {
		return ""
	}
	return strings.TrimSpace(string(w.Kind) + " " + w.Value)
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" +%d", n)
}

// Volumes returns the volumes of a Pod, sorted by name, with their addresses, and with those that the Pod started with
// if they have changed, for example "bootstrap=192.0.2.1:9092, broker=<pending>, ui=192.0.2.3:80 (was 192.0.2.2:80)".
func Volumes(spec *listenersv1alpha1.PodListenersSpec) string {
	var all []string
	outdated := spec.Outdated()
	for _, name := range slices.Sorted(maps.Keys(spec.Listeners)) {
		address := cmp.Or(Address(spec.Listeners[name].IngressAddresses), "<pending>")
		if slices.Contains(outdated, name) {
			address += " (was " + Address(spec.StartAddresses[name]) + ")"
		}
		all = append(all, name+"="+address)
	}
	return strings.Join(all, ", ")
}
