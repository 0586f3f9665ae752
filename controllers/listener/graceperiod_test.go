package listener

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// wantRemoval checks that a reconciliation after d removes the previous exposure, and that nothing is left to do.
func (o *operator) wantRemoval(d time.Duration) {
	o.t.Helper()
	if requeueAfter, writes := o.reconcileAfter(d); requeueAfter != 0 || len(writes) == 0 {
		o.t.Errorf("at the end of the grace period: requeue after %s, writes %q", requeueAfter, writes)
	}
	requeueAfter, writes := o.reconcileAfter(0)
	if _, remembered := o.settler.Get(settle.Completed("listener-uid")); requeueAfter != 0 || len(writes) > 0 || remembered {
		o.t.Errorf("after the grace period: requeue after %s, writes %q, remembered: %t", requeueAfter, writes, remembered)
	}
}

// nodePortsToRoutes returns a Listener whose Routes are admitted, with the node ports of its previous exposure.
func nodePortsToRoutes() *state {
	return newRouteState(ownRoute("admin", admittedAs("a.example.com")), ownRoute("http", admittedAs("h.example.com"))).change(withNodePortService)
}

// routesToNodePorts returns a Listener with node ports, with a Route of its previous exposure.
func routesToNodePorts() *state {
	return newRouteState(ownRoute("http", admittedAs("h.example.com"))).change(func(s *state) {
		withNodePortService(s)
		s.class.Spec.ServiceType, s.class.Spec.Route = nodePort, nil
	})
}

// loadBalancerToNodePorts returns a Listener with node ports, whose Service still has the load balancer of its previous
// exposure.
func loadBalancerToNodePorts() *state {
	return newState(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv", lastMountedOn("a"))).change(func(s *state) {
		s.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	})
}

// The durations are those of production: routers and nodes need them, and neither can be watched.
func TestPreviousExposureStaysForTheGracePeriod(t *testing.T) {
	for name, given := range map[string]func() *state{
		"node ports": nodePortsToRoutes, "Routes": routesToNodePorts, "load balancer": loadBalancerToNodePorts,
	} {
		t.Run(name, func(t *testing.T) {
			o := given().operator(t, interceptor.Funcs{})
			o.wantRequeue(0, 10*time.Second)
			o.wantRequeue(9*time.Second, time.Second)
			o.wantRemoval(time.Second)
		})
	}
}

// Clients learn the addresses of the nodes meanwhile.
func TestALoadBalancerStaysWhileTheAddressesOfNodesArePublished(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*state)
		want   corev1.ServiceType
	}{
		"node ports":              {func(*state) {}, corev1.ServiceTypeLoadBalancer},
		"a load balancer without": {func(s *state) { s.service.Spec.Ports[0].NodePort = 0 }, corev1.ServiceTypeNodePort},
		"node ports of a range": {func(s *state) {
			s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Range: "30500-30600"}
		}, corev1.ServiceTypeNodePort},
	} {
		t.Run(name, func(t *testing.T) {
			o := loadBalancerToNodePorts().change(tc.change).operator(t, interceptor.Funcs{})
			o.reconcileAfter(0)
			service, published := get[corev1.Service](o, key.Name), o.listener().Status.IngressAddresses
			check.Equal(t, "type of the Service", tc.want, service.Spec.Type)
			if tc.want == corev1.ServiceTypeLoadBalancer && !cmp.Equal(published, []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}) {
				t.Errorf("published %v", published)
			}
		})
	}
}

func TestGracePeriodStartsAgainAfterARestart(t *testing.T) {
	o := nodePortsToRoutes().operator(t, interceptor.Funcs{})
	o.wantRequeue(0, 10*time.Second)
	o.settler.Delete(settle.Completed("listener-uid"))
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
}

func TestDesiredServiceTypeHasNoGracePeriod(t *testing.T) {
	o := nodePortsToRoutes().change(func(s *state) { s.class.Spec.ServiceType = nodePort }).operator(t, interceptor.Funcs{})
	o.wantRequeue(0, 0)
}

// Addresses can fail before all clients know them.
func TestGracePeriodStartsAgainWhenAddressesBecomeIncomplete(t *testing.T) {
	o := nodePortsToRoutes().operator(t, interceptor.Funcs{})
	o.wantRequeue(0, 10*time.Second)
	admitted("http", "")(o)
	o.wantRequeue(9*time.Second, 0) // until the Route changes
	admitted("http", "h.example.com")(o)
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
}
