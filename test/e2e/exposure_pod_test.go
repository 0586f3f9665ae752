//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// routePods gives the client outside a route to the Pods of each node, as a network has it that learns the ranges of
// nodes by BGP, for both IP families, until the end of the test.
func (s *scenario) routePods() {
	s.Helper()
	for _, node := range testbed.Nodes() {
		v4, v6 := testbed.PodSubnets(node)
		for subnet, via := range map[string]string{v4: testbed.NodeIP(node), v6: testbed.NodeIPv6(node)} {
			s.onClient("ip", "route", "replace", subnet, "via", via, "dev", "eth0")
			s.onClientAtEnd("ip", "route", "del", subnet)
		}
	}
}

// clusterDNS returns the address of a Pod of the cluster's name server, to which a network would delegate the domain of
// the cluster.
func (s *scenario) clusterDNS(ctx context.Context) (string, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-dns"}); err != nil {
		return "", err
	}
	for i := range pods.Items {
		if isReady(&pods.Items[i]) {
			return pods.Items[i].Status.PodIP, nil
		}
	}
	return "", fmt.Errorf("none of %d Pods of the name server is ready", len(pods.Items))
}

// awaitPodsByName waits until a name leads to these Pods, and to nothing else, for a client outside that asks a name
// server, and until each Pod answers at each of its addresses, and sees the address of the client.
func (s *scenario) awaitPodsByName(a listenersv1alpha1.IngressAddress, server func(context.Context) (string, error), pods ...*corev1.Pod) {
	s.Helper()
	podOf := map[string]string{}
	for _, p := range pods {
		for _, ip := range p.Status.PodIPs {
			podOf[ip.IP] = p.Name
		}
	}
	s.eventually(func(ctx context.Context) error {
		at, err := server(ctx)
		if err != nil {
			return err
		}
		found, err := resolveAt(ctx, at, a.Address)
		if err != nil || len(found) != len(podOf) {
			return fmt.Errorf("%s leads to %q, want %v: %w", a.Address, found, podOf, err)
		}
		for _, ip := range found {
			direct := listenersv1alpha1.IngressAddress{Address: ip, Ports: a.Ports}
			if got, err := request(ctx, direct, "/whoami"); err != nil || got != podOf[ip] {
				return fmt.Errorf("%q answered at %s, want %q: %w", got, ip, podOf[ip], err)
			}
			own := testbed.ClientIP()
			if strings.Contains(ip, ":") {
				own = testbed.ClientIPv6()
			}
			if got, err := request(ctx, direct, "/client"); err != nil || got != own {
				return fmt.Errorf("the Pod at %s sees the client %q, want %s: %w", ip, got, own, err)
			}
		}
		return nil
	})
}

func atPods(change func(*listenersv1alpha1.ListenerClassSpec)) listenersv1alpha1.ListenerClassSpec {
	spec := listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Pod: &listenersv1alpha1.PodExposure{}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

// named returns an address that is a name.
func named(name string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports}
}

// awaitNamedOnly waits until a Pod is published at one name alone, which it reads.
func (s *scenario) awaitNamedOnly(p *corev1.Pod, want listenersv1alpha1.IngressAddress) {
	s.Helper()
	entry := s.awaitPodListener(p, "listener")
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{want}, entry.IngressAddresses); diff != "" || entry.Scope != listenersv1alpha1.ListenerScopeCluster {
		s.Fatalf("scope %s, addresses of %s (-want +got):\n%s", entry.Scope, p.Name, diff)
	}
	through := listenersv1alpha1.IngressAddress{Address: p.Status.PodIP, Ports: want.Ports}
	s.awaitFilesAt(through, want)
}

// With routes to the Pods, a client outside that asks the cluster's name server reaches each replica by the name in its
// volume, over both IP families, without another port and without a translation of addresses, and still after the
// replica has moved to another node and has other addresses. A Listener that several Pods share has a name that leads
// to all of them, and the port of their containers, also in SRV records.
func TestReplicasAreReachedAtAddressesOfTheirOwn(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(atPods(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.ports.targetPort"}}
	}))
	set := statefulSet("broker", 2, byClass(class.Name))
	spread(set)
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	s.create(set)
	ports := map[string]int32{"http": 8080, "echo": 9090}
	address := func(listener string, ports map[string]int32) listenersv1alpha1.IngressAddress {
		return named(strings.Join([]string{listener, s.namespace, "svc.cluster.local"}, "."), ports)
	}
	replicas := []*corev1.Pod{s.awaitReady("broker-0"), s.awaitReady("broker-1")}
	for _, p := range replicas {
		if _, err := request(s.timeoutContext(), listenersv1alpha1.IngressAddress{Address: p.Status.PodIP, Ports: ports}, "/whoami"); err == nil {
			t.Errorf("the client reaches %s without a route", p.Name)
		}
	}
	s.routePods()
	for _, p := range replicas {
		own := address("listener-"+p.Name, ports)
		s.awaitNamedOnly(p, own)
		s.awaitPodsByName(own, s.clusterDNS, p)
		for _, ip := range p.Status.PodIPs {
			s.awaitAnswerOverUDP(listenersv1alpha1.IngressAddress{Address: ip.IP, Ports: ports}, p.Name)
		}
	}

	first := replicas[0]
	s.patch(set, func() {
		set.Spec.Template.Spec.TopologySpreadConstraints = nil
		set.Spec.Template.Spec.Affinity = notOn(first.Spec.NodeName)
	})
	s.remove(first)
	moved := s.awaitReady("broker-0", first)
	if moved.Spec.NodeName == first.Spec.NodeName || slices.Contains(first.Status.PodIPs, moved.Status.PodIPs[0]) {
		t.Fatalf("%s was on %s at %v, and is on %s at %v", moved.Name, first.Spec.NodeName, first.Status.PodIPs, moved.Spec.NodeName, moved.Status.PodIPs)
	}
	own := address("listener-broker-0", ports)
	s.awaitNamedOnly(moved, own)
	s.awaitPodsByName(own, s.clusterDNS, moved)

	s.create(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap"},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName: &class.Name, Ports: []listenersv1alpha1.ListenerPort{port("http", 80, corev1.ProtocolTCP)},
			ObjectOverrides: []runtime.RawExtension{{Raw: fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": %q, "name": "bootstrap"},
				"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}`, s.namespace)}},
		},
	})
	s.create(pod("a", byName("bootstrap")))
	s.create(pod("b", byName("bootstrap")))
	both := []*corev1.Pod{s.awaitReady("a"), s.awaitReady("b")}
	shared := address("bootstrap", map[string]int32{"http": 8080})
	s.awaitNamedOnly(both[0], shared)
	s.awaitPodsByName(shared, s.clusterDNS, both...)
	s.eventually(func(ctx context.Context) error {
		at, err := s.clusterDNS(ctx)
		if err != nil {
			return err
		}
		_, records, err := resolverAt(at).LookupSRV(ctx, "http", "tcp", shared.Address+".")
		if err != nil || len(records) == 0 || records[0].Port != 8080 {
			return fmt.Errorf("the SRV records are %+v, want port 8080: %w", records, err)
		}
		return nil
	})
}

// external-dns follows a Pod to other addresses. It reads the annotations that version 0.22 reads.
func TestExternalDNSLeadsANameToAPod(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(atPods(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.Hostname = &listenersv1alpha1.Hostname{Template: "{podName}.{namespace}." + zone}
		spec.ServiceAnnotations = map[string]string{"external-dns.kubernetes.io/ttl": "1"}
	}))
	s.routePods()
	s.startNameServer()
	s.startExternalDNS("--annotation-prefix=external-dns.kubernetes.io/", "--managed-record-types=A", "--managed-record-types=AAAA")
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	server := func(context.Context) (string, error) { return testbed.ClientIP(), nil }
	first := s.awaitReady("broker-0")
	own := named("broker-0."+s.namespace+"."+zone, map[string]int32{"http": 8080, "echo": 9090})
	s.awaitNamedOnly(first, own)
	s.awaitPodsByName(own, server, first)
	s.remove(first)
	again := s.awaitReady("broker-0", first)
	s.awaitNamedOnly(again, own)
	s.awaitPodsByName(own, server, again)
}

// One of two clients outside is allowed. Both have a route to them.
func TestOnlyAllowedClientsReachPods(t *testing.T) {
	s := newScenario(t)
	s.routePods()
	first, second := testbed.ClientIP(), testbed.HostIP()
	class := s.createClass(atPods(func(spec *listenersv1alpha1.ListenerClassSpec) { spec.AllowedClients = only(first) }))
	s.create(pod("web", byClass(class.Name)))
	web := s.awaitReady("web")
	own := listenersv1alpha1.IngressAddress{Address: web.Status.PodIP, Ports: map[string]int32{"http": 8080}}
	s.awaitAllowed(own, "web", first)
	s.patch(class, func() { class.Spec.AllowedClients = only(second) })
	s.awaitAllowed(own, "web", second)
	s.patch(class, func() { class.Spec.AllowedClients = nil })
	s.awaitAllowed(own, "web", first, second)
}
