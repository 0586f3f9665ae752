package plugin_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// fields returns the words of each line.
func fields(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestGetListsEveryAddressOfEveryReplica(t *testing.T) {
	w := newWorld(t)
	w.listener.Status.Summary.Reason = listenersv1alpha1.ReasonAddressesAssigned
	w.updateStatus(t, w.listener)
	entry := w.podListeners.Spec.Listeners["listener"]
	entry.IngressAddresses = append(entry.IngressAddresses, listenersv1alpha1.IngressAddress{
		Address: "2001:db8::7", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 31337, "admin": 31338},
	})
	w.podListeners.Spec.Listeners["listener"] = entry
	w.update(t, w.podListeners)
	idle := &listenersv1alpha1.Listener{}
	idle.Namespace, idle.Name = w.namespace, "idle"
	w.create(t, idle)
	class, node := w.class.Name, w.node.Name
	want := []string{
		"LISTENER CLASS POD NODE PORT ADDRESS REASON",
		"idle <none> <none> <none> <none> <pending> <none>",
		"web " + class + " web-0 " + node + " http 203.0.113.7:31337 AddressesAssigned",
		"web " + class + " web-0 " + node + " admin [2001:db8::7]:31338 AddressesAssigned",
		"web " + class + " web-0 " + node + " http [2001:db8::7]:31337 AddressesAssigned",
	}
	g := NewWithT(t)
	out, err := run(t, apiserver.Config(t), "get", "-n", w.namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields(out)).To(Equal(want))

	out, err = run(t, apiserver.Config(t), "get", "idle", "-n", w.namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields(out)).To(Equal(want[:2]))

	out, err = run(t, apiserver.Config(t), "get", "--all-namespaces")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields(out)).To(ContainElements("NAMESPACE "+want[0], w.namespace+" "+want[2]))

	out, err = run(t, apiserver.Config(t), "get", "web", "-n", w.namespace, "-o", "json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchJSON(`{"listeners": [{
		"namespace": "` + w.namespace + `", "name": "web", "class": "` + class + `", "reason": "AddressesAssigned",
		"addresses": [{"address": "203.0.113.7", "addressType": "IP", "ports": {"http": 31337}}],
		"replicas": [{"pod": "web-0", "node": "` + node + `", "volume": "listener", "scope": "Node", "addresses": [
			{"address": "203.0.113.7", "addressType": "IP", "ports": {"http": 31337}},
			{"address": "2001:db8::7", "addressType": "IP", "ports": {"admin": 31338, "http": 31337}}]}]}]}`))

	_, err = run(t, apiserver.Config(t), "get", "absent", "-n", w.namespace)
	g.Expect(err).To(MatchError(`there is no Listener "absent"`))
}

// output is a buffer that may be read while a command writes to it.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fields(o.buffer.String())
}

func TestGetWatchesAddresses(t *testing.T) {
	w := newWorld(t)
	out := &output{}
	command := plugin.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: &output{}})
	command.SetArgs([]string{"--kubeconfig", kubeconfig(t, apiserver.Config(t)), "get", "--watch", "-n", w.namespace})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(ctx) }()
	g := NewWithT(t)
	line := "web " + w.class.Name + " web-0 " + w.node.Name + " http "
	want := []string{"LISTENER CLASS POD NODE PORT ADDRESS REASON", line + "203.0.113.7:31337 <none>"}
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))

	entry := w.podListeners.Spec.Listeners["listener"]
	entry.IngressAddresses[0].Address = "203.0.113.8"
	w.podListeners.Spec.Listeners["listener"] = entry
	w.update(t, w.podListeners)
	want = append(want, line+"203.0.113.8:31337 <none>")
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))

	w.remove(t, w.listener)
	want = append(want, line+"<removed> <none>")
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))
	cancel()
	g.Eventually(done, apiserver.Timeout).Should(Receive(BeNil()))
}
