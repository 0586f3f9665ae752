package listener

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
)

// newRoutedState returns a Listener of a class with routes, and the Gateway, which allows ListenerSets and has two
// listeners, at the port and the next one.
func newRoutedState(kind listenersv1alpha1.GatewayRouteKind, protocol gatewayv1.ProtocolType, port gatewayv1.PortNumber) *state {
	gateway := newGateway(protocol)
	other := gateway.Spec.Listeners[0]
	gateway.Spec.Listeners[0].Port, other.Port, other.Name = port, port+1, "other"
	gateway.Spec.Listeners = append(gateway.Spec.Listeners, other)
	gateway.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	return newState(clusterIP).with(gateway).change(func(s *state) {
		s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{Kind: kind, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}}
		if kind == listenersv1alpha1.GatewayRouteKindTLS || kind == listenersv1alpha1.GatewayRouteKindHTTP {
			s.class.Spec.Gateway.HostTemplate = "{listener}.{namespace}.example.com"
		}
	})
}

// newTCPState returns two Listeners of a class with TCPRoutes, and a Gateway with listeners at the ports 9000 and 9001.
func newTCPState(portRange string) *state {
	s := newRoutedState(listenersv1alpha1.GatewayRouteKindTCP, gatewayv1.TCPProtocolType, 9000)
	s.class.Spec.Gateway.PortRange = portRange
	return s.with(second(s.listener))
}

// withOneListener removes the second listener of the Gateway.
func withOneListener(s *state) {
	gateway := s.others[0].(*gatewayv1.Gateway)
	gateway.Spec.Listeners = gateway.Spec.Listeners[:1]
}

func accepted(l *listenersv1alpha1.Listener) string {
	return observe.Condition(l, listenersv1alpha1.ListenerAccepted).Reason
}

// While the API server takes its time to write the route of one Listener, no other Listener gets what the route has,
// and none waits for the API server. If it is rejected, the others are requested. Without an answer, it may be stored.
func TestRoutesAreReservedBeforeTheyAreWritten(t *testing.T) {
	const refused = listenersv1alpha1.ReasonNoGatewayListener
	for name, tc := range map[string]struct {
		failure error
		want    string
	}{
		"written":      {nil, refused},
		"rejected":     {apierrors.NewBadRequest("no"), listenersv1alpha1.ReasonAccepted},
		"not answered": {errors.New("no connection"), refused},
	} {
		t.Run(name, func(t *testing.T) {
			meanwhile := 0
			var o *operator
			o = newTCPState("").change(withOneListener).operator(t, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if route := applied.(interface{ GetName() string }); route.GetName() != key.Name+"-http" {
						return c.Apply(ctx, applied, options...)
					}
					meanwhile++
					if got := accepted(o.reconcile("second")); got != refused {
						t.Errorf("the second Listener is %s while the route of the first one is being written", got)
					}
					if tc.failure != nil {
						return tc.failure
					}
					return c.Apply(ctx, applied, options...)
				},
			})
			if _, err := o.try(key); (err == nil) != (tc.failure == nil) || meanwhile != 1 {
				t.Fatalf("error %v after %d requests", err, meanwhile)
			}
			if requested := o.held.Waiting.Freed.Has("GatewayListener/"); requested != (tc.want != refused) {
				t.Errorf("the second Listener is requested: %t", requested)
			}
			if got := accepted(o.reconcile("second")); got != tc.want {
				t.Errorf("the second Listener is %s, want %s", got, tc.want)
			}
		})
	}
}

// Another client deleted its objects while the operator did not run, and a Listener that waits for one of the ports is
// reconciled first.
func TestAListenerKeepsThePortsThatItPublishes(t *testing.T) {
	for _, tc := range []struct {
		portRange string
		published int32
		refused   string
	}{
		{"", 9000, listenersv1alpha1.ReasonNoGatewayListener},
		{"9001-9001", 9001, listenersv1alpha1.ReasonGatewayPortsExhausted},
	} {
		t.Run("range "+tc.portRange, func(t *testing.T) {
			s := newTCPState(tc.portRange).change(withOneListener)
			s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("192.0.2.1", tc.published)}}
			o := s.operator(t, interceptor.Funcs{})
			for i, want := range []string{tc.refused, listenersv1alpha1.ReasonAccepted, tc.refused} {
				name := []string{"second", key.Name, "second"}[i]
				if got := accepted(o.reconcile(name)); got != want {
					t.Errorf("Listener %s is %s, want %s", name, got, want)
				}
			}
		})
	}
}

// Neither gets anything by the change, which is reverted, also before addresses are published, and if the operator has
// written nothing since its start.
func TestAListenerKeepsWhatAnotherClientGivesToAnOlderOne(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("a listener of the Gateway, restarted %t", restarted), func(t *testing.T) {
			keepsWhatAnotherClientGives(t, newTCPState(""), "-http", restarted, func(route *gatewayv1.TCPRoute) *gatewayv1.SectionName {
				return route.Spec.ParentRefs[0].SectionName
			})
		})
		t.Run(fmt.Sprintf("a port, restarted %t", restarted), func(t *testing.T) {
			keepsWhatAnotherClientGives(t, newTCPState("9002-9009"), "-tcp", restarted, func(set *gatewayv1.ListenerSet) *gatewayv1.PortNumber {
				return &set.Spec.Listeners[0].Port
			})
		})
	}
}

// keepsWhatAnotherClientGives gives the object of the older Listener what that of the younger one has. held returns
// what an object has.
func keepsWhatAnotherClientGives[T any, O interface {
	*T
	client.Object
}, H any](t *testing.T, s *state, suffix string, restarted bool, held func(O) *H) {
	t.Helper()
	const older, younger = "second", "web"
	o := s.operator(t, interceptor.Funcs{})
	reconcile := func(listeners ...string) map[string]H {
		t.Helper()
		has := map[string]H{}
		for _, name := range listeners {
			o.reconcile(name)
			has[name] = *held(get[T, O](o, name+suffix))
		}
		return has
	}
	want := reconcile(older, younger)
	for i, name := range []string{older, younger} { // the API server of the test does not
		change(o, name+suffix, func(object O) { object.SetCreationTimestamp(metav1.Unix(int64(i+1), 0)) })
	}
	if restarted {
		o.restart()
	}
	reconcile(older, younger)
	change(o, older+suffix, func(object O) { *held(object) = want[younger] })
	if diff := cmp.Diff(want, reconcile(younger, older)); diff != "" {
		t.Errorf("what the Listeners have (-want +got):\n%s", diff)
	}
	if cmp.Equal(want[older], want[younger]) {
		t.Errorf("both have %v", want[older])
	}
}
