//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// routeServices gives the client outside a route to the cluster IPs of Services through these nodes, as a router has it
// with equal-cost multipath, for both IP families. It uses no node that does not answer in the network, and selects the
// node by addresses and ports of a connection.
func (s *scenario) routeServices(nodes ...int) {
	s.Helper()
	for subnet, address := range map[string]func(int) string{testbed.ServiceSubnet(): testbed.NodeIP, testbed.ServiceSubnetIPv6(): testbed.NodeIPv6} {
		args := []string{"route", "replace", subnet}
		for _, node := range nodes {
			args = append(args, "nexthop", "via", address(node), "dev", "eth0")
		}
		s.onClient("ip", args...)
	}
}

// onClient runs a command outside the cluster.
func (s *scenario) onClient(name string, args ...string) {
	s.Helper()
	if out, err := testbed.ClientCommand(s.ctx, name, args...).CombinedOutput(); err != nil {
		s.Fatalf("running %s %q outside: %v: %s", name, args, err, out)
	}
}

// onClientAtEnd runs a command outside the cluster at the end of the test.
func (s *scenario) onClientAtEnd(name string, args ...string) {
	s.Cleanup(func() {
		if out, err := testbed.ClientCommand(context.WithoutCancel(s.ctx), name, args...).CombinedOutput(); err != nil {
			s.Errorf("running %s %q outside: %v: %s", name, args, err, out)
		}
	})
}

// With routes to the service ranges through the nodes, a client outside reaches each replica at its cluster IPs, one of
// each family, which the replica reads in its volume, through each node, and still when a node that runs none of them
// is lost.
func TestReplicasAreReachedAtRoutedClusterIPs(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
	})
	nodes := testbed.Nodes()
	lost := nodes[len(nodes)-1]
	set := statefulSet("broker", 2, byClass(class.Name))
	set.Spec.Template.Spec.Affinity = notOn(testbed.NodeName(lost))
	s.create(set)
	addresses := map[string][]listenersv1alpha1.IngressAddress{}
	for i := range 2 {
		name := fmt.Sprintf("broker-%d", i)
		entry := s.awaitPodListener(s.awaitReady(name), "listener")
		service := mustGet(s, &corev1.Service{}, s.key("listener-"+name))
		var want []listenersv1alpha1.IngressAddress
		for _, ip := range service.Spec.ClusterIPs {
			want = append(want, listenersv1alpha1.IngressAddress{
				Address: ip, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080, "echo": 9090},
			})
		}
		if len(want) != 2 {
			t.Fatalf("%s has the cluster IPs %v, want one of each family", name, service.Spec.ClusterIPs)
		}
		if diff := cmp.Diff(want, entry.IngressAddresses); diff != "" || entry.Scope != listenersv1alpha1.ListenerScopeCluster {
			t.Fatalf("scope %s, addresses (-want +got):\n%s", entry.Scope, diff)
		}
		addresses[name] = want
		for _, a := range want {
			if _, err := request(s.timeoutContext(), a, "/whoami"); err == nil {
				t.Errorf("the client reaches %s, a cluster IP of %s, without a route", a.Address, name)
			}
		}
	}

	for setting, value := range map[string]int{
		"ipv4/fib_multipath_use_neigh": 1, "ipv4/fib_multipath_hash_policy": 1, "ipv6/fib_multipath_hash_policy": 1,
	} {
		s.onClient("sh", "-c", fmt.Sprintf("echo %d > /proc/sys/net/%s", value, setting))
	}
	// A node that does not answer is noticed after seconds, as with a routing protocol, instead of most of a minute.
	for setting, value := range map[string]int{"base_reachable_time_ms": 2000, "delay_first_probe_time": 1, "retrans_time_ms": 200} {
		s.onClient("sh", "-c", fmt.Sprintf("for family in ipv4 ipv6; do echo %d > /proc/sys/net/$family/neigh/eth0/%s; done", value, setting))
	}
	for _, subnet := range []string{testbed.ServiceSubnet(), testbed.ServiceSubnetIPv6()} {
		s.onClientAtEnd("ip", "route", "del", subnet)
	}
	for _, node := range nodes {
		s.routeServices(node)
		for name, own := range addresses {
			for _, a := range own {
				s.awaitAnswer(a, name)
				s.awaitFilesAt(a, own...)
			}
		}
	}
	for _, a := range addresses["broker-0"] {
		s.awaitAnswerOverUDP(a, "broker-0")
	}

	s.routeServices(nodes...)
	s.awaitAnswers(addresses)
	operator := s.operatorPods()
	s.must(testbed.StopNode(s.ctx, lost))
	s.awaitAnswers(addresses)
	s.must(testbed.StartNode(s.ctx, lost))
	s.must(testbed.Ready(s.timeoutContext()))
	s.awaitRestartedOn(testbed.NodeName(lost), operator)
	s.awaitAnswers(addresses)
}

// requestsInARow is a number of connections that, with three equal routes, almost certainly use each, for each family
// by those to both replicas.
const requestsInARow = 20

// awaitAnswers waits until each replica answers this number of requests in a row, at its addresses in turn.
func (s *scenario) awaitAnswers(addresses map[string][]listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		for want, own := range addresses {
			for i := range requestsInARow {
				if got, err := request(ctx, own[i%len(own)], "/whoami"); err != nil {
					return err
				} else if got != want {
					return fmt.Errorf("%q answered, want %q", got, want)
				}
			}
		}
		return nil
	})
}

// TestTheClientCannotReachServicesDirectly guards the other tests, which would prove nothing if the client reached the
// cluster IPs of Services.
func TestTheClientCannotReachServicesDirectly(t *testing.T) {
	t.Parallel()
	var dns corev1.Service
	check.Must(t, api.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns))
	if _, err := netip.ParseAddr(dns.Spec.ClusterIP); err != nil {
		t.Fatalf("kube-dns has no address: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if conn, err := testbed.ClientDial(ctx, "tcp", net.JoinHostPort(dns.Spec.ClusterIP, "53")); err == nil {
		_ = conn.Close()
		t.Error("the client reaches the cluster IP of a Service")
	}
}
