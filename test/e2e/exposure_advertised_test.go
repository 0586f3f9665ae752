//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/pages"
)

// The network between a proxy in front of the cluster and a client that reaches nothing else.
const (
	proxyAddress   = "198.51.100.1"
	customer       = "198.51.100.2"
	customerPrefix = "/30"
)

// customerNetwork is a client outside the cluster that reaches the proxy alone, on the machine "client", which is
// connected to the nodes.
type customerNetwork struct{ namespace string }

// connectCustomer connects the client, until the end of the test.
func (s *scenario) connectCustomer() customerNetwork {
	s.Helper()
	c := customerNetwork{"customer-" + strings.TrimPrefix(s.namespace, "scenario-")}
	ip := func(args ...string) {
		s.Helper()
		_, err := output(s.ctx, "", nil, "ip", args...)
		s.must(err)
	}
	ip("netns", "add", c.namespace)
	s.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(s.ctx), "ip", "netns", "delete", c.namespace).CombinedOutput(); err != nil {
			s.Errorf("deleting the network of the client: %v\n%s", err, out) // with its link to the proxy
		}
	})
	s.onClient("ip", "link", "add", "customer", "type", "veth", "peer", "name", "eth0", "netns", c.namespace)
	s.onClient("ip", "address", "add", proxyAddress+customerPrefix, "dev", "customer")
	s.onClient("ip", "link", "set", "customer", "up")
	ip("-n", c.namespace, "address", "add", customer+customerPrefix, "dev", "eth0")
	ip("-n", c.namespace, "link", "set", "eth0", "up")
	return c
}

// dial connects to an address from the network of the client.
func (c customerNetwork) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without unlocking, so that the runtime ends the thread with this goroutine
		var namespace *os.File
		if namespace, err = os.Open(filepath.Join("/run/netns", c.namespace)); err != nil {
			return
		}
		defer func() { _ = namespace.Close() }()
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err == nil { //nolint:gosec // a file descriptor
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}

// request sends one request to an address, and returns the body of the response.
func (c customerNetwork) request(ctx context.Context, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	return requestWith(ctx, &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.dial}}, a, path)
}

// awaitAnswersTo waits until the client reaches each Pod at the address, which the Pod reads in its volume.
func (s *scenario) awaitAnswersTo(c customerNetwork, own map[string]listenersv1alpha1.IngressAddress) {
	s.Helper()
	for name, a := range own {
		s.eventually(func(ctx context.Context) error {
			got, err := c.request(ctx, a, "/whoami")
			if err == nil && got != name {
				err = fmt.Errorf("%q answered at %v, want %q", got, a, name)
			}
			return err
		})
		body, err := c.request(s.timeoutContext(), a, "/files")
		s.must(err)
		if err := checkFiles(body, a); err != nil {
			s.Errorf("%s: %v", name, err)
		}
	}
}

// proxy is Debian's HAProxy on the machine outside the cluster that is connected to the nodes.
type proxy struct {
	dir, commands string
	restart       func()
}

// startProxy prepares a HAProxy that is configured by the commands of docs/advertise.md.
func (s *scenario) startProxy() *proxy {
	s.Helper()
	s.must(cluster.InstallPackage(s.ctx, "jq", "jq"))
	p := &proxy{dir: s.TempDir()}
	for _, b := range pages.Blocks(s, "sh") {
		if b.Page == "docs/advertise.md" && strings.Contains(b.Text, "haproxy.cfg") {
			p.commands = strings.ReplaceAll(b.Text, "kafka.example.com", proxyAddress)
		}
	}
	if !strings.Contains(p.commands, proxyAddress) {
		s.Fatal("docs/advertise.md has no commands for HAProxy")
	}
	s.buildPlugin(p.dir)
	stop := func() {}
	p.restart = func() {
		stop()
		haproxy, err := exec.LookPath("haproxy")
		s.must(err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
		log, err := os.CreateTemp(p.dir, "haproxy-")
		s.must(err)
		cmd := testbed.ClientCommand(ctx, haproxy, "-db", "-f", filepath.Join(p.dir, "haproxy.cfg"))
		cmd.Stdout, cmd.Stderr = log, log
		s.must(cmd.Start())
		exited := make(chan struct{})
		go func() { _ = cmd.Wait(); close(exited) }()
		stop = sync.OnceFunc(func() {
			cancel()
			<-exited
			if _, err := log.Seek(0, io.SeekStart); err == nil && s.Failed() {
				text, _ := io.ReadAll(log)
				s.Logf("HAProxy: %s", text)
			}
			_ = log.Close()
		})
	}
	s.Cleanup(func() { stop() })
	return p
}

// configure writes the configuration, for all Listeners that are advertised at the address of the proxy now, and starts
// the proxy with it.
func (p *proxy) configure(s *scenario) {
	s.Helper()
	cmd := exec.CommandContext(s.timeoutContext(), "bash", "-euo", "pipefail", "-c", p.commands)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "PATH="+p.dir+":"+os.Getenv("PATH"), "KUBECONFIG="+testbed.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", p.commands, err, out)
	}
	p.restart()
}

// HAProxy outside the cluster has one address, and a port for each Pod. A client that can reach nothing else reaches
// each Pod at what the Pod reads, also a new replica. The node ports stay as they are. Another namespace gets none of
// these addresses.
func TestClientsReachEachPodThroughAProxyInFrontOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.Ports = []string{"http"}
	spec.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: proxyAddress, PortTemplate: "{podIndex}+9000"}
	class := s.createClass(spec)
	client, front := s.connectCustomer(), s.startProxy()
	set := statefulSet("data", 3, byClass(class.Name))
	s.create(set)
	own, nodePorts := map[string]listenersv1alpha1.IngressAddress{}, map[string]int32{}
	expect := func(i int) {
		t.Helper()
		name := fmt.Sprintf("data-%d", i)
		pod := s.awaitReady(name)
		entry := s.awaitPodListener(pod, "listener")
		want := listenersv1alpha1.IngressAddress{Address: proxyAddress, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": int32(9000 + i)}} //nolint:gosec // a few
		check.Equal(t, "addresses of "+name, []listenersv1alpha1.IngressAddress{want}, entry.IngressAddresses)
		service := mustGet(s, &corev1.Service{}, s.key("listener-"+name))
		own[name], nodePorts[name] = want, nodePort(service, "http")
	}
	for i := range 3 {
		expect(i)
	}
	front.configure(s)
	s.awaitAnswersTo(client, own)
	node := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(1), Ports: map[string]int32{"http": nodePorts["data-0"]}}
	s.awaitAnyAnswer(node) // of those who are connected to the nodes
	if _, err := client.request(s.timeoutContext(), node, "/whoami"); err == nil {
		t.Errorf("the client reaches %v without the proxy", node)
	}

	// The plugin knows what is behind the address, and tries the address itself.
	plugin := filepath.Join(front.dir, "kubectl-listener")
	for command, words := range map[string]string{
		"connect data-1": fmt.Sprintf("%s:9001  port http: connected", proxyAddress),
		"why data-1":     fmt.Sprintf(":%d (", nodePorts["data-1"]),
	} {
		args := append(strings.Fields(command), "--kubeconfig", testbed.Kubeconfig(), "--namespace", s.namespace)
		out, err := testbed.ClientCommand(s.timeoutContext(), plugin, args...).CombinedOutput()
		text := strings.Join(strings.Fields(string(out)), " ")
		if err != nil || !strings.Contains(text, strings.Join(strings.Fields(words), " ")) {
			t.Errorf("%s: %v, want %q\n%s", command, err, words, out)
		}
	}

	before := nodePorts["data-0"]
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](4) })
	for i := range 4 {
		expect(i)
	}
	if nodePorts["data-0"] != before {
		t.Errorf("the node port was %d and is %d", before, nodePorts["data-0"])
	}
	front.configure(s)
	s.awaitAnswersTo(client, own)

	// A Pod that is replaced keeps its address.
	first := s.awaitReady("data-0")
	s.remove(first)
	s.awaitReady("data-0", first)
	expect(0)
	front.configure(s) // it may run on another node
	s.awaitAnswersTo(client, own)

	other := newScenario(t)
	other.create(statefulSet("data", 1, byClass(class.Name)))
	other.awaitCondition("listener-data-0", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonAddressTaken,
		other.namespace+"/listener-data-0", s.namespace+"/listener-data-0", proxyAddress+":9000")
	other.awaitEvent("Pod", "data-0", listenersv1alpha1.ReasonWaitingForAddress, s.namespace+"/listener-data-0")
	s.awaitAnswersTo(client, map[string]listenersv1alpha1.IngressAddress{"data-0": own["data-0"]})

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](0) })
	s.must(s.deletePods(s.ctx))
	p := other.awaitReady("data-0")
	if got := other.awaitPodListener(p, "listener").IngressAddresses; cmp.Diff([]listenersv1alpha1.IngressAddress{own["data-0"]}, got) != "" {
		t.Errorf("addresses of the other namespace: %v", got)
	}
	front.configure(s)
	s.awaitAnswersTo(client, map[string]listenersv1alpha1.IngressAddress{"data-0": own["data-0"]})
}
