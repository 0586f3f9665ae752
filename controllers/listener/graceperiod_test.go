package listener

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// idleLater is a period after which it is reported that no Pod mounts the Listener. Tests of other periods ignore it.
const idleLater = 24 * time.Hour

// transition is a Listener whose backend changes, with a fake clock and with the grace period of production.
type transition struct {
	*Reconciler
	t      *testing.T
	now    *clocktesting.FakePassiveClock
	writes *[]string
}

func (s *state) transition(t *testing.T) *transition {
	t.Helper()
	intercept, writes := countWrites(-1, nil)
	c := fakeclient.NewWithBackends(t, s.backends, intercept, s.objects()...)
	r := newReconciler(s.backends, c, events.NewFakeRecorder(100))
	o := &transition{Reconciler: r, t: t, now: clocktesting.NewFakePassiveClock(time.Now()), writes: writes}
	o.settler.Idle = idleLater
	setClock(o.Reconciler, o.now)
	return o
}

// reconcileAfter advances the clock, reconciles, and returns the requested requeue and the writes.
func (o *transition) reconcileAfter(d time.Duration) (requeueAfter time.Duration, writes []string) {
	o.t.Helper()
	o.now.SetTime(o.now.Now().Add(d))
	listener := &listenersv1alpha1.Listener{}
	if err := o.Client.Get(o.t.Context(), key, listener); err != nil {
		o.t.Fatal(err)
	}
	before := len(*o.writes)
	result, err := o.Reconcile(o.t.Context(), listener)
	if err != nil {
		o.t.Fatal(err)
	}
	if result.RequeueAfter > idleLater/2 {
		result.RequeueAfter = 0
	}
	return result.RequeueAfter, (*o.writes)[before:]
}

// wantRequeue checks the requeue that a reconciliation after d requests.
func (o *transition) wantRequeue(d, requeueAfter time.Duration) {
	o.t.Helper()
	if got, _ := o.reconcileAfter(d); got != requeueAfter {
		o.t.Errorf("got a requeue after %s, want %s", got, requeueAfter)
	}
}

// wantRemoval checks that a reconciliation after d removes the previous exposure, and that nothing is left to do.
func (o *transition) wantRemoval(d time.Duration) {
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
		s.class.Spec.ServiceType, s.class.Spec.Route = listenersv1alpha1.ServiceTypeNodePort, nil
	})
}

// loadBalancerToNodePorts returns a Listener with node ports, whose Service still has the load balancer of its previous
// exposure.
func loadBalancerToNodePorts() *state {
	return newState(listenersv1alpha1.ServiceTypeNodePort).with(newNode("a", "10.0.0.1"), newVolume("pv", lastMountedOn("a"))).change(func(s *state) {
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
			o := given().transition(t)
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
			o := loadBalancerToNodePorts().change(tc.change).transition(t)
			o.reconcileAfter(0)
			var listener listenersv1alpha1.Listener
			var service corev1.Service
			if err := errors.Join(o.Client.Get(t.Context(), key, &listener), o.Client.Get(t.Context(), key, &service)); err != nil {
				t.Fatal(err)
			}
			if service.Spec.Type != tc.want {
				t.Errorf("the Service has type %s, want %s", service.Spec.Type, tc.want)
			}
			if tc.want == corev1.ServiceTypeLoadBalancer && !cmp.Equal(listener.Status.IngressAddresses, []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}) {
				t.Errorf("published %v", listener.Status.IngressAddresses)
			}
		})
	}
}

func TestGracePeriodStartsAgainAfterARestart(t *testing.T) {
	o := nodePortsToRoutes().transition(t)
	o.wantRequeue(0, 10*time.Second)
	o.settler.Delete(settle.Completed("listener-uid"))
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
}

func TestDesiredServiceTypeHasNoGracePeriod(t *testing.T) {
	o := nodePortsToRoutes().change(func(s *state) { s.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort }).transition(t)
	o.wantRequeue(0, 0)
}

// Addresses can fail before all clients know them.
func TestGracePeriodStartsAgainWhenAddressesBecomeIncomplete(t *testing.T) {
	o := nodePortsToRoutes().transition(t)
	o.wantRequeue(0, 10*time.Second)
	setIngress := func(ingress routev1.RouteIngress) {
		t.Helper()
		route := &routev1.Route{}
		if err := o.Client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "web-http"}, route); err != nil {
			t.Fatal(err)
		}
		route.Status.Ingress = []routev1.RouteIngress{ingress}
		if err := o.Client.Update(t.Context(), route); err != nil {
			t.Fatal(err)
		}
	}
	setIngress(rejectedAs("HostAlreadyClaimed", "taken"))
	o.wantRequeue(9*time.Second, 0) // until the Route changes
	setIngress(admittedAs("h.example.com"))
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
}
