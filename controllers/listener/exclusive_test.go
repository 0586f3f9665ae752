package listener

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// While the API server takes its time to write the route of one Listener, no other Listener gets what the route has,
// and none waits for the API server. If it is rejected, the others are requested. Without an answer, it may be stored.
func TestRoutesAreReservedBeforeTheyAreWritten(t *testing.T) {
	for name, failure := range map[string]error{"written": nil, "rejected": apierrors.NewBadRequest("no"), "not answered": errors.New("no connection")} {
		t.Run(name, func(t *testing.T) {
			s := newState(listenersv1alpha1.ServiceTypeClusterIP).with(newGateway(gatewayv1.TCPProtocolType))
			s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{
				Kind: listenersv1alpha1.GatewayRouteKindTCP, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}},
			}
			second := s.listener.DeepCopy()
			second.Name, second.UID = "second", "second-uid"
			fake := fakeclient.NewWithBackends(t, s.backends, interceptor.Funcs{}, s.with(second).objects()...)
			var r *Reconciler
			reconcile := func(l *listenersv1alpha1.Listener) error {
				if err := fake.Get(t.Context(), client.ObjectKeyFromObject(l), l); err != nil {
					return err
				}
				_, err := r.Reconcile(t.Context(), l)
				return err
			}
			meanwhile := 0
			r = newReconciler(s.backends, interceptor.NewClient(fake, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if route := o.(interface{ GetName() string }); route.GetName() != key.Name+"-http" {
						return c.Apply(ctx, o, options...)
					}
					meanwhile++
					if err := reconcile(second); err != nil {
						t.Error(err)
					}
					if failure != nil {
						return failure
					}
					return c.Apply(ctx, o, options...)
				},
			}), events.NewFakeRecorder(100))
			if err := reconcile(s.listener); (err == nil) != (failure == nil) || meanwhile != 1 {
				t.Fatalf("error %v after %d requests", err, meanwhile)
			}
			reason := func() string {
				if err := fake.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil {
					t.Fatal(err)
				}
				return meta.FindStatusCondition(second.Status.Conditions, listenersv1alpha1.ListenerAccepted).Reason
			}
			if got := reason(); got != listenersv1alpha1.ReasonNoGatewayListener {
				t.Errorf("the second Listener is %s while the route of the first one is being written", got)
			}
			if requested := r.held.Waiting.Freed.Has("GatewayListener/"); requested != (name == "rejected") {
				t.Errorf("the second Listener is requested: %t", requested)
			}
			want := listenersv1alpha1.ReasonNoGatewayListener
			if name == "rejected" {
				want = listenersv1alpha1.ReasonAccepted
			}
			if err := reconcile(second); err != nil || reason() != want {
				t.Errorf("error %v; the second Listener is %s, want %s", err, reason(), want)
			}
		})
	}
}

// Another client deleted its objects while the operator did not run, and a Listener that waits for one of the ports is
// reconciled first.
func TestAListenerKeepsThePortsThatItPublishes(t *testing.T) {
	for _, tc := range []struct{ portRange, refused string }{
		{"", listenersv1alpha1.ReasonNoGatewayListener},
		{"9001-9001", listenersv1alpha1.ReasonGatewayPortsExhausted},
	} {
		t.Run("range "+tc.portRange, func(t *testing.T) {
			gateway := newGateway(gatewayv1.TCPProtocolType)
			gateway.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
			s := newState(listenersv1alpha1.ServiceTypeClusterIP).with(gateway)
			s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{
				Kind: listenersv1alpha1.GatewayRouteKindTCP, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}, PortRange: tc.portRange,
			}
			waiting := s.listener.DeepCopy()
			waiting.Name, waiting.UID = "waiting", "waiting-uid"
			port := map[string]int32{"": 9000, "9001-9001": 9001}[tc.portRange]
			s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", Ports: map[string]int32{"http": port}}}}
			c := fakeclient.NewWithBackends(t, s.backends, interceptor.Funcs{}, s.with(waiting).objects()...)
			r := newReconciler(s.backends, c, events.NewFakeRecorder(100))
			for _, step := range []struct {
				listener *listenersv1alpha1.Listener
				reason   string
			}{{waiting, tc.refused}, {s.listener, listenersv1alpha1.ReasonAccepted}, {waiting, tc.refused}} {
				l := step.listener
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(l), l); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Reconcile(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(l), l); err != nil {
					t.Fatal(err)
				}
				if got := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted); got.Reason != step.reason {
					t.Errorf("Listener %s is %s, want %s: %s", l.Name, got.Reason, step.reason, got.Message)
				}
			}
		})
	}
}

// Neither gets anything by the change, which is reverted, also before addresses are published, and if the operator has
// written nothing since its start.
func TestAListenerKeepsWhatAnotherClientGivesToAnOlderOne(t *testing.T) {
	get := func(t *testing.T, c client.Client, o client.Object, name string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		portRange, suffix string
		empty             func() client.Object
		// held returns what an object has, and gives it what the younger one has if give is true.
		held func(o client.Object, give bool) string
	}{
		{"", "-http", func() client.Object { return &gatewayv1.TCPRoute{} }, func(o client.Object, give bool) string {
			parent := &o.(*gatewayv1.TCPRoute).Spec.ParentRefs[0]
			if give {
				parent.SectionName = ptr.To[gatewayv1.SectionName]("second")
			}
			return string(*parent.SectionName)
		}},
		{"9002-9009", "-tcp", func() client.Object { return &gatewayv1.ListenerSet{} }, func(o client.Object, give bool) string {
			entry := &o.(*gatewayv1.ListenerSet).Spec.Listeners[0]
			if give {
				entry.Port = 9003
			}
			return strconv.Itoa(int(entry.Port))
		}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("range %s, restarted %t", tc.portRange, restarted), func(t *testing.T) {
				gateway := newGateway(gatewayv1.TCPProtocolType)
				second := gateway.Spec.Listeners[0]
				second.Name, second.Port = "second", 9001
				gateway.Spec.Listeners = append(gateway.Spec.Listeners, second)
				gateway.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
				s := newState(listenersv1alpha1.ServiceTypeClusterIP).with(gateway)
				s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{
					Kind: listenersv1alpha1.GatewayRouteKindTCP, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}, PortRange: tc.portRange,
				}
				older := s.listener.DeepCopy()
				older.Name, older.UID = "older", "older-uid"
				c := fakeclient.NewWithBackends(t, s.backends, interceptor.Funcs{}, s.with(older).objects()...)
				var r *Reconciler
				reconcile := func(listeners ...string) map[string]string {
					t.Helper()
					has := map[string]string{}
					for _, name := range listeners {
						l, o := &listenersv1alpha1.Listener{}, tc.empty()
						get(t, c, l, name)
						if _, err := r.Reconcile(t.Context(), l); err != nil {
							t.Fatal(err)
						}
						get(t, c, o, name+tc.suffix)
						has[name] = tc.held(o, false)
					}
					return has
				}
				r = newReconciler(s.backends, c, events.NewFakeRecorder(100))
				want := reconcile(older.Name, key.Name)
				for i, name := range []string{older.Name, key.Name} { // the API server of the test does not
					o := tc.empty()
					get(t, c, o, name+tc.suffix)
					o.SetCreationTimestamp(metav1.Unix(int64(i+1), 0))
					if err := c.Update(t.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
				if restarted {
					r = newReconciler(s.backends, c, events.NewFakeRecorder(100))
				}
				reconcile(older.Name, key.Name)
				changed := tc.empty()
				get(t, c, changed, older.Name+tc.suffix)
				if tc.held(changed, true) != want[key.Name] {
					t.Fatalf("the younger Listener has %s", want[key.Name])
				}
				if err := c.Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, reconcile(key.Name, older.Name)); diff != "" {
					t.Errorf("what the Listeners have (-want +got):\n%s", diff)
				}
			})
		}
	}
}
