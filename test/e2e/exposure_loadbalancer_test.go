//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
)

// loadBalancer is the load balancer of the cluster.
var loadBalancer struct {
	installation
	// taken is the number of addresses that tests have.
	taken atomic.Int32
}

// ensureLoadBalancer installs the cluster's load balancer if it does not run yet.
func (s *scenario) ensureLoadBalancer() {
	s.Helper()
	loadBalancer.ensure(s, "the load balancer", 2*timeout, func(ctx context.Context) error { return metallb.Install(ctx, testbed, os.Stderr) })
}

// createBalancedClass creates a class whose Services the cluster's load balancer serves, and installs the load balancer
// if it does not run yet. Each scenario has a pool of addresses of its own, which is empty at first.
func (s *scenario) createBalancedClass(change func(*listenersv1alpha1.ListenerClassSpec)) *listenersv1alpha1.ListenerClass {
	s.Helper()
	s.ensureLoadBalancer()
	spec := listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To(metallb.LoadBalancerClass),
	}
	if change != nil {
		change(&spec)
	}
	s.Cleanup(func() {
		if err := metallb.SetPool(context.WithoutCancel(s.ctx), testbed, s.namespace, nil); err != nil {
			s.Errorf("deleting the pool: %v", err)
		}
	})
	return s.createClass(spec)
}

// freeAddress returns an address that no other test uses.
func (s *scenario) freeAddress() string {
	s.Helper()
	address, _ := s.freeAddresses()
	return address
}

// freeAddresses returns an address of each family that no other test uses. The last one is Traefik's.
func (s *scenario) freeAddresses() (v4, v6 string) {
	s.Helper()
	i := int(loadBalancer.taken.Add(1))
	if i >= cluster.MaxFree {
		s.Fatalf("all %d free addresses are taken", cluster.MaxFree-1)
	}
	return testbed.FreeIP(i), testbed.FreeIPv6(i)
}

// setPool makes the load balancer assign these addresses, and no others, to the Services of the scenario.
func (s *scenario) setPool(addresses ...string) {
	s.Helper()
	s.setPoolOf([]string{s.namespace}, addresses...)
}

// setPoolOf is setPool for the Services of these namespaces.
func (s *scenario) setPoolOf(namespaces []string, addresses ...string) {
	s.Helper()
	var ranges []string
	for _, a := range addresses {
		ranges = append(ranges, a+"-"+a)
	}
	s.must(metallb.SetPool(s.ctx, testbed, s.namespace, namespaces, ranges...))
}

// awaitPodAddress waits until a Pod's PodListeners object has this address and no other for its volume "listener", and
// returns it.
func (s *scenario) awaitPodAddress(p *corev1.Pod, address string) listenersv1alpha1.IngressAddress {
	s.Helper()
	entry := s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
		return len(entry.IngressAddresses) == 1 && entry.IngressAddresses[0].Address == address
	})
	if entry.Scope != listenersv1alpha1.ListenerScopeCluster {
		s.Errorf("the address of the load balancer has the scope %s", entry.Scope)
	}
	return entry.IngressAddresses[0]
}

// A Pod waits until a pool has an address, events and conditions say what is missing, and a client outside reaches the
// Pod at the address in its files. The files follow when the address changes. They stay when it is withdrawn, which a
// condition reports, and the address returns with its pool. The Pod keeps running.
func TestAPodHasTheAddressOfItsLoadBalancer(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	first, second := s.freeAddress(), s.freeAddress()
	s.create(pod("web", byClass(class.Name)))
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer,
		metallb.LoadBalancerClass, class.Name)
	s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress, metallb.LoadBalancerClass)

	s.setPool(first)
	p := s.awaitReady("web")
	own := s.awaitPodAddress(p, first)
	if own.Ports["http"] != 8080 {
		t.Errorf("the address of the Pod is %+v", own)
	}
	s.awaitAnswer(own, "web")
	s.awaitFilesAt(own, own)

	s.setPool(second)
	moved := s.awaitPodAddress(p, second)
	s.awaitAnswer(moved, "web")
	s.awaitFilesAt(moved, moved)
	s.awaitNoAnswer(own)

	s.setPool()
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	s.awaitListener("web-listener", 0)
	service := mustGet(s, &corev1.Service{}, s.key("web-listener"))
	through := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(nodeOf(p)), Ports: map[string]int32{"http": nodePort(service, "http")}}
	s.awaitAnswer(through, "web")
	s.awaitFilesAt(through, moved)

	s.setPool(second)
	s.awaitPodAddress(p, second)
	s.awaitAnswer(moved, "web")
	s.checkNotRestarted(p)
}

// The others keep their addresses, and each replica is reached at its own.
func TestAReplicaWaitsUntilAnExhaustedPoolIsExtended(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	addresses := []string{s.freeAddress(), s.freeAddress()}
	s.setPool(addresses[0])
	set := statefulSet("broker", 1, byClass(class.Name))
	s.create(set)
	own := s.awaitPodAddress(s.awaitReady("broker-0"), addresses[0])
	s.awaitAnswer(own, "broker-0")

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](2) })
	t.Logf("event: %s", s.awaitEvent("Service", "listener-broker-1", "AllocationFailed")) // of the load balancer
	s.awaitCondition("listener-broker-1", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	s.awaitEvent("Pod", "broker-1", listenersv1alpha1.ReasonWaitingForAddress)

	s.setPool(addresses...)
	second := s.awaitPodAddress(s.awaitReady("broker-1"), addresses[1])
	s.awaitAnswer(second, "broker-1")
	s.awaitFilesAt(second, second)
	s.awaitAnswer(own, "broker-0")
	s.awaitFilesAt(own, own)
}

// With serviceExternalTrafficPolicy Local, only the node of the Pod announces the address. The address stays when the
// Pod moves to another node.
func TestALoadBalancerPreservesTheClientAddressIfTrafficStaysOnTheNode(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	})
	address := s.freeAddress()
	s.setPool(address)
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	check := func(p *corev1.Pod) {
		t.Helper()
		own := s.awaitPodAddress(p, address)
		s.awaitAnswer(own, "web-0")
		if from, err := request(s.timeoutContext(), own, "/client"); err != nil || from != testbed.ClientIP() {
			t.Errorf("the Pod on %s sees the client %q (%v), want %s", p.Spec.NodeName, from, err, testbed.ClientIP())
		}
	}
	before := s.awaitReady("web-0")
	check(before)
	s.patch(set, func() { set.Spec.Template.Spec.Affinity = notOn(before.Spec.NodeName) })
	after := s.awaitReady("web-0", before)
	if after.Spec.NodeName == before.Spec.NodeName {
		t.Errorf("the Pod still runs on %s", after.Spec.NodeName)
	}
	check(after)
}

// A Service of another loadBalancerClass gets no address from it.
func TestALoadBalancerServesOnlyItsClass(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	other := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{"other": loadBalanced()})["other"]
	s.create(pod("unserved", byClass(other.Name)))
	s.awaitCondition("unserved-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	addresses := []string{s.freeAddress(), s.freeAddress()}
	s.setPool(addresses...)
	s.create(pod("served", byClass(class.Name)))
	s.awaitAnswer(s.awaitPodAddress(s.awaitReady("served"), addresses[0]), "served")
	s.awaitCondition("unserved-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer,
		*other.Spec.LoadBalancerClass)
}

// The ports of a Listener may have different protocols.
func TestALoadBalancerHasTCPAndUDPPortsAtOneAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	address := s.freeAddress()
	s.setPool(address)
	s.create(pod("game", byClass(class.Name)))
	own := s.awaitPodAddress(s.awaitReady("game"), address)
	s.awaitAnswer(own, "game")
	s.awaitAnswerOverUDP(own, "game")
}

// Three replicas share an address. The client outside reaches it again after the node that announces it has lost power,
// and addresses and files stay.
func TestALoadBalancerFailsOverWhenItsNodeStops(t *testing.T) {
	s := newScenario(t)
	class := s.createBalancedClass(nil)
	address := s.freeAddress()
	s.setPool(address)
	s.createBootstrapListener(class.Name)
	set := statefulSet("broker", 3, byName("bootstrap"))
	spread(set)
	s.create(set)
	var own listenersv1alpha1.IngressAddress
	for i := range 3 {
		own = s.awaitPodAddress(s.awaitReady(fmt.Sprintf("broker-%d", i)), address)
	}
	s.awaitAnyAnswer(own)

	announcing := s.awaitAnnouncer("bootstrap", "")
	node := nodeOf(&corev1.Pod{Spec: corev1.PodSpec{NodeName: announcing}})
	s.must(testbed.StopNode(s.ctx, node))
	s.awaitAnyAnswer(own)
	t.Logf("%s announced the address, then %s", announcing, s.awaitAnnouncer("bootstrap", announcing))
	if l := s.awaitListener("bootstrap", 1); l.Status.IngressAddresses[0].Address != address {
		t.Errorf("the address is %+v, want %s", l.Status.IngressAddresses, address)
	}
	s.awaitFilesAt(own, own)
	s.must(testbed.StartNode(s.ctx, node))
	s.must(testbed.Ready(s.timeoutContext()))
	s.awaitAnyAnswer(own)
}

// awaitAnyAnswer waits until any Pod answers at an address.
func (s *scenario) awaitAnyAnswer(a listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		_, err := request(ctx, a, "/whoami")
		return err
	})
}

// awaitAnnouncer waits until a node other than the given one announces the address of a Service, and returns its name.
func (s *scenario) awaitAnnouncer(service, other string) string {
	s.Helper()
	statuses := &unstructured.UnstructuredList{}
	statuses.SetGroupVersionKind(schema.GroupVersionKind{Group: "metallb.io", Version: "v1beta1", Kind: "ServiceL2StatusList"})
	var announcer string
	s.eventually(func(ctx context.Context) error {
		if err := api.List(ctx, statuses, client.InNamespace(metallb.Namespace)); err != nil {
			return err
		}
		for _, status := range statuses.Items {
			name, _, _ := unstructured.NestedString(status.Object, "status", "serviceName")
			namespace, _, _ := unstructured.NestedString(status.Object, "status", "serviceNamespace")
			node, _, _ := unstructured.NestedString(status.Object, "status", "node")
			if name == service && namespace == s.namespace && node != other {
				announcer = node
				return nil
			}
		}
		return errors.New("no node announces Service " + strconv.Quote(service))
	})
	return announcer
}

// Replicas in two namespaces have one address, and are reached from outside at ports of their own, over TCP and UDP.
// The ports stay when a Service is deleted, also while the operator restarts. A replica without a port waits until the
// range is extended.
func TestReplicasShareTheAddressOfALoadBalancer(t *testing.T) {
	s, other := newScenario(t), newScenario(t)
	const first, last = 9000, 9007 // four Pods with two ports
	free, address := s.freeAddress(), s.freeAddress()
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{
			Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: fmt.Sprintf("%d-%d", first, last)},
		}
		spec.LoadBalancerAllocateNodePorts = ptr.To(false)
		spec.ServiceAnnotations = map[string]string{"metallb.io/allow-shared-ip": s.namespace, "metallb.io/loadBalancerIPs": address}
	})
	s.setPoolOf([]string{s.namespace, other.namespace}, free, address)

	set := statefulSet("broker", 3, byClass(class.Name))
	s.create(set)
	other.create(pod("web", byClass(class.Name)))
	addresses, taken := map[string]listenersv1alpha1.IngressAddress{}, map[int32]string{}
	reach := func() {
		t.Helper()
		for name, a := range addresses {
			s.awaitReached(name, a)
		}
	}
	add := func(s *scenario, name string) {
		t.Helper()
		addresses[name] = s.awaitPodAddress(s.awaitReady(name), address)
		for port, number := range addresses[name].Ports {
			if taken[number] != "" || number < first || number > last+2 {
				t.Errorf("%s has %d for %s, which is not in the range, or that of %q", name, number, port, taken[number])
			}
			taken[number] = name
		}
	}
	add(other, "web")
	for i := range 3 {
		add(s, fmt.Sprintf("broker-%d", i))
	}
	t.Logf("addresses: %+v", addresses)
	reach()

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](4) })
	s.awaitCondition("listener-broker-3", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonSharedPortsExhausted,
		"9000-9007", "extend spec.loadBalancer.sharing.portRange of ListenerClass "+class.Name)
	t.Logf("event: %s", s.awaitEvent("Listener", "listener-broker-3", listenersv1alpha1.ReasonSharedPortsExhausted))

	var awaitRestart func()
	for i, name := range []string{"broker-0", "broker-1"} {
		if i == 1 {
			_, awaitRestart = s.killOperator()
		}
		s.removeService("listener-"+name, func(again *corev1.Service) bool { return len(again.Status.LoadBalancer.Ingress) == 1 })
	}
	awaitRestart()
	reach()

	s.patch(class, func() { class.Spec.LoadBalancer.Sharing.PortRange = fmt.Sprintf("%d-%d", first, last+2) })
	add(s, "broker-3")
	reach()
}
