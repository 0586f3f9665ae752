package plugin_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
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
	w.listener.Status.WaitingFor = &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindNodePort, Since: metav1.Unix(0, 0)}
	w.updateStatus(t, w.listener)
	w.publishToPod(t, append(addresses(), at("2001:db8::7", map[string]int32{"http": 31337, "admin": 31338}))...)
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
		"waitingFor": {"kind": "NodePort", "since": "1970-01-01T00:00:00Z"},
		"addresses": [{"address": "203.0.113.7", "addressType": "IP", "ports": {"http": 31337}}], "advertised": [],
		"replicas": [{"pod": "web-0", "node": "` + node + `", "volume": "listener", "scope": "Node", "addresses": [
			{"address": "203.0.113.7", "addressType": "IP", "ports": {"http": 31337}},
			{"address": "2001:db8::7", "addressType": "IP", "ports": {"admin": 31338, "http": 31337}}]}]}]}`))

	_, err = run(t, apiserver.Config(t), "get", "absent", "-n", w.namespace)
	g.Expect(err).To(MatchError(`there is no Listener "absent"`))
}

// A name server reads them. Other Listeners of the namespace have no names.
func TestGetWritesTheRecordsOfAZone(t *testing.T) {
	w := newWorld(t)
	_, err := run(t, apiserver.Config(t), "get", "-n", w.namespace, "-o", "zone")
	g := NewWithT(t)
	g.Expect(err).To(MatchError(ContainSubstring("none of 1 Listeners has records")))
	named := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "named-" + w.namespace}}
	named.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort
	named.Spec.Hostname = &listenersv1alpha1.Hostname{
		Template: "{listener}.{namespace}.example.com", Records: listenersv1alpha1.HostnameRecordsNone, TTLSeconds: ptr.To[int32](5),
	}
	w.create(t, named)
	l := w.newListener("kafka-0", named.Name)
	l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "kafka", Port: 9092}}
	w.create(t, l)
	ports := map[string]int32{"kafka": 31337}
	name := listenersv1alpha1.IngressAddress{Address: "kafka-0." + w.namespace + ".example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports}
	l.Status = &listenersv1alpha1.ListenerStatus{Targets: []listenersv1alpha1.Target{
		{Address: "203.0.113.7", AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports, Advertised: name},
		{Address: "2001:db8::7", AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports, Advertised: name},
	}}
	w.updateStatus(t, l)
	out, err := run(t, apiserver.Config(t), "get", "-n", w.namespace, "-o", "zone")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal("_kafka._tcp." + name.Address + ".\t5\tIN\tSRV\t0 0 31337 " + name.Address + ".\n" +
		name.Address + ".\t5\tIN\tA\t203.0.113.7\n" + name.Address + ".\t5\tIN\tAAAA\t2001:db8::7\n"))
	_, err = run(t, apiserver.Config(t), "get", "-n", w.namespace, "-o", "zone", "--watch")
	g.Expect(err).To(MatchError(ContainSubstring("cannot be combined with --watch")))
}

// A client takes them as they are. Two Listeners may have the same address, and one may have none yet.
func TestGetWritesTheEndpointsOfAPort(t *testing.T) {
	w := newWorld(t)
	add := func(name, app string, addresses ...listenersv1alpha1.IngressAddress) {
		l := &listenersv1alpha1.Listener{}
		l.Namespace, l.Name, l.Labels = w.namespace, name, map[string]string{"app": app}
		w.create(t, l)
		l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: addresses}
		w.updateStatus(t, l)
	}
	add("redis-1", "redis", at("203.0.113.8", map[string]int32{"redis": 30002, "bus": 30012}), at("2001:db8::8", map[string]int32{"redis": 30002}))
	add("redis-0", "redis", at("203.0.113.7", map[string]int32{"redis": 30001, "bus": 30011}))
	add("redis-same", "redis", at("203.0.113.7", map[string]int32{"redis": 30001}))
	add("redis-late", "redis", []listenersv1alpha1.IngressAddress{}...)
	add("kafka-0", "kafka", at("203.0.113.9", map[string]int32{"redis": 30003}))
	g := NewWithT(t)
	get := func(args ...string) (out, errOut string, err error) {
		streams, _, buffer, errBuffer := genericiooptions.NewTestIOStreams()
		out, err = runWith(t, apiserver.Config(t), streams, buffer, append([]string{"get", "-n", w.namespace}, args...)...)
		return out, errBuffer.String(), err
	}
	out, errOut, err := get("--selector", "app=redis", "--endpoints", "redis")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal("203.0.113.7:30001,203.0.113.8:30002,[2001:db8::8]:30002\n"))
	g.Expect(errOut).To(Equal("Listener " + w.namespace + "/redis-late is left out: it has no address with a port \"redis\" (no reason is known).\n"))

	out, _, err = get("redis-0", "--endpoints", "bus")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal("203.0.113.7:30011\n"))

	out, _, err = get("-l", "app=redis", "--endpoints", "http")
	g.Expect(err).To(MatchError(`none of 4 Listeners has an address with a port "http"`))
	g.Expect(out).To(BeEmpty())

	_, _, err = get("redis-0", "-l", "app=kafka")
	g.Expect(err).To(MatchError(ContainSubstring("but not both")))

	_, _, err = get("-l", "app=redis=x")
	g.Expect(err).To(MatchError(ContainSubstring(`--selector is "app=redis=x"`)))
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
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: &output{}}
	command := plugin.NewCommand(streams, backends.All())
	command.SetArgs([]string{"--kubeconfig", kubeconfig(t, apiserver.Config(t)), "get", "--watch", "-n", w.namespace})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(ctx) }()
	g := NewWithT(t)
	line := "web " + w.class.Name + " web-0 " + w.node.Name + " http "
	want := []string{"LISTENER CLASS POD NODE PORT ADDRESS REASON", line + "203.0.113.7:31337 <none>"}
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))

	w.publishToPod(t, at("203.0.113.8", map[string]int32{"http": 31337}))
	want = append(want, line+"203.0.113.8:31337 <none>")
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))

	w.remove(t, w.listener)
	want = append(want, line+"<removed> <none>")
	g.Eventually(out.lines, apiserver.Timeout, "20ms").Should(Equal(want))
	cancel()
	g.Eventually(done, apiserver.Timeout).Should(Receive(BeNil()))
}

func TestGetSaysThatTheUserMayNotWatch(t *testing.T) {
	w := newWorld(t)
	config := w.user(t, rbacv1.PolicyRule{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"list"}})
	NewWithT(t).Eventually(func(g Gomega) { // permissions take effect a moment after they change
		out, err := run(t, config, "get", "--watch", "-n", w.namespace)
		g.Expect(err).To(MatchError(ContainSubstring("cannot watch resource")))
		g.Expect(out).To(ContainSubstring("203.0.113.7:31337"))
	}, apiserver.Timeout, "50ms").Should(Succeed())
}
