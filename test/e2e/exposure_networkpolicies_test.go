//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// A NetworkPolicy refuses the client outside, over IPv4 and IPv6, until it admits the client's address. That does for
// the published addresses, which are those of the Pod's own node. The other nodes forward with their own address, so a
// client that uses them is admitted if they are, too.
func TestNetworkPoliciesAdmitClientsOfNodePorts(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	class := s.createClass(dualStack(unpinned(), families...))
	s.create(pod("web", byClass(class.Name)))
	p, own := s.awaitReachable("web")
	published := addressesOfNode(p.Spec.NodeName, own.Ports, families...)
	s.awaitPodAddresses(p, published...)
	var clients, nodes []string
	var forwarded []listenersv1alpha1.IngressAddress
	clients = append(clients, testbed.ClientIP(), testbed.ClientIPv6())
	for _, node := range testbed.Nodes() {
		if node != nodeOf(p) {
			nodes = append(nodes, testbed.NodeIP(node), testbed.NodeIPv6(node))
			forwarded = append(forwarded, addressesOfNode(testbed.NodeName(node), own.Ports, families...)...)
		}
	}
	for _, a := range slices.Concat(published, forwarded) {
		s.awaitAnswer(a, "web")
	}

	policy := s.denyAll(p)
	for _, a := range slices.Concat(published, forwarded) {
		s.awaitNoAnswer(a)
	}

	s.patch(policy, func() { policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{admit(8080, clients...)} })
	for _, a := range published {
		s.awaitAnswer(a, "web")
	}
	for _, a := range forwarded {
		s.awaitNoAnswer(a)
	}

	s.patch(policy, func() {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{admit(8080, slices.Concat(clients, nodes)...)}
	})
	for _, a := range slices.Concat(published, forwarded) {
		s.awaitAnswer(a, "web")
	}
}

// denyAll creates a NetworkPolicy that denies all connections to a Pod.
func (s *scenario) denyAll(p *corev1.Pod) *networkingv1.NetworkPolicy {
	s.Helper()
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: p.Labels}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	s.create(policy)
	return policy
}

// admit returns a rule that admits these addresses to a TCP port.
func admit(port int32, addresses ...string) networkingv1.NetworkPolicyIngressRule {
	rule := networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{
		Port: ptr.To(intstr.FromInt32(port)), Protocol: ptr.To(corev1.ProtocolTCP),
	}}}
	for _, address := range addresses {
		length := 8 * net.IPv4len
		if net.ParseIP(address).To4() == nil {
			length = 8 * net.IPv6len
		}
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("%s/%d", address, length)}})
	}
	return rule
}

// A Pod of another namespace connects to the ports for metrics and probes of the operator and of a node agent, at all
// of their addresses. A connection to any other port is not answered; from a Pod that no NetworkPolicy selects, the
// answer is that nothing listens there.
func TestTheOperatorsNetworkPoliciesAdmitTenantsToMetricsAndProbes(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.create(podWith("web"))
	s.create(clientPod("tenant"))
	web := s.awaitReady("web")
	s.awaitReady("tenant")
	agents, err := podsOf(s.ctx, "node-agent")
	s.must(err)
	if len(agents) == 0 {
		t.Fatal("there are no node agents")
	}
	const unused = 9
	for _, tc := range []struct {
		to   *corev1.Pod
		want map[int]string
	}{
		{web, map[int]string{8080: connected, unused: refused}},
		{s.operatorPod(), map[int]string{8443: connected, 8081: connected, unused: unanswered}},
		{&agents[0], map[int]string{8081: connected, unused: unanswered}},
	} {
		for _, ip := range tc.to.Status.PodIPs {
			s.awaitConnections("tenant", ip.IP, tc.want)
		}
	}
}

// What happens to a connection.
const (
	connected  = "connected"
	refused    = "refused"
	unanswered = "unanswered"
)

// clientPod returns a Pod in which connect runs.
func clientPod(name string) *corev1.Pod {
	p := podWith(name)
	c := &p.Spec.Containers[0]
	c.Image, c.Command, c.Ports, c.ReadinessProbe = cluster.BusyboxImage, []string{"sleep", "1000000"}, nil, nil
	p.Spec.SecurityContext.RunAsUser = ptr.To[int64](65532)
	return p
}

// awaitConnections waits until this happens to connections from a Pod of the scenario to an address, by TCP port.
func (s *scenario) awaitConnections(from, ip string, want map[int]string) {
	s.Helper()
	for port, what := range want {
		s.eventually(func(ctx context.Context) error {
			got, err := s.connect(ctx, from, ip, port)
			if err == nil && got != what {
				err = fmt.Errorf("port %d at %s: %s, want %s", port, ip, got, what)
			}
			return err
		})
	}
}

// connect connects from a Pod of the scenario to a TCP port, and returns what happens.
func (s *scenario) connect(ctx context.Context, from, ip string, port int) (string, error) {
	command := fmt.Sprintf("nc -w 3 %s %d </dev/null 2>&1 && echo connected || true", ip, port)
	said, err := kubectl(ctx, "-n", s.namespace, "exec", from, "--", "sh", "-c", command)
	switch {
	case err != nil:
		return "", err
	case containsAll(said, []string{"refused"}):
		return refused, nil
	case containsAll(said, []string{"timed out"}):
		return unanswered, nil
	case containsAll(said, []string{"connected"}):
		return connected, nil
	}
	return said, nil
}
