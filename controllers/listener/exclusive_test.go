package listener

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
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
			o = newTCPState("").change(withOneListener).operator(t, fakeclient.EachWrite(func(_ string, written any, send func() error) error {
				if route, ok := written.(interface{ GetName() string }); !ok || route.GetName() != key.Name+"-http" {
					return send()
				}
				meanwhile++
				check.Equal(t, "reason of the second Listener while the route of the first one is being written", refused, accepted(o.reconcile("second")))
				if tc.failure != nil {
					return tc.failure
				}
				return send()
			}))
			if _, err := o.try(key); (err == nil) != (tc.failure == nil) || meanwhile != 1 {
				t.Fatalf("error %v after %d requests", err, meanwhile)
			}
			check.Equal(t, "the second Listener is requested", tc.want != refused, o.held.Waiting.Freed.Has("GatewayListener/"))
			check.Equal(t, "reason of the second Listener", tc.want, accepted(o.reconcile("second")))
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
				check.Equal(t, "reason of Listener "+name, want, accepted(o.reconcile(name)))
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
	check.Equal(t, "what the Listeners have", want, reconcile(younger, older))
	if cmp.Equal(want[older], want[younger]) {
		t.Errorf("both have %v", want[older])
	}
}

// contendedHost is the host of Listener shop/web by the class mirrored, and of web/shop by the class plain.
const contendedHost = "shop.web.example.com"

// newIngressListener returns a Listener of an age, of a class with Ingresses, and its Ingress.
func newIngressListener(namespace, name, class string, age time.Duration) (*listenersv1alpha1.Listener, *networkingv1.Ingress) {
	uid := types.UID("uid-of-" + namespace)
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(class), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	return l, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-http", UID: "ingress-" + uid,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l, listenersv1alpha1.GroupVersion.WithKind("Listener"))},
		},
		Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("nginx"), Rules: []networkingv1.IngressRule{{Host: contendedHost}}},
	}
}

func newIngressClass(name string, template listenersv1alpha1.HostTemplate) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: clusterIP, Ingress: &listenersv1alpha1.IngressExposure{ClassName: "nginx", HostTemplate: template},
		},
	}
}

// A new operator knows which Listener has a host, whichever it reconciles first. An object that a tenant wrote does not
// give a Listener a host that its class does not.
func TestTheFirstListenerKeepsItsHostAfterARestart(t *testing.T) {
	const plain = listenersv1alpha1.HostTemplate("{listener}.{namespace}.example.com")
	accepted := &listenersv1alpha1.ListenerStatus{Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue}}}
	publishing := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: contendedHost, AddressType: listenersv1alpha1.AddressTypeHostname}}}
	leading := &listenersv1alpha1.ListenerStatus{Targets: []listenersv1alpha1.Target{{
		Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Advertised: publishing.IngressAddresses[0],
	}}}
	for name, tc := range map[string]struct {
		otherTemplate          listenersv1alpha1.HostTemplate
		ownAge, otherAge       time.Duration
		ownStatus, otherStatus *listenersv1alpha1.ListenerStatus
		names                  bool // of the other, in place of its addresses
		refused                bool
	}{
		"the other is older":                                       {otherTemplate: plain, otherAge: time.Hour, refused: true},
		"the other is younger":                                     {otherTemplate: plain, ownAge: time.Hour},
		"the other is younger, and was accepted":                   {otherTemplate: plain, ownAge: time.Hour, otherStatus: accepted, refused: true},
		"the other is older, and was refused":                      {otherTemplate: plain, otherAge: time.Hour, ownStatus: accepted},
		"the other is younger, and publishes it":                   {otherTemplate: plain, ownAge: time.Hour, ownStatus: accepted, otherStatus: publishing, refused: true},
		"the other publishes it, but its class does not":           {otherTemplate: "{listener}.{namespace}.example.org", otherStatus: publishing, refused: true},
		"a name leads to the other, but by its class another does": {otherTemplate: "{listener}.{namespace}.example.org", names: true, otherStatus: leading, refused: true},
		"a tenant wrote it for a Listener of its own":              {otherTemplate: "{listener}.{namespace}.example.org", otherAge: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			own, ownIngress := newIngressListener("shop", "web", "mirrored", tc.ownAge)
			other, otherIngress := newIngressListener("web", "shop", "plain", tc.otherAge)
			own.Status, other.Status = tc.ownStatus, tc.otherStatus
			s := &state{backends: backends.All(), listener: own}
			class := newIngressClass("plain", tc.otherTemplate)
			if tc.names {
				class.Spec = listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort, Hostname: &listenersv1alpha1.Hostname{
					Template: tc.otherTemplate, Records: listenersv1alpha1.HostnameRecordsNone,
				}}
			}
			s.with(other, ownIngress, otherIngress, newIngressClass("mirrored", "{namespace}.{listener}.example.com"), class)
			service := newState(clusterIP).service.DeepCopy()
			service.Namespace, service.Name = "web", "shop"
			service.OwnerReferences = otherIngress.OwnerReferences
			s.with(service)
			o := s.operator(t, interceptor.Funcs{})
			o.reconcile(key.Name)
			l := o.reconcile(key.Name) // finds the Service
			accepted := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted)
			if refused := accepted.Reason == listenersv1alpha1.ReasonInvalidHost && strings.Contains(accepted.Message, "which Listener web/shop has already"); refused != tc.refused {
				t.Errorf("refused is %v, want %v: %s: %s", refused, tc.refused, accepted.Reason, accepted.Message)
			}
			want := listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindHost, Value: contendedHost, Holder: "web/shop"}
			got := ptr.Deref(l.Status.WaitingFor, listenersv1alpha1.WaitingFor{})
			if want.Since = got.Since; tc.refused != (got == want) || tc.refused == got.Since.IsZero() {
				t.Errorf("waits for %+v", got)
			}
			if summary := "Host " + contendedHost; tc.refused != (l.Status.Summary.WaitingFor == summary) {
				t.Errorf("summary %q", l.Status.Summary.WaitingFor)
			}
		})
	}
}

// The later Listener is refused with the name of the first, whatever the kinds of their objects, and gets the host when
// the first one does not have it any more.
func TestTwoClassesGiveNoHostTwice(t *testing.T) {
	const mirrored, plain = "{namespace}.{listener}.example.com", "{listener}.{namespace}.example.com"
	type spec = listenersv1alpha1.ListenerClassSpec
	type give = func(listenersv1alpha1.HostTemplate) spec
	name := func(template listenersv1alpha1.HostTemplate) spec {
		return spec{ServiceType: loadBalancer, Hostname: &listenersv1alpha1.Hostname{Template: template}}
	}
	nodeName := func(template listenersv1alpha1.HostTemplate) spec {
		return spec{ServiceType: nodePort, Hostname: &listenersv1alpha1.Hostname{Template: template, Records: listenersv1alpha1.HostnameRecordsDNSEndpoint}}
	}
	ingress := func(template listenersv1alpha1.HostTemplate) spec { return newIngressClass("", template).Spec }
	route := func(template listenersv1alpha1.HostTemplate) spec {
		return spec{ServiceType: clusterIP, Route: &listenersv1alpha1.RouteExposure{HostTemplate: template}}
	}
	gateway := func(kind listenersv1alpha1.GatewayRouteKind) give {
		return func(template listenersv1alpha1.HostTemplate) spec {
			parent := []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}
			return spec{ServiceType: clusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: kind, HostTemplate: template, ParentRefs: parent}}
		}
	}
	tlsRoute, httpRoute := gateway(listenersv1alpha1.GatewayRouteKindTLS), gateway(listenersv1alpha1.GatewayRouteKindHTTP)
	for kinds, tc := range map[string]struct{ first, second give }{
		"Ingresses":                   {ingress, ingress},
		"names":                       {name, name},
		"a name and an Ingress":       {name, ingress},
		"names of nodes":              {nodeName, nodeName},
		"a name and one of nodes":     {name, nodeName},
		"a Route and a name":          {route, name},
		"a TLSRoute and a Route":      {tlsRoute, route},
		"an HTTPRoute and a TLSRoute": {httpRoute, tlsRoute},
	} {
		t.Run(kinds, func(t *testing.T) {
			first, _ := newIngressListener("shop", "web", "mirrored", 0)
			second, _ := newIngressListener("web", "shop", "plain", 0)
			s := &state{backends: backends.All(), listener: first}
			s.with(second, &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "mirrored"}, Spec: tc.first(mirrored)},
				&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: tc.second(plain)})
			o := s.operator(t, interceptor.Funcs{})
			check.Equal(t, "reason of the first Listener", listenersv1alpha1.ReasonAccepted, accepted(o.reconcile(key.Name)))
			reconcileSecond := func() (*listenersv1alpha1.ListenerStatus, metav1.Condition) {
				_, err := o.try(client.ObjectKeyFromObject(second))
				check.Must(t, errors.Join(err, o.api.Get(t.Context(), client.ObjectKeyFromObject(second), second)))
				return second.Status, observe.Condition(second, listenersv1alpha1.ListenerAccepted)
			}
			status, refused := reconcileSecond()
			wantCondition(t, refused, listenersv1alpha1.ReasonInvalidHost, "the host is "+contendedHost+", which Listener shop/web has already")
			got := ptr.Deref(status.WaitingFor, listenersv1alpha1.WaitingFor{})
			waits := listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindHost, Value: contendedHost, Holder: "shop/web", Since: got.Since}
			if got != waits || len(status.IngressAddresses) > 0 {
				t.Errorf("status %+v", status)
			}
			o.delete(first)
			o.listenerToListeners().Delete(t.Context(), event.DeleteEvent{Object: first}, nil)
			if !o.held.Waiting.Freed.Has("Host/" + contendedHost) {
				t.Errorf("Listeners are reconciled that wait for %v", o.held.Waiting.Freed)
			}
			if status, now := reconcileSecond(); now.Reason != listenersv1alpha1.ReasonAccepted || status.WaitingFor != nil {
				t.Errorf("then, it waits for %+v, condition %+v", status.WaitingFor, now)
			}
		})
	}
}

// Its watch has seen the deletion before the pass has reserved anything.
func TestAListenerThatIsDeletedDuringItsPassHasNothing(t *testing.T) {
	own, _ := newIngressListener("shop", "web", "mirrored", 0)
	s := &state{backends: backends.All(), listener: own}
	s.with(newIngressClass("mirrored", "{namespace}.{listener}.example.com"))
	deleted := false
	var o *operator
	o = s.operator(t, fakeclient.EachWrite(func(_ string, _ any, send func() error) error {
		if !deleted {
			deleted = true
			o.delete(own.DeepCopy())
		}
		return send()
	}))
	_, err := o.try(key)
	host := registry.Key{Kind: listenersv1alpha1.WaitingKindHost, Value: contendedHost}
	if holder, taken := o.held.Registry.Begin(types.NamespacedName{Namespace: "web", Name: "shop"}).HolderOf(host); taken || !deleted {
		t.Errorf("deleted %t (%v); %s still has the host", deleted, err, holder)
	}
}
