//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// routeServices gives the client outside a route to the cluster IPs of Services through these nodes, as a router has it
// with equal-cost multipath. It uses no node that does not answer ARP requests, and selects the node by addresses and
// ports of a connection.
func (s *scenario) routeServices(nodes ...int) {
	s.Helper()
	args := []string{"route", "replace", testbed.ServiceSubnet()}
	for _, node := range nodes {
		args = append(args, "nexthop", "via", testbed.NodeIP(node), "dev", "eth0")
	}
	s.onClient("ip", args...)
}

// onClient runs a command outside of the cluster.
func (s *scenario) onClient(name string, args ...string) {
	s.Helper()
	if out, err := testbed.ClientCommand(s.ctx, name, args...).CombinedOutput(); err != nil {
		s.Fatalf("running %s %q outside: %v: %s", name, args, err, out)
	}
}

// TestReplicasAreReachedAtRoutedClusterIPs: with routes to the service range through the nodes, a client outside
// reaches each replica at its cluster IP, which the replica reads in its volume, through each node, and still when a
// node that runs none of them is lost.
func TestReplicasAreReachedAtRoutedClusterIPs(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
	})
	nodes := testbed.Nodes()
	lost := nodes[len(nodes)-1]
	set := statefulSet("broker", 2, byClass(class.Name))
	set.Spec.Template.Spec.Affinity = notOn(testbed.NodeName(lost))
	s.create(set)
	addresses := map[string]listenersv1alpha1.IngressAddress{}
	for i := range 2 {
		name := fmt.Sprintf("broker-%d", i)
		entry := s.awaitPodListener(s.awaitReady(name), "listener")
		service := &corev1.Service{}
		s.get(service, s.key("listener-"+name))
		want := []listenersv1alpha1.IngressAddress{{
			Address: service.Spec.ClusterIP, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080, "echo": 9090},
		}}
		if diff := cmp.Diff(want, entry.IngressAddresses); diff != "" || entry.Scope != listenersv1alpha1.ListenerScopeCluster {
			t.Fatalf("scope %s, addresses (-want +got):\n%s", entry.Scope, diff)
		}
		addresses[name] = want[0]
		if _, err := request(s.timeoutContext(), want[0], "/whoami"); err == nil {
			t.Errorf("the client reaches the cluster IP of %s without a route", name)
		}
	}

	for setting, value := range map[string]int{
		"fib_multipath_use_neigh": 1, "fib_multipath_hash_policy": 1,
		// A node that does not answer is noticed after seconds, as with a routing protocol, instead of most of a
		// minute.
		"neigh/eth0/base_reachable_time_ms": 2000, "neigh/eth0/delay_first_probe_time": 1, "neigh/eth0/retrans_time_ms": 200,
	} {
		s.onClient("sh", "-c", fmt.Sprintf("echo %d > /proc/sys/net/ipv4/%s", value, setting))
	}
	t.Cleanup(func() {
		if out, err := testbed.ClientCommand(context.WithoutCancel(s.ctx), "ip", "route", "del", testbed.ServiceSubnet()).CombinedOutput(); err != nil {
			t.Errorf("removing the route: %v: %s", err, out)
		}
	})
	for _, node := range nodes {
		s.routeServices(node)
		for name, address := range addresses {
			s.awaitAnswer(address, name)
			s.awaitFilesAt(address, address)
		}
	}
	s.awaitAnswerOverUDP(addresses["broker-0"], "broker-0")

	s.routeServices(nodes...)
	s.awaitAnswers(addresses)
	if err := testbed.StopNode(s.ctx, lost); err != nil {
		t.Fatal(err)
	}
	s.awaitAnswers(addresses)
	if err := testbed.StartNode(s.ctx, lost); err != nil {
		t.Fatal(err)
	}
	if err := testbed.Ready(s.timeoutContext()); err != nil {
		t.Error(err)
	}
	s.awaitAnswers(addresses)
}

// requestsInARow is a number of connections of which, with three equal routes, almost certainly each is used.
const requestsInARow = 20

// awaitAnswers waits until each address answers this number of requests in a row.
func (s *scenario) awaitAnswers(addresses map[string]listenersv1alpha1.IngressAddress) {
	s.Helper()
	if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		for want, address := range addresses {
			for range requestsInARow {
				if got, err := request(ctx, address, "/whoami"); err != nil {
					return err
				} else if got != want {
					return fmt.Errorf("%q answered, want %q", got, want)
				}
			}
		}
		return nil
	}); err != nil {
		s.Fatalf("from outside: %v", err)
	}
}
