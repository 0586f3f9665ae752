//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// allowedPort is the first host port of the scenario with allowed clients.
const allowedPort = 23080

// outsideClients are two clients outside the cluster with addresses of their own, by these.
func outsideClients() map[string]*http.Client {
	host := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return map[string]*http.Client{testbed.ClientIP(): externalClient, testbed.HostIP(): host}
}

// awaitAllowed waits until the clients with these addresses, and no others, get an answer from the Pod.
func (s *scenario) awaitAllowed(a listenersv1alpha1.IngressAddress, name string, allowed ...string) {
	s.Helper()
	clients := outsideClients()
	s.eventually(func(ctx context.Context) error {
		var answered []string
		for _, ip := range slices.Sorted(maps.Keys(clients)) {
			if got, err := requestWith(ctx, clients[ip], a, "/whoami"); err == nil && got == name {
				answered = append(answered, ip)
			}
		}
		if slices.Sort(allowed); !slices.Equal(answered, allowed) {
			return fmt.Errorf("%s answers %v, want %v", a.Address, answered, allowed)
		}
		return nil
	})
}

// only returns the ranges of single addresses.
func only(addresses ...string) (ranges []listenersv1alpha1.CIDR) {
	for _, ip := range addresses {
		ranges = append(ranges, listenersv1alpha1.CIDR(ip+"/32"))
	}
	return ranges
}

// Of two clients outside, those reach the Pod that class and Listener allow. Pods of the cluster reach it, and its
// other ports, unless a policy of the namespace denies them.
func TestOnlyAllowedClientsReachNodePorts(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	first, second := testbed.ClientIP(), testbed.HostIP()
	spec := unpinned()
	spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	spec.AllowedClients = only(first, second)
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	s.create(clientPod("tenant"))
	web := s.awaitReady("web")
	s.awaitReady("tenant")
	own := s.awaitPodListener(web, "listener").IngressAddresses[0]
	s.awaitAllowed(own, "web", first, second)

	listener := mustGet(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	s.patch(listener, func() { listener.Spec.AllowedClients = only(first) })
	s.awaitAllowed(own, "web", first)
	const unused = 9
	inside := func(want map[int]string) {
		t.Helper()
		s.awaitConnections("tenant", web.Status.PodIP, want)
	}
	inside(map[int]string{8080: connected, unused: refused})

	s.patch(listener, func() { listener.Spec.AllowedClients = []listenersv1alpha1.CIDR{"0.0.0.0/0"} })
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidAllowedClients, "0.0.0.0/0")
	s.awaitAllowed(own, "web", first)
	s.patch(listener, func() { listener.Spec.AllowedClients = nil })
	s.patch(class, func() { class.Spec.AllowedClients = only(second) })
	s.awaitAllowed(own, "web", second)

	deny := s.denyAll(web)
	inside(map[int]string{8080: unanswered, unused: unanswered})
	s.awaitAllowed(own, "web", second)
	s.remove(deny)
	inside(map[int]string{8080: connected, unused: refused})

	s.patch(class, func() { class.Spec.AllowedClients = nil })
	s.awaitAllowed(own, "web", first, second)
	s.must(awaitDeleted(s.timeoutContext(), &networkingv1.NetworkPolicy{}, s.key("web-listener"+exposure.ClientPolicySuffix)))
}

// One of two clients outside is allowed.
func TestOnlyAllowedClientsReachHostPorts(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowPrivileged()
	first, second := testbed.ClientIP(), testbed.HostIP()
	spec := atHostPorts(false)
	spec.AllowedClients = only(first)
	class := s.createClass(spec)
	p := pod("web", byClass(class.Name))
	withHostPorts(&p.Spec, allowedPort)
	s.create(p)
	own := s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0]
	s.awaitAllowed(own, "web", first)
	s.patch(class, func() { class.Spec.AllowedClients = only(second) })
	s.awaitAllowed(own, "web", second)
}

// One of two clients outside is allowed.
func TestOnlyAllowedClientsReachALoadBalancer(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	first, second := testbed.ClientIP(), testbed.HostIP()
	class := s.createBalancedClass(func(spec *listenersv1alpha1.ListenerClassSpec) {
		spec.AllowedClients, spec.LoadBalancerAllocateNodePorts = only(first), ptr.To(false)
	})
	address := s.freeAddress()
	s.setPool(address)
	s.create(pod("web", byClass(class.Name)))
	own := s.awaitPodAddress(s.awaitReady("web"), address)
	s.awaitAllowed(own, "web", first)
	s.patch(class, func() { class.Spec.AllowedClients = only(second) })
	s.awaitAllowed(own, "web", second)
	s.patch(class, func() { class.Spec.AllowedClients = nil })
	s.awaitAllowed(own, "web", first, second)
}
