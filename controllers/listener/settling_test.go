package listener

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// balancedAt makes the load balancer report these addresses.
func balancedAt(addresses ...string) func(*operator) {
	return func(r *operator) {
		change(r, "web", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for _, a := range addresses {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
			}
		})
	}
}

// nodeAt makes node-1 report these addresses.
func nodeAt(addresses ...corev1.NodeAddress) func(*operator) {
	return func(r *operator) { change(r, "node-1", func(n *corev1.Node) { n.Status.Addresses = addresses }) }
}

// admitted makes the router admit the Route of a port for a host, or reject it if the host is empty.
func admitted(port, host string) func(*operator) {
	return func(r *operator) {
		change(r, "web-"+port, func(route *routev1.Route) {
			route.Status.Ingress = []routev1.RouteIngress{rejectedAs("HostAlreadyClaimed", "taken")}
			if host != "" {
				route.Status.Ingress = []routev1.RouteIngress{admittedAs(host)}
			}
		})
	}
}

func (r *operator) hosts() string {
	r.t.Helper()
	var hosts []string
	for _, a := range r.listener().Status.IngressAddresses {
		hosts = append(hosts, a.Address)
	}
	return strings.Join(hosts, " ")
}

// TestWhatIsTemporarySettles: what a source of addresses changes for seconds is not published, and what lasts is. What
// users and administrators write is published at once.
func TestWhatIsTemporarySettles(t *testing.T) {
	ip, external := objects.InternalIP, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.9"}
	const restart = -1 // of the operator
	type step struct {
		after  time.Duration
		change func(*operator)
		want   string
		writes bool
	}
	balanced := func() *state { return newState(loadBalancer) }
	onNodes := func() *state {
		return newState(nodePort).with(newNode("node-1", "10.0.0.1"), newNode("node-2", "10.0.0.2"), newVolume("pv-1", lastMountedOn("node-1")))
	}
	routed := func() *state {
		return newRouteState(ownRoute("admin", admittedAs("a.example.com")), ownRoute("http", admittedAs("h.example.com")))
	}
	move := func(r *operator) { change(r, "pv-1", lastMountedOn("node-2")) }
	for name, tc := range map[string]struct {
		given *state
		steps []step
	}{
		"a load balancer lists its addresses in another order": {balanced(), []step{
			{change: balancedAt("192.0.2.1", "192.0.2.2"), want: "192.0.2.1 192.0.2.2", writes: true},
			{change: balancedAt("192.0.2.2", "192.0.2.1"), want: "192.0.2.1 192.0.2.2"},
			{after: time.Hour, want: "192.0.2.1 192.0.2.2"},
			{after: restart, want: "192.0.2.1 192.0.2.2"},
			{after: time.Hour, want: "192.0.2.1 192.0.2.2"},
		}},
		"a load balancer takes its address back for seconds": {balanced(), []step{
			{change: balancedAt("192.0.2.1"), want: "192.0.2.1", writes: true},
			{change: balancedAt(), want: "192.0.2.1"},
			{after: 29 * time.Second, want: "192.0.2.1"},
			{after: restart, want: "192.0.2.1"},
			{after: 29 * time.Second, change: balancedAt("192.0.2.1"), want: "192.0.2.1"},
			{after: 2 * time.Second, change: balancedAt(), want: "192.0.2.1"},
			{after: 29 * time.Second, want: "192.0.2.1"},
			{after: time.Second, want: "", writes: true},
			{after: time.Second, change: balancedAt("192.0.2.2"), want: "192.0.2.2", writes: true},
		}},
		"a load balancer has another address first for seconds": {balanced(), []step{
			{change: balancedAt("192.0.2.1"), want: "192.0.2.1", writes: true},
			{change: balancedAt("192.0.2.2", "192.0.2.1"), want: "192.0.2.1"},
			{after: 5 * time.Second, change: balancedAt("192.0.2.1"), want: "192.0.2.1"},
			{after: time.Minute, change: balancedAt("192.0.2.2", "192.0.2.1"), want: "192.0.2.1"},
			{after: 30 * time.Second, want: "192.0.2.2 192.0.2.1", writes: true},
		}},
		"the address of a load balancer changes because the class was changed": {balanced(), []step{
			{change: balancedAt("192.0.2.1"), want: "192.0.2.1", writes: true},
			{change: func(r *operator) {
				change(r, "some-class", func(c *listenersv1alpha1.ListenerClass) {
					c.Spec.ServiceAnnotations = map[string]string{"example.com/pool": "b"}
				})
			}, want: "192.0.2.1"},
			{after: 5 * time.Second, change: balancedAt("192.0.2.2"), want: "192.0.2.2", writes: true},
			{after: time.Minute, change: balancedAt("192.0.2.3"), want: "192.0.2.2"},
		}},
		"the address of a load balancer changes because the Listener was changed": {balanced(), []step{
			{change: balancedAt("192.0.2.1"), want: "192.0.2.1", writes: true},
			{change: func(r *operator) {
				change(r, "web", func(l *listenersv1alpha1.Listener) { l.Generation++ })
			}, want: "192.0.2.1", writes: true},
			{after: 5 * time.Second, change: balancedAt("192.0.2.2"), want: "192.0.2.2", writes: true},
		}},
		"a node has another address first for seconds": {onNodes(), []step{
			{want: "10.0.0.1"},
			{change: nodeAt(ip("10.0.0.9"), ip("10.0.0.1")), want: "10.0.0.1"},
			{after: 5 * time.Second, change: nodeAt(ip("10.0.0.1")), want: "10.0.0.1"},
			{after: time.Minute, change: nodeAt(ip("10.0.0.9"), ip("10.0.0.1")), want: "10.0.0.1"},
			{after: restart, want: "10.0.0.1"},
			{after: 29 * time.Second, change: nodeAt(ip("10.0.0.9")), want: "10.0.0.1"},
			{after: 31 * time.Second, want: "10.0.0.9", writes: true},
		}},
		"a node has another type of address for seconds": {onNodes(), []step{
			{want: "10.0.0.1"},
			{after: time.Minute, change: nodeAt(external, ip("10.0.0.1")), want: "10.0.0.1"},
			{after: 5 * time.Second, change: nodeAt(ip("10.0.0.1")), want: "10.0.0.1"},
			{change: nodeAt(external, ip("10.0.0.1")), want: "10.0.0.1"},
			{after: 30 * time.Second, want: "192.0.2.9", writes: true},
		}},
		"a node has no address for seconds": {onNodes(), []step{
			{want: "10.0.0.1"},
			{change: nodeAt(), want: "10.0.0.1"},
			{after: restart, want: "10.0.0.1"},
			{after: 5 * time.Second, change: nodeAt(ip("10.0.0.1")), want: "10.0.0.1"},
			{after: time.Minute, change: nodeAt(), want: "10.0.0.1"},
			{after: 30 * time.Second, want: "", writes: true},
		}},
		"an administrator gives a node another address": {onNodes(), []step{
			{want: "10.0.0.1"},
			{after: time.Minute, change: func(r *operator) {
				change(r, "node-1", func(n *corev1.Node) {
					n.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "192.0.2.7"}
				})
			}, want: "192.0.2.7", writes: true},
		}},
		"a Pod moves while the address of its node is another one": {onNodes(), []step{
			{want: "10.0.0.1"},
			{after: time.Minute, change: nodeAt(ip("10.0.0.9"), ip("10.0.0.1")), want: "10.0.0.1"},
			{change: move, want: "10.0.0.2", writes: true},
		}},
		"a Pod moves while the operator is away": {onNodes(), []step{
			{want: "10.0.0.1"},
			{change: move, after: restart, want: "10.0.0.2", writes: true},
		}},
		"a node is lost": {onNodes().with(newVolume("pv-2", lastMountedOn("node-2"))), []step{
			{want: "10.0.0.1 10.0.0.2"},
			{change: func(r *operator) {
				r.delete(newNode("node-1", ""))
				r.observe(newNode("node-1", ""))
			}, want: "10.0.0.2", writes: true},
		}},
		"a router rejects a Route for seconds": {routed(), []step{
			{want: "a.example.com h.example.com"},
			{change: admitted("http", ""), want: "a.example.com h.example.com"},
			{after: 5 * time.Second, change: admitted("http", "h.example.com"), want: "a.example.com h.example.com"},
			{change: admitted("http", ""), want: "a.example.com h.example.com"},
			{after: 30 * time.Second, want: "a.example.com", writes: true},
			{after: time.Second, change: admitted("http", "h.example.com"), want: "a.example.com h.example.com", writes: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.given.operator(t, interceptor.Funcs{})
			r.reconcileAfter(0)
			for i, s := range tc.steps {
				if s.after == restart {
					r.restart()
				} else {
					r.now.SetTime(r.now.Now().Add(s.after))
				}
				if s.change != nil {
					s.change(r)
				}
				_, writes := r.reconcileAfter(0)
				if got := r.hosts(); got != s.want || slices.Contains(writes, "apply status") != s.writes {
					t.Fatalf("step %d: %q is published, want %q, after the writes %q", i, got, s.want, writes)
				}
				if ready := observe.Condition(r.listener(), listenersv1alpha1.ListenerReady); (ready.Status == metav1.ConditionTrue) != (s.want != "") {
					t.Errorf("step %d: the Listener is ready: %s", i, ready.Status)
				}
			}
		})
	}
}

// A Listener is reconciled when what lasts has to be followed, and not before.
func TestAChangeThatLastsIsFollowedWithoutAnotherEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		given  *state
		first  func(*operator)
		second func(*operator)
	}{
		"load balancer": {newState(loadBalancer), balancedAt("192.0.2.1"), balancedAt("192.0.2.2")},
		"node": {
			newState(nodePort).with(newNode("node-1", "10.0.0.1"), newVolume("pv-1", lastMountedOn("node-1"))),
			nodeAt(objects.InternalIP("10.0.0.1")), nodeAt(objects.InternalIP("10.0.0.2")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.given.operator(t, interceptor.Funcs{})
			r.reconcileAfter(0)
			tc.first(r)
			r.wantRequeue(0, 0)
			tc.second(r)
			r.wantRequeue(0, settling.Period)
			r.wantRequeue(10*time.Second, settling.Period-10*time.Second)
			r.wantRequeue(settling.Period-10*time.Second, 0)
		})
	}
}

// A class that advertises other addresses in place of those of nodes has nothing to refuse while these are away.
func TestAdvertisedAddressesSettle(t *testing.T) {
	r := newState(nodePort).with(newNode("node-1", "10.0.0.1"), newVolume("pv-1", lastMountedOn("node-1"))).change(func(s *state) {
		s.class.Spec.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: "{nodeName}.example.com"}
	}).operator(t, interceptor.Funcs{})
	r.reconcileAfter(0)
	for _, restarts := range []bool{false, true} {
		nodeAt(objects.InternalIP("10.0.0.9"))(r)
		if restarts {
			r.restart()
		}
		_, writes := r.reconcileAfter(0)
		accepted := observe.Condition(r.listener(), listenersv1alpha1.ListenerAccepted)
		if got := r.hosts() + fmt.Sprint(r.listener().Status.Targets[0].Address); got != "node-1.example.com10.0.0.1" || accepted.Status != metav1.ConditionTrue {
			t.Errorf("restarted: %t, %q is published, accepted: %s, writes %q", restarts, got, accepted.Message, writes)
		}
		nodeAt(objects.InternalIP("10.0.0.1"))(r)
		r.reconcileAfter(0)
	}
}

// Gateways report other addresses for seconds, as load balancers do.
func TestOnlyTheSpecOfAGatewayChangesTheClass(t *testing.T) {
	s := newRoutedState(listenersv1alpha1.GatewayRouteKindTLS, gatewayv1.TLSProtocolType, 9000)
	gateway := s.others[0].(*gatewayv1.Gateway)
	gateway.UID, gateway.Generation = "gateway-uid", 1
	r := s.operator(t, interceptor.Funcs{})
	toListeners := r.referenceToListeners(schema.GroupVersion(gatewayv1.GroupVersion).WithKind("Gateway"))
	mapped := func(change func()) (isChanged bool) {
		t.Helper()
		for _, step := range []func(){func() {}, change} {
			if step(); len(toListeners(t.Context(), gateway)) == 0 {
				t.Error("the Listener of the class is not reconciled")
			}
		}
		_, isChanged = r.settler.Get(settle.ChangedClass(s.class.Name))
		return isChanged
	}
	if mapped(func() { gateway.Status.Addresses = nil }) {
		t.Error("the status of a Gateway counts as a change of its class")
	}
	if !mapped(func() { gateway.Generation++ }) {
		t.Error("the spec of a Gateway does not count as a change of its class")
	}
}

// Tenants may write Gateways of their own as often as they like.
func TestOnlyAGatewayThatIsReferredToCostsMore(t *testing.T) {
	read := 0
	count := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		err := c.List(ctx, list, options...)
		if strings.HasPrefix(reflect.TypeOf(list).String(), "*v1.TLSRoute") {
			read += meta.LenList(list)
		}
		return err
	}}
	r := newRoutedState(listenersv1alpha1.GatewayRouteKindTLS, gatewayv1.TLSProtocolType, 9000).operator(t, count)
	r.reconcileAfter(0)
	toListeners := r.referenceToListeners(schema.GroupVersion(gatewayv1.GroupVersion).WithKind("Gateway"))
	gateway := newGateway(gatewayv1.TLSProtocolType)

	gateway.UID, gateway.Name = "theirs", "theirs"
	read = 0
	requests := toListeners(t.Context(), gateway)
	if _, remembered := r.settler.Get(settle.Reference(gateway.UID)); len(requests) > 0 || read > 0 || remembered {
		t.Errorf("a Gateway that nothing refers to: requests %v, %d routes read, remembered: %t", requests, read, remembered)
	}

	gateway.UID, gateway.Name = "used", "edge"
	change(r, r.listener().Class(), func(class *listenersv1alpha1.ListenerClass) { class.Spec.Gateway.ParentRefs[0].Name = "another" })
	if requests := toListeners(t.Context(), gateway); len(requests) != 1 || requests[0].NamespacedName != client.ObjectKeyFromObject(r.listener()) {
		t.Errorf("a Gateway that only a route refers to: %v", requests)
	}
}
