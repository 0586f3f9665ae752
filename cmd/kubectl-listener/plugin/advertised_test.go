package plugin_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// advertise makes this the advertised address of the Listener and of the Pod, in place of the node's.
func (w *world) advertise(t *testing.T, advertised listenersv1alpha1.IngressAddress) {
	t.Helper()
	w.listener.Status.Targets = []listenersv1alpha1.Target{{
		Address: "203.0.113.7", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 31337}, NodeName: w.node.Name, Advertised: advertised,
	}}
	w.publish(t, advertised)
}

func TestGetWritesWhatHasToBeConfiguredInFrontOfTheCluster(t *testing.T) {
	w := newWorld(t)
	w.advertise(t, at("edge.example", map[string]int32{"http": 9000}))
	g := NewWithT(t)
	out, err := run(t, apiserver.Config(t), "get", "web", "-n", w.namespace, "-o", "json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchJSON(`{"listeners": [{
		"namespace": "` + w.namespace + `", "name": "web", "class": "` + w.class.Name + `",
		"addresses": [{"address": "edge.example", "addressType": "Hostname", "ports": {"http": 9000}}],
		"advertised": [{"name": "http", "protocol": "TCP", "address": "edge.example", "port": 9000,
			"targets": [{"address": "203.0.113.7", "port": 31337, "node": "` + w.node.Name + `"}]}],
		"replicas": [{"pod": "web-0", "node": "` + w.node.Name + `", "volume": "listener", "scope": "Node", "addresses": [
			{"address": "edge.example", "addressType": "Hostname", "ports": {"http": 9000}}]}]}]}`))
}

// The operator does not know what is at an advertised address. So why names the address and what it has to lead to, and
// connect tries it.
func TestAdvertisedAddressesAreNamedWithWhatIsBehindThem(t *testing.T) {
	w := newWorld(t)
	open, closed := listen(t)
	for name, tc := range map[string]struct {
		port   int32
		remedy string
	}{
		"something listens": {open, ""},
		"nothing listens":   {closed, "Make sure that it forwards to 203.0.113.7:31337 (" + w.node.Name + ")"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w.advertise(t, at("127.0.0.1", map[string]int32{"http": tc.port}))
			r := whyOf(t, w.namespace, "web-0")
			var said []string
			for _, f := range r.Findings {
				if f.Kind == "Address" {
					said = append(said, f.State+" "+f.Message)
				}
			}
			g.Expect(said).To(ConsistOf(And(HavePrefix("Warning is advertised for port http"), HaveSuffix("has to forward to 203.0.113.7:31337 ("+w.node.Name+")"))))
			g.Expect(r.Problem).To(BeNil())

			r = resultOf(t, apiserver.Config(t), "connect", "web-0", "-n", w.namespace)
			if tc.remedy == "" {
				g.Expect(r.Problem).To(BeNil())
				return
			}
			g.Expect(r.Problem).NotTo(BeNil())
			g.Expect(strings.Contains(r.Problem.Remedy, tc.remedy)).To(BeTrue(), r.Problem.Remedy)
		})
	}
}
