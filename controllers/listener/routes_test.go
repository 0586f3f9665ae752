package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

var routeKind = routev1.GroupVersion.WithKind("Route")

// newRouteWorld has a Listener with two ports, whose class exposes by Routes, and the Service that it got in an earlier
// pass.
func newRouteWorld(routes ...client.Object) *world {
	return newWorld(listenersv1alpha1.ServiceTypeClusterIP).but(func(w *world) {
		w.class.Spec.Route = &listenersv1alpha1.RouteExposure{}
		w.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}}
		w.service.Spec.Ports = []corev1.ServicePort{{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 81}, {Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	}).with(routes...)
}

// asNodePort makes the Service one of before the class changed, which a node leads to.
func asNodePort(w *world) {
	w.service.Spec.Type = corev1.ServiceTypeNodePort
	for i := range w.service.Spec.Ports {
		w.service.Spec.Ports[i].NodePort = 30000 + w.service.Spec.Ports[i].Port
	}
	w.others = append(w.others, newNode("a", "10.0.0.1"), newVolume("pv", on("a")))
}

// ownRoute is the Listener's Route of a port.
func ownRoute(port string, ingresses ...routev1.RouteIngress) *routev1.Route {
	return &routev1.Route{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name + "-" + port, UID: types.UID("uid-of-" + port),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "listeners.stackable.tech/v1alpha1", Kind: "Listener", Name: key.Name, UID: "listener-uid", Controller: ptr.To(true),
			}},
		},
		Spec: routev1.RouteSpec{
			Port: &routev1.RoutePort{}, To: routev1.RouteTargetReference{Kind: "Service", Name: key.Name}, TLS: &routev1.TLSConfig{Termination: "passthrough"},
		},
		Status: routev1.RouteStatus{Ingress: ingresses},
	}
}

func admittedAs(host string) routev1.RouteIngress {
	return routev1.RouteIngress{RouterName: "default", Host: host, Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue,
	}}}
}

func rejectedAs(reason, message string) routev1.RouteIngress {
	return routev1.RouteIngress{RouterName: "default", Host: "web.example.com", Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}}}
}

// leaving has somebody wait with an object that is being deleted.
func leaving[T client.Object](o T) T {
	o.SetDeletionTimestamp(ptr.To(metav1.Now()))
	o.SetFinalizers([]string{"example.com/cleanup"})
	return o
}

// outcome is what a pass left.
type outcome struct {
	listener *listenersv1alpha1.Listener
	service  *corev1.Service
	routes   map[string]*routev1.Route
	told     []string
	err      error
}

func (o outcome) addresses() []string {
	addresses := []string{}
	for _, a := range o.listener.Status.IngressAddresses {
		addresses = append(addresses, a.Address+fmt.Sprint(a.Ports))
	}
	return addresses
}

func (o outcome) condition(conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(o.listener.Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// passes reconciles n times, on a cluster that change may make different.
func (w *world) passes(t *testing.T, n int, intercept interceptor.Funcs, change func(*Reconciler)) outcome {
	t.Helper()
	status := w.listener.Status
	w.listener.Status = nil
	fake := fakeclient.NewWithBackends(t, w.backends, interceptor.Funcs{}, w.objects()...)
	if status != nil {
		if err := apply.New(fake, names.FieldManagerListenerStatus).ApplyStatus(t.Context(), w.listener, status); err != nil {
			t.Fatal(err)
		}
	}
	c := interceptor.NewClient(fake, intercept)
	recorder := events.NewFakeRecorder(100)
	r := newReconciler(w.backends, c, c, recorder)
	if change != nil {
		change(r)
	}
	o := outcome{listener: &listenersv1alpha1.Listener{}, service: &corev1.Service{}, routes: map[string]*routev1.Route{}}
	for range n {
		listener := &listenersv1alpha1.Listener{}
		if err := fake.Get(t.Context(), key, listener); err != nil {
			t.Fatal(err)
		}
		_, o.err = r.Reconcile(t.Context(), listener)
	}
	var routes routev1.RouteList
	if err := errors.Join(fake.Get(t.Context(), key, o.listener), client.IgnoreNotFound(fake.Get(t.Context(), key, o.service)), fake.List(t.Context(), &routes)); err != nil {
		t.Fatal(err)
	}
	for i := range routes.Items {
		o.routes[routes.Items[i].Name] = &routes.Items[i]
	}
	close(recorder.Events)
	for e := range recorder.Events {
		o.told = append(o.told, e)
	}
	return o
}

func TestWhatAListenerIsReachedBy(t *testing.T) {
	both := []client.Object{ownRoute("admin", admittedAs("admin.example.com")), ownRoute("http", admittedAs("http.example.com"))}
	nodePorts := []string{"10.0.0.1map[admin:30081 http:30080]"}
	hosts := []string{"admin.example.commap[admin:443]", "http.example.commap[http:443]"}
	had := &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "x", AddressType: "Hostname", Ports: map[string]int32{}}}}
	for name, tc := range map[string]struct {
		world       *world
		unserved    bool
		addresses   []string
		accepted    string // reason
		ready       string // reason
		message     string // a part of the message of the condition that is false, else of Ready
		routes      []string
		serviceType corev1.ServiceType
		told        string // a part of an event
	}{
		"Routes that are new": {
			world: newRouteWorld(), accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonWaitingForRouter, message: "Route shop/web-admin has not been taken up",
			routes: []string{"web-admin", "web-http"}, told: "Normal WaitingForRouter",
		},
		"all Routes admitted": {
			world: newRouteWorld(both...), addresses: hosts, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
			message: "reachable at admin.example.com and 1 more", routes: []string{"web-admin", "web-http"},
		},
		"one Route rejected, and nothing published before": {
			world:    newRouteWorld(both[0], ownRoute("http", rejectedAs("HostAlreadyClaimed", "route x already exposes it and is older"))),
			accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonRouteNotAdmitted, message: "route x already exposes it and is older",
			routes: []string{"web-admin", "web-http"}, told: `Warning RouteNotAdmitted Route shop/web-http is rejected by router "default": HostAlreadyClaimed: route x`,
		},
		"one Route rejected that was admitted before": {
			world:     newRouteWorld(both[0], ownRoute("http", rejectedAs("HostAlreadyClaimed", "taken"))).but(func(w *world) { w.listener.Status = had }),
			addresses: hosts[:1], accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
			message: "reachable at admin.example.com; left out: Route shop/web-http is rejected", routes: []string{"web-admin", "web-http"},
			told: "Warning RouteNotAdmitted reachable at admin.example.com; left out: Route shop/web-http is rejected",
		},
		"the API of Routes is not served": {
			world: newRouteWorld().but(func(w *world) { w.listener.Status = had }), unserved: true,
			accepted: listenersv1alpha1.ReasonNotServed, ready: listenersv1alpha1.ReasonNotAccepted, message: "ListenerClass some-class asks for objects of kind Route, which this cluster does not serve in route.openshift.io/v1",
			told: "Warning NotServed",
		},
		"node ports until the API of Routes is served": {
			world: newRouteWorld().but(asNodePort), unserved: true, addresses: nodePorts, serviceType: corev1.ServiceTypeNodePort,
			accepted: listenersv1alpha1.ReasonNotServed, ready: listenersv1alpha1.ReasonAddressesAssigned, message: "name another class",
		},
		"node ports until all Routes are admitted": {
			world:     newRouteWorld(both[0], ownRoute("http", rejectedAs("HostAlreadyClaimed", "taken"))).but(asNodePort),
			addresses: nodePorts, serviceType: corev1.ServiceTypeNodePort, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
			message: "reachable at 10.0.0.1 as before, and not yet as ListenerClass some-class says: Route shop/web-http is rejected", routes: []string{"web-admin", "web-http"},
			told: "Warning RouteNotAdmitted reachable at 10.0.0.1 as before",
		},
		"no node ports once all Routes are admitted": {
			world: newRouteWorld(both...).but(asNodePort), addresses: hosts, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
			routes: []string{"web-admin", "web-http"},
		},
		"a load balancer until all Routes are admitted": {
			world: newRouteWorld(both[0]).but(func(w *world) {
				w.service.Spec.Type = corev1.ServiceTypeLoadBalancer
				w.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
			}),
			addresses: []string{"lb.example.commap[admin:81 http:80]"}, serviceType: corev1.ServiceTypeLoadBalancer,
			accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned, routes: []string{"web-admin", "web-http"},
		},
		"Routes until there is a load balancer": {
			world: newRouteWorld(both...).but(func(w *world) {
				w.class.Spec.ServiceType, w.class.Spec.Route = listenersv1alpha1.ServiceTypeLoadBalancer, nil
			}),
			addresses: hosts, serviceType: corev1.ServiceTypeLoadBalancer, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
			message: "as before, and not yet as ListenerClass some-class says: no load balancer", routes: []string{"web-admin", "web-http"},
		},
		"no Routes once there is a load balancer": {
			world: newRouteWorld(both...).but(func(w *world) {
				w.class.Spec.ServiceType, w.class.Spec.Route = listenersv1alpha1.ServiceTypeLoadBalancer, nil
				w.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
			}),
			addresses: []string{"lb.example.commap[admin:81 http:80]"}, serviceType: corev1.ServiceTypeLoadBalancer,
			accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned,
		},
		"the Route of a port that is gone goes at once": {
			world: newRouteWorld(both...).but(func(w *world) { w.listener.Spec.Ports = w.listener.Spec.Ports[:1] }).with(ownRoute("old")),
			// The fake client does not remove the port from the Service.
			addresses: hosts, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned, routes: []string{"web-admin", "web-http"},
		},
		"Routes stay when the class is gone": {
			world: newRouteWorld(both...).but(func(w *world) { w.class, w.listener.Status = nil, had }), addresses: []string{"xmap[]"},
			accepted: listenersv1alpha1.ReasonClassNotFound, ready: listenersv1alpha1.ReasonAddressesAssigned, message: "stay as they are", routes: []string{"web-admin", "web-http"},
		},
		"Routes stay when the template goes bad": {
			world:     newRouteWorld(both...).but(func(w *world) { w.class.Spec.Route.HostTemplate = "{podName}" }),
			addresses: hosts, accepted: listenersv1alpha1.ReasonNoSinglePod, ready: listenersv1alpha1.ReasonAddressesAssigned, message: "was not made for one", routes: []string{"web-admin", "web-http"},
		},
		"a Route of somebody else": {
			world:    newRouteWorld(both[0], &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-http"}}),
			accepted: listenersv1alpha1.ReasonForeignRoute, ready: listenersv1alpha1.ReasonNotAccepted, routes: []string{"web-admin", "web-http"},
			message: "Route shop/web-http exists and is not controlled by this Listener but by no one; delete it, or rename the Listener or its port",
		},
		"Routes whose Service is being deleted": {
			world: newRouteWorld(both...).but(func(w *world) { w.service, w.listener.Status = leaving(w.service), had }), addresses: []string{},
			accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonServiceTerminating, routes: []string{"web-admin", "web-http"},
		},
		"a Route that is being deleted": {
			world:     newRouteWorld(both[0], leaving(ownRoute("http", admittedAs("http.example.com")))),
			addresses: hosts, accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned, routes: []string{"web-admin", "web-http"},
		},
		"a Route that cannot become what it should be": {
			world: newRouteWorld(both[0], func() *routev1.Route {
				r := ownRoute("http", admittedAs("http.example.com"))
				r.Spec.Subdomain = "old"
				return r
			}()).but(func(w *world) { w.listener.Status = had }),
			addresses: hosts[:1], accepted: listenersv1alpha1.ReasonAccepted, ready: listenersv1alpha1.ReasonAddressesAssigned, routes: []string{"web-admin"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.world.passes(t, 1, interceptor.Funcs{}, func(r *Reconciler) {
				if tc.unserved {
					r.kinds[routeKind] = absent{}
				}
			})
			if o.err != nil {
				t.Fatal(o.err)
			}
			if diff := cmp.Diff(tc.addresses, o.addresses(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			accepted, ready := o.condition(listenersv1alpha1.ListenerAccepted), o.condition(listenersv1alpha1.ListenerReady)
			if accepted.Reason != tc.accepted || ready.Reason != tc.ready {
				t.Errorf("got reasons %s and %s, want %s and %s", accepted.Reason, ready.Reason, tc.accepted, tc.ready)
			}
			condition := ready
			if accepted.Status == metav1.ConditionFalse {
				condition = accepted
			}
			if !strings.Contains(condition.Message, tc.message) {
				t.Errorf("message %q lacks %q", condition.Message, tc.message)
			}
			if diff := cmp.Diff(tc.routes, slices.Sorted(maps.Keys(o.routes)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			if want := cmpType(tc.serviceType); o.service.Spec.Type != want {
				t.Errorf("the Service is of type %s, want %s", o.service.Spec.Type, want)
			}
			if (o.listener.Status.NodePorts != nil) != slices.Equal(tc.addresses, nodePorts) {
				t.Errorf("got node ports %v", o.listener.Status.NodePorts)
			}
			if !slices.ContainsFunc(o.told, func(e string) bool { return strings.Contains(e, tc.told) }) {
				t.Errorf("no event %q among %q", tc.told, o.told)
			}
		})
	}
}

func cmpType(t corev1.ServiceType) corev1.ServiceType {
	if t == "" {
		return corev1.ServiceTypeClusterIP
	}
	return t
}

// absent is a kind that the cluster does not serve.
type absent struct{}

func (absent) Served() bool { return false }

func (absent) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return &meta.NoKindMatchError{GroupKind: routeKind.GroupKind()}
}

func (absent) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return &meta.NoKindMatchError{GroupKind: routeKind.GroupKind()}
}

// silent is a kind whose API does not answer.
type silent struct{ absent }

func (silent) Served() bool { return true }

func (silent) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the API did not answer so far")
}

func TestAnAPIThatDoesNotAnswerLeavesAllAsItIs(t *testing.T) {
	w := newRouteWorld(ownRoute("http", admittedAs("http.example.com")))
	w.listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 2, IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 443)}}
	o := w.passes(t, 1, interceptor.Funcs{}, func(r *Reconciler) { r.kinds[routeKind] = silent{} })
	if o.err == nil || !strings.Contains(o.err.Error(), "did not answer") {
		t.Errorf("got error %v, so that it is not tried again", o.err)
	}
	if diff := cmp.Diff([]string{"10.0.0.9map[http:443]"}, o.addresses()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if len(o.routes) != 1 || o.listener.Status.ObservedGeneration != 2 || len(o.told) > 0 {
		t.Errorf("got routes %v, status %v, events %v", o.routes, o.listener.Status, o.told)
	}
}

func TestAListenerThatIsNotExposedByRoutesNeedsNoAnswerOfTheirAPI(t *testing.T) {
	o := newWorld(listenersv1alpha1.ServiceTypeClusterIP).passes(t, 1, interceptor.Funcs{}, func(r *Reconciler) { r.kinds[routeKind] = silent{} })
	if o.err != nil || o.condition(listenersv1alpha1.ListenerReady).Status != metav1.ConditionTrue {
		t.Errorf("got error %v and status %v", o.err, o.listener.Status)
	}
}

// A cache that lags behind must not make a foreign Route look like none.
func TestForeignRouteThatTheCacheLacksStaysUntouched(t *testing.T) {
	foreign := &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-http"}, Spec: routev1.RouteSpec{Host: "theirs.example.com"}}
	o := newRouteWorld(foreign).passes(t, 1, interceptor.Funcs{}, func(r *Reconciler) {
		r.kinds[routeKind] = optional{Reader: fakeclient.New(t, interceptor.Funcs{}), served: true}
	})
	if o.err != nil || o.condition(listenersv1alpha1.ListenerAccepted).Reason != listenersv1alpha1.ReasonForeignRoute {
		t.Errorf("got error %v and status %v", o.err, o.listener.Status)
	}
	if diff := cmp.Diff(foreign, o.routes["web-http"], cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
		t.Errorf("route (-before +after):\n%s", diff)
	}
}

// counting makes the n-th write fail, counted from 0, and notes all of them.
func counting(n int, err error) (interceptor.Funcs, *[]string) {
	writes := &[]string{}
	fails := func(what string) bool { *writes = append(*writes, what); return len(*writes) == n+1 }
	return interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if fails(fmt.Sprintf("apply %s", o.(interface{ GetKind() string }).GetKind())) {
				return err
			}
			return c.Apply(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if fails("delete " + o.GetName()) {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			if fails("apply status") {
				return err
			}
			return c.SubResource(sub).Apply(ctx, o, options...)
		},
	}, writes
}

func TestEveryWriteAboutRoutesThatFailsIsMadeUpFor(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		fresh func() *world
		// writes of a pass in which none fails. What was before goes last.
		writes []string
	}{
		"a Listener that is new": {
			fresh:  func() *world { return newRouteWorld() },
			writes: []string{"apply Service", "apply Route", "apply Route", "apply status"},
		},
		"from node ports to Routes": {
			fresh: func() *world {
				return newRouteWorld(ownRoute("admin", admittedAs("a.example.com")), ownRoute("http", admittedAs("h.example.com")), ownRoute("old")).but(asNodePort)
			},
			writes: []string{"apply Service", "apply Route", "apply Route", "apply status", "delete web-old", "apply Service"},
		},
		"from Routes to node ports": {
			fresh: func() *world {
				return newRouteWorld(ownRoute("http", admittedAs("h.example.com"))).but(func(w *world) {
					asNodePort(w)
					w.class.Spec.ServiceType, w.class.Spec.Route = listenersv1alpha1.ServiceTypeNodePort, nil
				})
			},
			writes: []string{"apply Service", "apply status", "delete web-http"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			intercept, writes := counting(-1, nil)
			want := tc.fresh().passes(t, 1, intercept, nil)
			if diff := cmp.Diff(tc.writes, *writes); diff != "" || want.err != nil {
				t.Fatalf("error %v, writes (-want +got):\n%s", want.err, diff)
			}
			for n := range tc.writes {
				intercept, _ := counting(n, broken)
				if o := tc.fresh().passes(t, 1, intercept, nil); !errors.Is(o.err, broken) {
					t.Errorf("write %d failing: got error %v", n, o.err)
				}
				intercept, _ = counting(n, broken)
				got := tc.fresh().passes(t, 2, intercept, nil)
				ignore := cmp.Options{
					cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields"), cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"),
				}
				if got.err != nil {
					t.Errorf("write %d failing: error of the second pass: %v", n, got.err)
				}
				if diff := cmp.Diff([]any{want.listener, want.service, want.routes}, []any{got.listener, got.service, got.routes}, ignore); diff != "" {
					t.Errorf("write %d failing (-want +got):\n%s", n, diff)
				}
			}
		})
	}
}

func TestPassesAboutRoutesComeToRest(t *testing.T) {
	for name, fresh := range map[string]func() *world{
		"waiting":    func() *world { return newRouteWorld(ownRoute("http"), ownRoute("admin")) },
		"in between": func() *world { return newRouteWorld(ownRoute("http"), ownRoute("admin")).but(asNodePort) },
		"admitted": func() *world {
			return newRouteWorld(ownRoute("http", admittedAs("h")), ownRoute("admin", admittedAs("a"))).but(asNodePort)
		},
		"with a Route that does not go": func() *world { return newRouteWorld(ownRoute("http"), ownRoute("admin"), leaving(ownRoute("old"))) },
		"after Routes":                  func() *world { return newRouteWorld(ownRoute("http")).but(func(w *world) { w.class.Spec.Route = nil }) },
	} {
		intercept, writes := counting(-1, nil)
		first := fresh().passes(t, 2, intercept, nil)
		count := len(*writes)
		*writes = nil
		second := fresh().passes(t, 4, intercept, nil)
		if len(*writes) != count || len(first.told) != len(second.told) {
			t.Errorf("%s: %d writes in two passes, and %q in two more; events %q and %q", name, count, (*writes)[count:], first.told, second.told)
		}
	}
}

func TestRejectedRouteIsToldAndTriedAgain(t *testing.T) {
	for words, want := range map[string]string{
		"spec.tls.externalCertificate: Not found":                                             "externalCertificate: Not found",
		"spec.host: Forbidden: you do not have permission to set the host field of the route": "bind its ServiceAccount to the ClusterRole listener-operator-custom-host",
	} {
		rejection := apierrors.NewInvalid(routeKind.GroupKind(), "web-admin", nil)
		rejection.ErrStatus.Message = words
		intercept, writes := counting(1, rejection)
		o := newRouteWorld().passes(t, 1, intercept, nil)
		if !apierrors.IsInvalid(o.err) {
			t.Errorf("got %v, want the rejection, so that the pass is repeated", o.err)
		}
		accepted := o.condition(listenersv1alpha1.ListenerAccepted)
		if accepted.Reason != listenersv1alpha1.ReasonRouteRejected || !strings.Contains(accepted.Message, "the API server rejects Route shop/web-admin: "+words) ||
			!strings.Contains(accepted.Message, want) {
			t.Errorf("got condition %v", accepted)
		}
		if len(o.routes) != 1 || o.routes["web-http"] == nil {
			t.Errorf("writes %v: one bad Route keeps the others from being made: %v", *writes, o.routes)
		}
		if len(o.told) != 1 || !strings.HasPrefix(o.told[0], "Warning RouteRejected") {
			t.Errorf("got events %q", o.told)
		}
	}
}

// overlap10s is a Listener whose way in changes, and a clock that stands still.
type overlap10s struct {
	*Reconciler
	t      *testing.T
	now    *clocktesting.FakePassiveClock
	writes *[]string
}

func (w *world) overlapping(t *testing.T) *overlap10s {
	t.Helper()
	intercept, writes := counting(-1, nil)
	c := fakeclient.NewWithBackends(t, w.backends, intercept, w.objects()...)
	o := &overlap10s{Reconciler: newReconciler(w.backends, c, c, events.NewFakeRecorder(100)), t: t, now: clocktesting.NewFakePassiveClock(time.Now()), writes: writes}
	o.clock, o.overlap = o.now, 10*time.Second
	return o
}

// after lets time go by, and returns in how long the pass then wants to be repeated, and what it wrote.
func (o *overlap10s) after(d time.Duration) (again time.Duration, writes []string) {
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
	return result.RequeueAfter, (*o.writes)[before:]
}

// wants checks in how long the pass after d is repeated.
func (o *overlap10s) wants(d, again time.Duration) {
	o.t.Helper()
	if got, _ := o.after(d); got != again {
		o.t.Errorf("the pass is repeated after %s, want %s", got, again)
	}
}

// withdraws checks that the pass after d takes away what was before, and that nothing is left to do or to remember.
func (o *overlap10s) withdraws(d time.Duration) {
	o.t.Helper()
	if again, writes := o.after(d); again != 0 || len(writes) == 0 {
		o.t.Errorf("at the end: %s to go, writes %q", again, writes)
	}
	if again, writes := o.after(0); again != 0 || len(writes) > 0 || len(o.stood) > 0 {
		o.t.Errorf("afterwards: %s to go, writes %q, remembered %v", again, writes, o.stood)
	}
}

// toRoutes is a Listener whose Routes are admitted, with node ports of before.
func toRoutes() *world {
	return newRouteWorld(ownRoute("admin", admittedAs("a.example.com")), ownRoute("http", admittedAs("h.example.com"))).but(asNodePort)
}

// Nothing that can be watched shows when a node port is open, or a router has reloaded.
func TestWhatWasBeforeOverlapsWithWhatIsNew(t *testing.T) {
	for name, fresh := range map[string]func() *world{
		"node ports": toRoutes,
		"Routes": func() *world {
			return newRouteWorld(ownRoute("http", admittedAs("h.example.com"))).but(func(w *world) {
				asNodePort(w)
				w.class.Spec.ServiceType, w.class.Spec.Route = listenersv1alpha1.ServiceTypeNodePort, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := fresh().overlapping(t)
			o.wants(0, 10*time.Second)
			o.wants(9*time.Second, time.Second)
			o.withdraws(time.Second)
		})
	}
}

func TestARestartLetsWhatWasBeforeStayAnew(t *testing.T) {
	o := toRoutes().overlapping(t)
	o.wants(0, 10*time.Second)
	o.stood = map[types.UID]standing{}
	o.wants(9*time.Second, 10*time.Second)
	o.withdraws(10 * time.Second)
}

func TestAWayThatIsWantedStays(t *testing.T) {
	o := toRoutes().but(func(w *world) { w.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort }).overlapping(t)
	o.wants(0, 0)
}

// What is new may fail before all clients know of it.
func TestWhatWasBeforeStaysLongerWhenTheNewAddressesFail(t *testing.T) {
	o := toRoutes().overlapping(t)
	o.wants(0, 10*time.Second)
	judge := func(by routev1.RouteIngress) {
		t.Helper()
		route := &routev1.Route{}
		if err := o.Client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "web-http"}, route); err != nil {
			t.Fatal(err)
		}
		route.Status.Ingress = []routev1.RouteIngress{by}
		if err := o.Client.Update(t.Context(), route); err != nil {
			t.Fatal(err)
		}
	}
	judge(rejectedAs("HostAlreadyClaimed", "taken"))
	o.wants(9*time.Second, 0) // which only a change ends
	judge(admittedAs("h.example.com"))
	o.wants(9*time.Second, 10*time.Second)
	o.withdraws(10 * time.Second)
}

// TestListenersThatWereDeletedMeanwhileAreForgotten when another one begins to wait, and those that still wait are not.
func TestListenersThatWereDeletedMeanwhileAreForgotten(t *testing.T) {
	o := toRoutes().overlapping(t)
	o.stood["waiting"] = standing{time: o.now.Now().Add(-9 * time.Second)}
	o.stood["deleted"] = standing{time: o.now.Now().Add(-2 * time.Hour)}
	o.wants(0, 10*time.Second)
	if got := slices.Sorted(maps.Keys(o.stood)); !slices.Equal(got, []types.UID{"listener-uid", "waiting"}) {
		t.Errorf("remembered %v", got)
	}
}

// TestANamesakeOfARouteIsNotDeleted that was made since the cache saw the Listener's own.
func TestANamesakeOfARouteIsNotDeleted(t *testing.T) {
	var deleted []client.DeleteOption
	o := newRouteWorld(ownRoute("old")).passes(t, 1, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			deleted = options
			return nil
		},
	}, nil)
	if want := []client.DeleteOption{client.Preconditions{UID: new(types.UID("uid-of-old"))}}; o.err != nil || !cmp.Equal(want, deleted) {
		t.Errorf("deleted with %v (%v), want %v", deleted, o.err, want)
	}
}

// A cache that lags behind must not open again what has just been closed.
func TestANodePortIsNotOpenedAgain(t *testing.T) {
	var sent []string
	o := newRouteWorld().but(asNodePort).passes(t, 1, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if u, ok := o.(client.Object); ok && u.GetObjectKind().GroupVersionKind().Kind == "Service" {
				sent = append(sent, u.GetResourceVersion())
			}
			return c.Apply(ctx, o, options...)
		},
	}, nil)
	if o.err != nil || len(sent) != 1 || sent[0] == "" {
		t.Errorf("error %v: the Service was applied with resource versions %q, want one", o.err, sent)
	}
}

func TestPodsOfAListenersOwnClaimNameItsHosts(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: key.Name},
			}}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	for name, tc := range map[string]struct {
		owner string
		pods  []client.Object
		want  string // a host; else a part of the message
	}{
		"its Pod":                          {owner: "PersistentVolumeClaim", pods: []client.Object{pod("web-4", nil)}, want: "4.example.com"},
		"its Pod next to one that leaves":  {owner: "PersistentVolumeClaim", pods: []client.Object{pod("web-4", nil), leaving(pod("web-3", nil))}, want: "4.example.com"},
		"its Pod next to one that is done": {owner: "PersistentVolume", pods: []client.Object{pod("web-4", nil), pod("web-3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, want: "4.example.com"},
		"a Pod that leaves, alone":         {owner: "PersistentVolumeClaim", pods: []client.Object{leaving(pod("web-4", nil))}, want: "4.example.com"},
		"two Pods":                         {owner: "PersistentVolumeClaim", pods: []client.Object{pod("web-4", nil), pod("web-3", nil)}, want: "is mounted by several (web-3, web-4)"},
		"a user's Listener":                {owner: "KafkaCluster", pods: []client.Object{pod("web-4", nil)}, want: "was not made for one"},
	} {
		w := newRouteWorld(tc.pods...).but(func(w *world) {
			w.class.Spec.Route = &listenersv1alpha1.RouteExposure{HostTemplate: "{podIndex}.example.com", Ports: []string{"http"}}
			w.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: tc.owner, Name: key.Name, UID: "claim-uid"}}
		})
		o := w.passes(t, 1, interceptor.Funcs{}, nil)
		got := o.condition(listenersv1alpha1.ListenerAccepted).Message
		if route := o.routes["web-http"]; route != nil {
			got = route.Spec.Host
		}
		if o.err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q (%v)", name, got, tc.want, o.err)
		}
	}
}

// The API server refuses to change some of them, and the traffic of clients depends on the others.
func TestAWayThatStaysOpenKeepsItsSettings(t *testing.T) {
	w := newRouteWorld().but(func(w *world) {
		w.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		w.service.Spec.LoadBalancerClass = ptr.To("example.com/balancer")
		w.service.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)
		w.service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	service, err := decide(&observed{listener: w.listener, class: w.class, backend: route.Backend{}, service: w.service})
	if err != nil {
		t.Fatal(err)
	}
	is, was := service.Spec, w.service.Spec
	got := []any{is.Type, is.LoadBalancerClass, is.AllocateLoadBalancerNodePorts, is.ExternalTrafficPolicy}
	want := []any{&was.Type, was.LoadBalancerClass, was.AllocateLoadBalancerNodePorts, &was.ExternalTrafficPolicy}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("type, class, node ports and traffic policy (-want +got):\n%s", diff)
	}
}
