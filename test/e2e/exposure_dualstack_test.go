//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// dualStack sets the families of a class and, if there are several, a policy that requires all of them.
func dualStack(spec listenersv1alpha1.ListenerClassSpec, families ...corev1.IPFamily) listenersv1alpha1.ListenerClassSpec {
	spec.IPFamilies = families
	if len(families) > 1 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	return spec
}

// addressesOfNode returns the addresses of a node, one for each family, with these ports.
func addressesOfNode(node string, ports map[string]int32, families ...corev1.IPFamily) []listenersv1alpha1.IngressAddress {
	var addresses []listenersv1alpha1.IngressAddress
	for _, family := range families {
		address := testbed.NodeIP(nodeNumber(node))
		if family == corev1.IPv6Protocol {
			address = testbed.NodeIPv6(nodeNumber(node))
		}
		addresses = append(addresses, listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports})
	}
	return addresses
}

// awaitPodAddresses waits until a Pod's PodListeners object has exactly these addresses for its volume "listener".
func (s *scenario) awaitPodAddresses(p *corev1.Pod, want ...listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool { return cmp.Equal(want, entry.IngressAddresses) })
}

// awaitReached waits until a client outside reaches a Pod at each of its addresses, over TCP and UDP, and the Pod reads
// all of them.
func (s *scenario) awaitReached(name string, at ...listenersv1alpha1.IngressAddress) {
	s.Helper()
	for _, a := range at {
		s.awaitAnswer(a, name)
		s.awaitAnswerOverUDP(a, name)
		s.awaitFilesAt(a, at...)
	}
}

// A client outside reaches each replica at the addresses of its node, at its node ports or host ports, in the order of
// the families of the class, and only at those. If traffic stays on the node, the replica sees the address that the
// client has in the same family.
func TestEachReplicaIsReachedAtAnAddressOfEachFamily(t *testing.T) {
	t.Parallel()
	local := pinned()
	local.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	for name, tc := range map[string]struct {
		class    listenersv1alpha1.ListenerClassSpec
		families []corev1.IPFamily
	}{
		"node ports, IPv4 first": {class: local, families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
		"node ports, IPv6 first": {class: local, families: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}},
		"node ports, IPv6 alone": {class: local, families: []corev1.IPFamily{corev1.IPv6Protocol}},
		"host ports, IPv6 first": {class: atHostPorts(false), families: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t)
			class := s.createClass(dualStack(tc.class, tc.families...))
			set := statefulSet("broker", 2, byClass(class.Name))
			if class.Spec.HostPort != nil {
				s.allowPrivileged()
				withHostPorts(&set.Spec.Template.Spec, dualStackPort)
			}
			s.create(set)
			for i := range 2 {
				name := fmt.Sprintf("broker-%d", i)
				p := s.awaitReady(name)
				ports := s.awaitPodListener(p, "listener").IngressAddresses[0].Ports
				want := addressesOfNode(p.Spec.NodeName, ports, tc.families...)
				s.awaitPodAddresses(p, want...)
				s.awaitReached(name, want...)
				if class.Spec.HostPort != nil {
					continue
				}
				for _, a := range want {
					client := testbed.ClientIP()
					if strings.Contains(a.Address, ":") {
						client = testbed.ClientIPv6()
					}
					if from, err := request(s.timeoutContext(), a, "/client"); err != nil || from != client {
						t.Errorf("at %s, the Pod sees the client %q (%v), want %s", a.Address, from, err, client)
					}
				}
				l := s.awaitListener("listener-"+name, len(want))
				check.Equal(t, "addresses", want, l.Status.IngressAddresses)
				check.Equal(t, "families", tc.families, l.Status.IPFamilies)
				for _, a := range addressesOfNode(p.Spec.NodeName, ports, corev1.IPv4Protocol, corev1.IPv6Protocol) {
					published := slices.ContainsFunc(want, func(w listenersv1alpha1.IngressAddress) bool { return w.Address == a.Address })
					if _, err := request(s.timeoutContext(), a, "/whoami"); (err == nil) != published {
						t.Errorf("%s is published: %t; a request: %v", a.Address, published, err)
					}
				}
			}
		})
	}
}

// A Listener that several Pods share has the addresses of their nodes, in the order of nodes and of families. What is
// for clients has brackets around an IPv6 address: the endpoints in the status, the columns of kubectl, the file for
// shells and what the plugin prints, which connects to all of them from outside. The files of one address do not have
// them.
func TestAnIPv6AddressIsWrittenForItsReaders(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	families := []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	class := s.createClass(dualStack(unpinned(), families...))
	s.createBootstrapListener(class.Name)
	set := statefulSet("broker", 2, byName("bootstrap"))
	spread(set)
	s.create(set)
	pods := []*corev1.Pod{s.awaitReady("broker-0"), s.awaitReady("broker-1")}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	l := s.awaitListener("bootstrap", 4)
	var want []listenersv1alpha1.IngressAddress
	var endpoints []string
	for _, p := range pods {
		own := addressesOfNode(p.Spec.NodeName, l.Status.NodePorts, families...)
		s.awaitPodAddresses(p, own...)
		for _, a := range own {
			s.awaitAnyAnswer(a)
			endpoints = append(endpoints, hostPort(a, "http"))
		}
		want = append(want, own...)
	}
	check.Equal(t, "addresses", want, l.Status.IngressAddresses)
	check.Equal(t, "endpoints", strings.Join(endpoints, ","), l.Status.Endpoints["http"])
	first := fmt.Sprintf("[%s]:%d", want[0].Address, l.Status.NodePorts["http"])
	expectFields(t, s.kubectl("get", "lsn"), first+" +3")
	expectFields(t, s.kubectl("get", "podlsn"), "listener="+first+" +1")

	files, err := filepath.Glob(filepath.Join(podDir(pods[0]), "volumes/kubernetes.io~csi/*/mount/default-address.env"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files for shells: %q, %v", files, err)
	}
	env, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(env), "LISTENER_ENDPOINT_HTTP="+first+"\n") {
		t.Errorf("%s, %v, want %s:\n%s", files[0], err, first, env)
	}

	bin := t.TempDir()
	s.must(tools.BuildLocal(s.ctx, "cmd/kubectl-listener", bin, "."))
	for command, count := range map[string]int{"connect listener/bootstrap": 4, "connect " + pods[0].Name: 2, "why " + pods[0].Name: 0} {
		args := append(strings.Fields(command), "--kubeconfig", testbed.Kubeconfig(), "--namespace", s.namespace)
		out, err := testbed.ClientCommand(s.timeoutContext(), filepath.Join(bin, "kubectl-listener"), args...).CombinedOutput()
		if err != nil || strings.Count(string(out), "connected in") != count || !strings.Contains(string(out), first) {
			t.Errorf("%s: %v, want %d connections, one to %s\n%s", command, err, count, first, out)
		}
	}
}

// Without families, a Pod has one address, of the first family of the cluster, also if the cluster has two. When its
// class prefers two, the Service gets the other one in place, and the running Pod reads its address.
func TestARunningPodGetsAndLosesASecondFamily(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", byClass(class.Name)))
	p := s.awaitReady("web")
	ports := s.awaitPodListener(p, "listener").IngressAddresses[0].Ports
	both := addressesOfNode(p.Spec.NodeName, ports, corev1.IPv4Protocol, corev1.IPv6Protocol)
	s.awaitReached("web", both[0])
	if _, err := request(s.timeoutContext(), both[1], "/whoami"); err == nil {
		t.Errorf("%s answers, which is not published", both[1].Address)
	}
	before := mustGet(s, &corev1.Service{}, s.key("web-listener"))

	s.patch(class, func() { class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack) })
	s.awaitPodAddresses(p, both...)
	s.awaitReached("web", both...)
	after := mustGet(s, &corev1.Service{}, s.key("web-listener"))
	if after.UID != before.UID || after.Spec.ClusterIP != before.Spec.ClusterIP || nodePort(after, "http") != nodePort(before, "http") {
		t.Errorf("the Service was %+v, and is %+v", before.Spec, after.Spec)
	}

	s.patch(class, func() { class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack) })
	s.awaitPodAddresses(p, both[0])
	s.awaitReached("web", both[0])
	s.checkNotRestarted(p)
}

// A client outside finds both addresses in its network, by neighbour discovery and ARP, and the Pod reads them in the
// order of the class, in whatever order the load balancer lists them. A Pod whose class prefers two families starts
// with one, and reads the other one as soon as a pool has it. If its class requires both, it waits for both.
func TestALoadBalancerHasAnAddressOfEachFamily(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		*spec = dualStack(*spec, corev1.IPv6Protocol, corev1.IPv4Protocol)
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	})
	address := func(ip string) listenersv1alpha1.IngressAddress {
		return listenersv1alpha1.IngressAddress{Address: ip, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080, "echo": 9090}}
	}
	v4, v6 := s.freeAddresses()
	s.setPool(v4)
	s.create(pod("prefers", byClass(class.Name)))
	p := s.awaitReady("prefers")
	s.awaitPodAddresses(p, address(v4))
	s.awaitReached("prefers", address(v4))
	s.setPool(v4, v6)
	s.awaitPodAddresses(p, address(v6), address(v4))
	s.awaitReached("prefers", address(v6), address(v4))

	s.patch(class, func() { class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) })
	other4, other6 := s.freeAddresses()
	s.setPool(v4, v6, other4)
	s.create(pod("requires", byClass(class.Name)))
	s.awaitCondition("requires-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	t.Logf("event: %s", s.awaitEvent("Service", "requires-listener", "AllocationFailed")) // of the load balancer
	s.setPool(v4, v6, other4, other6)
	s.awaitPodAddresses(s.awaitReady("requires"), address(other6), address(other4))
	s.awaitReached("requires", address(other6), address(other4))
	s.awaitReached("prefers", address(v6), address(v4))
}
