//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

const (
	// zone is the domain that the name server of a scenario serves.
	zone = "named.example.com"
	// tsigSecret is the key by which external-dns authenticates at the name server.
	tsigSecret = "bGlzdGVuZXItb3BlcmF0b3ItZTJlLXRlc3QtdHNpZy0=" //nolint:gosec // of a name server that ends with the test
)

// runOutside runs a program on the client outside until the end of the test, which logs its output if it has failed.
func (s *scenario) runOutside(name string, args ...string) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	var output bytes.Buffer
	cmd := testbed.ClientCommand(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		cancel()
		s.Fatalf("starting %s outside: %v", name, err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	s.Cleanup(sync.OnceFunc(func() {
		cancel()
		<-exited
		if s.Failed() {
			s.Logf("output of %s:\n%s", filepath.Base(name), output.String())
		}
	}))
}

// startNameServer runs a name server outside the cluster that serves the zone, and lets those who have the key
// change it (RFC 2136).
func (s *scenario) startNameServer() {
	s.Helper()
	dir := s.TempDir()
	config := fmt.Sprintf(`
options { directory %[1]q; listen-on { %[2]s; }; listen-on-v6 { none; }; recursion no; notify no; dnssec-validation no;
	pid-file none; session-keyfile none; managed-keys-directory %[1]q; };
controls { };
key external-dns { algorithm hmac-sha256; secret %[3]q; };
zone %[4]q { type primary; file "zone"; allow-update { key external-dns; }; allow-transfer { key external-dns; }; };
`, dir, testbed.ClientIP(), tsigSecret, zone)
	records := fmt.Sprintf("$TTL 1\n@ SOA ns admin 1 60 60 60 1\n@ NS ns\nns A %s\n", testbed.ClientIP())
	for name, content := range map[string]string{"named.conf": config, "zone": records} {
		s.must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	named, err := exec.LookPath("named")
	s.must(err)
	s.runOutside(named, "-g", "-c", filepath.Join(dir, "named.conf"))
	s.awaitName("ns."+zone, testbed.ClientIP())
}

// startExternalDNS runs external-dns for the Services of the scenario, with further arguments.
func (s *scenario) startExternalDNS(args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, buildTimeout)
	defer cancel()
	programs, err := tools.Ensure(ctx, "external-dns")
	s.must(err)
	s.runOutside(filepath.Join(programs, "external-dns"), append(args,
		"--kubeconfig="+testbed.Kubeconfig(), "--source=service", "--namespace="+s.namespace, "--policy=sync", "--interval=5s", "--events",
		"--min-event-sync-interval=1s", "--registry=txt", "--txt-owner-id="+s.namespace, "--domain-filter="+zone,
		"--provider=rfc2136", "--rfc2136-host="+testbed.ClientIP(), "--rfc2136-port=53", "--rfc2136-zone="+zone, "--rfc2136-tsig-axfr",
		"--rfc2136-tsig-keyname=external-dns", "--rfc2136-tsig-secret="+tsigSecret, "--rfc2136-tsig-secret-alg=hmac-sha256",
		"--log-level=debug", "--metrics-address="+net.JoinHostPort(testbed.ClientIP(), "7979"),
	)...)
}

// resolve asks the name server, as a client outside does, and returns the addresses of a name. There are none if it
// does not exist.
func resolve(ctx context.Context, name string) ([]string, error) {
	return resolveAt(ctx, testbed.ClientIP(), name)
}

// resolverAt returns a resolver of the client outside that asks the name server at an address.
func resolverAt(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return testbed.ClientDial(ctx, network, net.JoinHostPort(server, "53"))
	}}
}

// resolveAt is resolve, by the name server at an address.
func resolveAt(ctx context.Context, server, name string) ([]string, error) {
	addresses, err := resolverAt(server).LookupHost(ctx, name+".")
	if notFound, ok := errors.AsType[*net.DNSError](err); ok && notFound.IsNotFound {
		return nil, nil
	}
	return addresses, err
}

// awaitName waits until a name leads to these addresses, for a client outside.
func (s *scenario) awaitName(name string, addresses ...string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		got, err := resolve(ctx, name)
		if diff := cmp.Diff(addresses, got); err == nil && diff != "" {
			err = fmt.Errorf("addresses of %s (-want +got):\n%s", name, diff)
		}
		return err
	})
}

// awaitNamed waits until a Pod is published by name, and at an address after it, and a client outside that resolves the
// name reaches the Pod, which has both in its files.
func (s *scenario) awaitNamed(pod *corev1.Pod, name, address string) {
	s.Helper()
	s.awaitEntry(pod, "listener", func(entry listenersv1alpha1.PodListener) bool {
		addresses := entry.IngressAddresses
		return len(addresses) == 2 && addresses[0].Address == name && addresses[0].AddressType == listenersv1alpha1.AddressTypeHostname &&
			addresses[1].Address == address && addresses[0].Ports["http"] == 8080
	})
	s.awaitName(name, address)
	ports := map[string]int32{"http": 8080, "echo": 9090}
	named := listenersv1alpha1.IngressAddress{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports}
	through := listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}
	s.eventually(func(ctx context.Context) error {
		addresses, err := resolve(ctx, name)
		if err != nil || len(addresses) == 0 {
			return fmt.Errorf("resolving %s: %q, %w", name, addresses, err)
		}
		got, err := request(ctx, listenersv1alpha1.IngressAddress{Address: addresses[0], Ports: named.Ports}, "/whoami")
		if err == nil && got != pod.Name {
			err = fmt.Errorf("%q answered at %s", got, name)
		}
		return err
	})
	s.awaitFilesAt(through, named, through)
}

// external-dns creates a record for each replica at a name server, and a client outside that resolves the name reaches
// that replica. The name stays when the address changes, and the record follows. The record is removed with the
// Listener.
func TestReplicasAreReachedByTheirNames(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.Hostname = &listenersv1alpha1.Hostname{Template: "{podName}.{namespace}." + zone}
		spec.ServiceAnnotations = map[string]string{"external-dns.alpha.kubernetes.io/ttl": "1"}
		spec.ServiceAnnotationTemplates = map[string]listenersv1alpha1.AnnotationTemplate{"example.com/replica": "{podIndex} of {namespace}"}
	})
	addresses := []string{s.freeAddress(), s.freeAddress(), s.freeAddress()}
	s.startNameServer()
	s.startExternalDNS()
	s.setPool(addresses[0])
	set := statefulSet("broker", 1, byClass(class.Name))
	s.create(set)
	name := func(pod string) string { return strings.Join([]string{pod, s.namespace, zone}, ".") }
	first := s.awaitReady("broker-0")
	s.awaitNamed(first, name("broker-0"), addresses[0])
	s.setPool(addresses[:2]...)
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](2) })
	s.awaitNamed(s.awaitReady("broker-1"), name("broker-1"), addresses[1])
	s.awaitNamed(first, name("broker-0"), addresses[0])
	service := mustGet(s, &corev1.Service{}, s.key("listener-broker-1"))
	if got := service.Annotations["example.com/replica"]; got != "1 of "+s.namespace {
		t.Errorf("the annotation of the Service is %q", got)
	}

	// The name survives the Pod, and the address.
	s.remove(first)
	again := s.awaitReady("broker-0", first)
	s.awaitNamed(again, name("broker-0"), addresses[0])
	s.setPool(addresses[1:]...)
	s.awaitNamed(again, name("broker-0"), addresses[2])

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](1) })
	s.remove(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "listener-broker-1"}})
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, client.ObjectKey{Namespace: s.namespace, Name: "listener-broker-1"})
	s.awaitName(name("broker-1"))
	s.awaitNamed(again, name("broker-0"), addresses[2])
}

// external-dns lets the name of a replica lead to the node that its Pod is on, and a client outside that resolves name
// and port reaches it there. When the Pod moves, its files and its port stay, and the record follows. Who knows the
// former node still reaches the Pod.
func TestANameOfANodePortFollowsThePod(t *testing.T) {
	s := newScenario(t)
	crds.Remove(t, api, crds.DNSEndpoints) // an earlier run may have left it
	crds.Install(t, api, crds.DNSEndpoints)
	defer crds.Remove(t, api, crds.DNSEndpoints)
	spec := unpinned()
	spec.Hostname = &listenersv1alpha1.Hostname{
		Template: "{podName}.{namespace}." + zone, Records: listenersv1alpha1.HostnameRecordsDNSEndpoint, TTLSeconds: ptr.To[int32](1),
	}
	class := s.createClass(spec)
	s.startNameServer()
	s.startExternalDNS("--source=crd", "--managed-record-types=A", "--managed-record-types=SRV")
	set := statefulSet("broker", 1, byClass(class.Name))
	s.create(set)
	first := s.awaitReady("broker-0")
	published := s.awaitPodListener(first, "listener").IngressAddresses
	own := named("broker-0."+s.namespace+"."+zone, published[0].Ports)
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, published); diff != "" {
		t.Fatalf("addresses (-want +got):\n%s", diff)
	}
	s.awaitPodByName(own, first)
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("listener-broker-0"), func(l *listenersv1alpha1.Listener) bool {
		return meta.IsStatusConditionTrue(l.Status.Conditions, listenersv1alpha1.ListenerDNSReady)
	})

	s.patch(set, func() { set.Spec.Template.Spec.Affinity = notOn(first.Spec.NodeName) })
	s.remove(first)
	moved := s.awaitReady("broker-0", first)
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, s.awaitPodListener(moved, "listener").IngressAddresses); diff != "" {
		t.Errorf("addresses after the move (-want +got):\n%s", diff)
	}
	s.awaitPodByName(own, moved)
	former := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(nodeOf(first)), Ports: own.Ports}
	s.eventually(func(ctx context.Context) error {
		got, err := request(ctx, former, "/whoami")
		if err == nil && got != moved.Name {
			err = fmt.Errorf("%q answered", got)
		}
		return err
	})

	// Others write the records now.
	s.patch(class, func() { class.Spec.Hostname.Records = listenersv1alpha1.HostnameRecordsNone })
	mustAwaitDeleted(s, optionalObject(names.KindDNSEndpoint, s.namespace, "listener-broker-0"), s.key("listener-broker-0"))
	s.awaitName(own.Address)
}

// awaitPodByName waits until the name of a node port leads to the node of a Pod alone, and to the port that its SRV
// record has, where the Pod responds, with this address in its files.
func (s *scenario) awaitPodByName(own listenersv1alpha1.IngressAddress, p *corev1.Pod) {
	s.Helper()
	node := testbed.NodeIP(nodeOf(p))
	s.awaitName(own.Address, node)
	s.eventually(func(ctx context.Context) error {
		_, records, err := resolverAt(testbed.ClientIP()).LookupSRV(ctx, "http", "tcp", own.Address+".")
		if err != nil || len(records) != 1 || records[0].Target != own.Address+"." || int32(records[0].Port) != own.Ports["http"] {
			return fmt.Errorf("got %+v, want port %d: %w", records, own.Ports["http"], err)
		}
		return nil
	})
	s.awaitFilesAt(listenersv1alpha1.IngressAddress{Address: node, Ports: own.Ports}, own)
}
