package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// changing is an exposure while the backend of a Listener changes, or its Routes do.
type changing struct {
	state       *state
	unserved    bool
	addresses   []string
	accepted    string   // reason, Accepted by default
	ready       string   // reason, AddressesAssigned by default
	message     string   // part of the message of Accepted if that is false, or else of Ready
	routes      []string // those of both ports by default
	serviceType corev1.ServiceType
	event       string // part of an event
}

func TestExposureWhileTheBackendChanges(t *testing.T) {
	both := []client.Object{ownRoute("admin", admittedAs("admin.example.com")), ownRoute("http", admittedAs("http.example.com"))}
	rejected := []client.Object{both[0], ownRoute("http", rejectedAs("HostAlreadyClaimed", "route x already exposes it and is older"))}
	nodePorts, hosts := []string{"10.0.0.1map[admin:30081 http:30080]"}, []string{"admin.example.commap[admin:443]", "http.example.commap[http:443]"}
	balanced, onlyAdmin, none := []string{"lb.example.commap[admin:81 http:80]"}, []string{"web-admin"}, []string{}
	previous := func(s *state) {
		s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "x", AddressType: "Hostname", Ports: map[string]int32{}}}}
	}
	published := withPublished(map[string]string{"admin.example.com": "admin", "http.example.com": "http"})
	withBalancer := func(s *state) {
		s.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	}
	balancerClass := func(s *state) { s.class.Spec.ServiceType, s.class.Spec.Route = loadBalancer, nil }
	recreated := ownRoute("http", admittedAs("http.example.com"))
	recreated.Spec.Subdomain = "old"
	for name, tc := range map[string]changing{
		"new Routes":          {state: newRouteState(), ready: "WaitingForRouter", message: "Route shop/web-admin is not admitted yet", event: "Normal WaitingForRouter"},
		"all Routes admitted": {state: newRouteState(both...), addresses: hosts, message: "reachable at admin.example.com and 1 more"},
		"one Route rejected, no published addresses": {
			state: newRouteState(rejected...), ready: "RouteNotAdmitted", message: "route x already exposes it and is older",
			event: `Warning RouteNotAdmitted Route shop/web-http is rejected by router "default": HostAlreadyClaimed: route x`,
		},
		"one Route rejected, published addresses": {
			state: newRouteState(rejected...).change(previous), addresses: hosts[:1], ready: "RouteNotAdmitted",
			message: "reachable at admin.example.com; left out: Route shop/web-http is rejected",
			event:   "Warning RouteNotAdmitted reachable at admin.example.com; left out: Route shop/web-http is rejected",
		},
		"Route of a port that is added": {state: newRouteState(both[0]).change(published), addresses: hosts[:1], ready: "WaitingForRouter"},
		"Routes not served": {
			state: newRouteState().change(previous), unserved: true, routes: none, accepted: "NotServed", ready: "NotAccepted", event: "Warning NotServed",
			message: "ListenerClass some-class requires objects of kind Route, which this cluster does not serve in route.openshift.io/v1",
		},
		"node ports while Routes are not served": {
			state: newRouteState().change(withNodePortService), unserved: true, addresses: nodePorts, serviceType: corev1.ServiceTypeNodePort,
			accepted: "NotServed", ready: "PreviousExposure", message: "use another class", routes: none,
		},
		"node ports while a Route is rejected": {
			state: newRouteState(rejected...).change(withNodePortService), addresses: nodePorts, serviceType: corev1.ServiceTypeNodePort, ready: "PreviousExposure",
			message: "reachable at 10.0.0.1 through the previous exposure, until that of ListenerClass some-class is complete: Route shop/web-http is rejected",
			event:   "Warning RouteNotAdmitted reachable at 10.0.0.1 through the previous exposure",
		},
		"node ports are removed when all Routes are admitted": {state: newRouteState(both...).change(withNodePortService), addresses: hosts},
		"load balancer while a Route is not admitted": {
			state: newRouteState(both[0]).change(withBalancer), addresses: balanced, serviceType: corev1.ServiceTypeLoadBalancer, ready: "PreviousExposure",
		},
		"Routes while there is no load balancer address": {
			state: newRouteState(both...).change(balancerClass).change(published), addresses: hosts, serviceType: corev1.ServiceTypeLoadBalancer, ready: "PreviousExposure",
			message: "through the previous exposure, until that of ListenerClass some-class is complete: Service shop/web has no load balancer address",
		},
		"Routes are deleted when there is a load balancer address": {
			state: newRouteState(both...).change(withBalancer).change(balancerClass), addresses: balanced, serviceType: corev1.ServiceTypeLoadBalancer, routes: none,
		},
		"Route of a removed port is deleted immediately": {
			state:     newRouteState(both...).change(func(s *state) { s.listener.Spec.Ports = s.listener.Spec.Ports[:1] }).with(ownRoute("old")),
			addresses: hosts[:1], routes: onlyAdmin,
		},
		"Routes stay when the class is deleted": {
			state: newRouteState(both...).change(previous).change(func(s *state) { s.class = nil }), addresses: []string{"xmap[]"}, accepted: "ClassNotFound", message: "do not change",
		},
		"Routes stay when the template becomes invalid": {
			state:     newRouteState(both...).change(published).change(func(s *state) { s.class.Spec.Route.HostTemplate = "{podName}.{namespace}" }),
			addresses: hosts, accepted: "NoSinglePod", message: "was not created for a claim",
		},
		"foreign Route": {
			state:    newRouteState(both[0], &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-http"}}),
			accepted: "ForeignRoute", ready: "NotAccepted", message: "Route shop/web-http already exists and has no controller; delete it, or rename the Listener or its port",
		},
		"terminating Service": {state: newRouteState(both...).change(previous).change(func(s *state) { terminating(s.service) }), ready: "ServiceTerminating"},
		"terminating Route":   {state: newRouteState(both[0], terminating(ownRoute("http", admittedAs("http.example.com")))).change(published), addresses: hosts},
		"Route that has to be recreated": {
			state: newRouteState(both[0], recreated).change(previous), addresses: hosts[:1], ready: "WaitingForRouter", routes: onlyAdmin,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.routes == nil {
				tc.routes = []string{"web-admin", "web-http"}
			}
			tc.accepted, tc.ready = cmp.Or(tc.accepted, "Accepted"), cmp.Or(tc.ready, "AddressesAssigned")
			tc.serviceType = cmp.Or(tc.serviceType, corev1.ServiceTypeClusterIP)
			tc.check(t)
		})
	}
}

func (tc changing) check(t *testing.T) {
	t.Helper()
	o := tc.state.reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) {
		if tc.unserved {
			r.reader.Kinds.Readers[routeKind] = unservedKind{}
		}
	})
	check.Must(t, o.err)
	check.Equal(t, "addresses", tc.addresses, o.addresses(), cmpopts.EquateEmpty())
	accepted, ready := o.condition(listenersv1alpha1.ListenerAccepted), o.condition(listenersv1alpha1.ListenerReady)
	if accepted.Reason != tc.accepted || ready.Reason != tc.ready {
		t.Errorf("got reasons %s and %s, want %s and %s", accepted.Reason, ready.Reason, tc.accepted, tc.ready)
	}
	condition := ready
	if accepted.Status == metav1.ConditionFalse {
		condition = accepted
	}
	if !strings.Contains(condition.Message, tc.message) {
		t.Errorf("message is %q, want %q in it", condition.Message, tc.message)
	}
	check.Equal(t, "Routes", tc.routes, slices.Sorted(maps.Keys(o.routes)), cmpopts.EquateEmpty())
	check.Equal(t, "type of the Service", tc.serviceType, o.service.Spec.Type)
	if (o.listener.Status.NodePorts != nil) != strings.HasPrefix(strings.Join(tc.addresses, ""), "10.") {
		t.Errorf("got node ports %v", o.listener.Status.NodePorts)
	}
	if tc.event != "" && !slices.ContainsFunc(o.events, func(e string) bool { return strings.Contains(e, tc.event) }) {
		t.Errorf("no event %q among %q", tc.event, o.events)
	}
}

// Users of the namespace may create objects that the Listener controls, and change those that it has. Certificates are
// issued for published hosts, so none may be published that the class would not give.
func TestHostsThatOthersWroteAreNotPublished(t *testing.T) {
	theirs, ours := ownRoute("http", admittedAs("theirs.example.com")), ownRoute("http", admittedAs("web.example.com"))
	published := withPublished(map[string]string{"web.example.com": "http"})
	withRoutes := func(s *state) { s.class.Spec.Route = &listenersv1alpha1.RouteExposure{} }
	refused := func(s *state) {
		s.class.Spec.Route = &listenersv1alpha1.RouteExposure{HostTemplate: "{podName}.{namespace}"}
	}
	for name, tc := range map[string]struct {
		state     *state
		published bool
		ready     string // reason
	}{
		"of an object that the class has no use for":      {newState(loadBalancer).with(theirs), false, "WaitingForLoadBalancer"},
		"of a previous exposure":                          {newState(loadBalancer).with(theirs).change(published), false, "WaitingForLoadBalancer"},
		"of an object that is being deleted":              {newState(clusterIP).change(withRoutes).with(terminating(theirs.DeepCopy())), false, "ObjectTerminating"},
		"while the class is refused":                      {newState(clusterIP).change(refused).with(theirs), false, "NotAccepted"},
		"but the published one of a previous exposure is": {newState(loadBalancer).with(ours).change(published), true, "PreviousExposure"},
		"but the published one of an object that is being deleted is": {
			newState(clusterIP).change(withRoutes).with(terminating(ours.DeepCopy())).change(published), true, "AddressesAssigned",
		},
	} {
		var want []string
		if tc.published {
			want = []string{"web.example.commap[http:443]"}
		}
		o := tc.state.reconcile(t, 1, interceptor.Funcs{}, nil)
		if diff := gocmp.Diff(want, o.addresses(), cmpopts.EquateEmpty()); diff != "" || o.err != nil {
			t.Errorf("%s: error %v, addresses (-want +got):\n%s", name, o.err, diff)
		}
		if ready := o.condition(listenersv1alpha1.ListenerReady); ready.Reason != tc.ready {
			t.Errorf("%s: the reason is %s: %s", name, ready.Reason, ready.Message)
		}
	}
}

func TestNothingChangesWhileTheRouteAPIDoesNotRespond(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com")))
	s.listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 2, IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 443)}}
	o := s.reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) { r.reader.Kinds.Readers[routeKind] = unresponsiveKind{} })
	if o.err == nil || !strings.Contains(o.err.Error(), "did not respond") {
		t.Errorf("got error %v, want one, so that the reconciliation is retried", o.err)
	}
	check.Equal(t, "addresses", []string{"10.0.0.9map[http:443]"}, o.addresses())
	if len(o.routes) != 1 || o.listener.Status.ObservedGeneration != 2 || len(o.events) > 0 {
		t.Errorf("got routes %v, status %v, events %v", o.routes, o.listener.Status, o.events)
	}
}

func TestListenerWithoutRoutesDoesNotNeedTheRouteAPI(t *testing.T) {
	o := newState(clusterIP).reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) { r.reader.Kinds.Readers[routeKind] = unresponsiveKind{} })
	if o.err != nil || o.condition(listenersv1alpha1.ListenerReady).Status != metav1.ConditionTrue {
		t.Errorf("got error %v and status %v", o.err, o.listener.Status)
	}
}

// The controller must not apply its Route over a foreign one that is missing in a stale cache.
func TestForeignRouteMissingInTheCacheIsNotModified(t *testing.T) {
	foreign := &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-http"}, Spec: routev1.RouteSpec{Host: "theirs.example.com"}}
	o := newRouteState(foreign).reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) {
		r.reader.Kinds.Readers[routeKind] = servedKind{fakeclient.New(t, interceptor.Funcs{}), routeKind.Version}
	})
	if !apierrors.IsConflict(o.err) {
		t.Errorf("got error %v, want the conflict, after which the Listener is reconciled again", o.err)
	}
	check.Equal(t, "Route", foreign, o.routes["web-http"], cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"), cmpopts.IgnoreTypes(metav1.TypeMeta{}))
}

func TestEveryFailedWriteIsRepeatedByTheNextReconciliation(t *testing.T) {
	broken := errors.New("broken")
	toRoutes := func() *state {
		s := nodePortsToRoutes().with(ownRoute("old"))
		ports := map[string]int32{"admin": 30081, "http": 30080}
		s.listener.Status = &listenersv1alpha1.ListenerStatus{NodePorts: ports, IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "10.0.0.1", AddressType: "IP", Ports: ports}}}
		return s
	}
	toAll := func() *state {
		return newRestrictedState().with(ownPolicy()).change(func(s *state) { s.class.Spec.AllowedClients = nil })
	}
	for name, tc := range map[string]struct {
		given func() *state
		// writes are those of a reconciliation without a failure. The previous exposure is removed last.
		writes []string
	}{
		"new ClusterIP Listener":               {func() *state { return newListenerNamed(key.Name, clusterIP) }, []string{"apply Service", "apply status"}},
		"new Listener with restricted clients": {newRestrictedState, []string{"apply NetworkPolicy", "apply Service", "apply status"}},
		"from restricted clients to all":       {toAll, []string{"apply Service", "delete web-allowed-clients", "apply status"}},
		"new Listener with Routes":             {func() *state { return newRouteState() }, []string{"apply Service", "apply Route", "apply Route", "apply status"}},
		"from node ports to Routes":            {toRoutes, []string{"apply Service", "apply Route", "apply Route", "apply status", "delete web-old", "apply Service"}},
		"from Routes to node ports":            {routesToNodePorts, []string{"apply Service", "apply status", "delete web-http"}},
	} {
		t.Run(name, func(t *testing.T) {
			intercept, writes := countWrites(-1, nil)
			want := tc.given().reconcile(t, 1, intercept, nil)
			if diff := gocmp.Diff(tc.writes, *writes); diff != "" || want.err != nil {
				t.Fatalf("error %v, writes (-want +got):\n%s", want.err, diff)
			}
			for n := range tc.writes {
				intercept, _ := countWrites(n, broken)
				if o := tc.given().reconcile(t, 1, intercept, nil); !errors.Is(o.err, broken) {
					t.Errorf("write %d failing: got error %v", n, o.err)
				}
				intercept, _ = countWrites(n, broken)
				got := tc.given().reconcile(t, 2, intercept, nil)
				ignore := gocmp.Options{
					cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields"), cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"),
				}
				if got.err != nil {
					t.Errorf("write %d failing: error of the second reconciliation: %v", n, got.err)
				}
				what := fmt.Sprintf("Listener, Service and Routes after write %d has failed", n)
				check.Equal(t, what, []any{want.listener, want.service, want.routes}, []any{got.listener, got.service, got.routes}, ignore)
			}
		})
	}
}

func TestThirdReconciliationWritesNothing(t *testing.T) {
	for name, given := range map[string]func() *state{
		"Routes not admitted":                      func() *state { return newRouteState(ownRoute("http"), ownRoute("admin")) },
		"node ports while Routes are not admitted": func() *state { return newRouteState(ownRoute("http"), ownRoute("admin")).change(withNodePortService) },
		"node ports after Routes are admitted": func() *state {
			return newRouteState(ownRoute("http", admittedAs("h")), ownRoute("admin", admittedAs("a"))).change(withNodePortService)
		},
		"restricted clients": newRestrictedState,
		"terminating Route":  func() *state { return newRouteState(ownRoute("http"), ownRoute("admin"), terminating(ownRoute("old"))) },
		"remaining Route after a change to the plain Service": func() *state {
			return newRouteState(ownRoute("http")).change(func(s *state) { s.class.Spec.Route = nil })
		},
	} {
		intercept, writes := countWrites(-1, nil)
		first := given().reconcile(t, 2, intercept, nil)
		count := len(*writes)
		*writes = nil
		second := given().reconcile(t, 4, intercept, nil)
		if len(*writes) != count || len(first.events) != len(second.events) {
			t.Errorf("%s: %d writes in two reconciliations, and %q in two more; events %q and %q", name, count, (*writes)[count:], first.events, second.events)
		}
	}
}

// The Route may have been replaced by a foreign one of the same name since the cache was updated.
func TestRouteIsDeletedWithItsUIDAsPrecondition(t *testing.T) {
	var deleted []client.DeleteOption
	o := newRouteState(ownRoute("old")).reconcile(t, 1, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			deleted = options
			return nil
		},
	}, nil)
	if want := []client.DeleteOption{client.Preconditions{UID: new(types.UID("uid-of-old"))}}; o.err != nil || !gocmp.Equal(want, deleted) {
		t.Errorf("deleted with %v (%v), want %v", deleted, o.err, want)
	}
}

// A stale cache must not restore node ports that were just removed.
func TestServiceWithPreviousTypeIsAppliedWithItsResourceVersion(t *testing.T) {
	var sent []string
	o := newRouteState().change(withNodePortService).reconcile(t, 1, interceptor.Funcs{
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

func TestHostsContainTheNameOfTheListenersPod(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
			Spec:       corev1.PodSpec{Volumes: []corev1.Volume{objects.ClaimVolume("listener", key.Name)}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	const claim = "PersistentVolumeClaim"
	pods := func(all ...client.Object) []client.Object { return all }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	recorded := ownRoute("http")
	recorded.Annotations = map[string]string{names.AnnotationPod: "web-4"}
	for name, tc := range map[string]struct {
		owner string
		pods  []client.Object
		want  string // the host, or else part of the message
	}{
		"one Pod":                                   {claim, pods(pod("web-4", nil)), "4.web.shop.example.com"},
		"one Pod and a terminating one":             {claim, pods(pod("web-4", nil), terminating(pod("web-3", nil))), "4.web.shop.example.com"},
		"one Pod and a finished one":                {"PersistentVolume", pods(pod("web-4", nil), pod("web-3", failed)), "4.web.shop.example.com"},
		"only a terminating Pod":                    {claim, pods(terminating(pod("web-4", nil))), "4.web.shop.example.com"},
		"no Pod while it is replaced":               {claim, pods(recorded), "4.web.shop.example.com"},
		"two Pods":                                  {claim, pods(pod("web-4", nil), pod("web-3", nil)), "several Pods (web-3, web-4) mount claim"},
		"Listener that was not created for a claim": {"KafkaCluster", pods(pod("web-4", nil)), "was not created for a claim"},
	} {
		s := newRouteState(tc.pods...).change(func(s *state) {
			s.class.Spec.Route = &listenersv1alpha1.RouteExposure{HostTemplate: "{podIndex}.{listener}.{namespace}.example.com", Ports: []string{"http"}}
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: tc.owner, Name: key.Name, UID: "claim-uid"}}
		})
		o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
		got := o.condition(listenersv1alpha1.ListenerAccepted).Message
		if route := o.routes["web-http"]; route != nil {
			got = route.Spec.Host
		}
		if o.err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q (%v)", name, got, tc.want, o.err)
		}
	}
}

// The API server rejects changes of some of the settings, and the traffic of clients depends on the others.
func TestServiceWithPreviousTypeKeepsItsSettings(t *testing.T) {
	s := newRouteState().change(func(s *state) {
		s.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.service.Spec.LoadBalancerClass = ptr.To("example.com/balancer")
		s.service.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)
		s.service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	p := decide.ServiceFor(&observe.Snapshot{Listener: s.listener, Class: s.class, Backend: route.Backend(), Objects: observe.Objects{Service: s.service}})
	if p.Refusal != nil {
		t.Fatal(p.Refusal)
	}
	is, was := p.Now.Spec, s.service.Spec
	got := []any{is.Type, is.LoadBalancerClass, is.AllocateLoadBalancerNodePorts, is.ExternalTrafficPolicy}
	want := []any{&was.Type, was.LoadBalancerClass, was.AllocateLoadBalancerNodePorts, &was.ExternalTrafficPolicy}
	check.Equal(t, "type, class, node ports and traffic policy", want, got)
}

// routeRejectedForCertificate returns a Route that a router rejected at this time for the Secret with its certificate.
func routeRejectedForCertificate(port string, at time.Time) *routev1.Route {
	since, ingress := metav1.NewTime(at), rejectedAs("ExtendedValidationFailed", "words")
	ingress.Conditions[0].LastTransitionTime = &since
	route := ownRoute(port, ingress)
	route.Spec.TLS = &routev1.TLSConfig{Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"}}
	return route
}

// The router looks at the Secret again when the Route changes. The intervals double up to five minutes.
func TestRejectedRouteIsTouchedUntilItIsAdmitted(t *testing.T) {
	start := time.Unix(1700000000, 0)
	s := newRouteState(routeRejectedForCertificate("admin", start), ownRoute("http", admittedAs("http.example.com"))).change(func(s *state) {
		s.class.Spec.Route.Termination, s.class.Spec.Route.CertificateSecretName = listenersv1alpha1.RouteTerminationEdge, "cert"
	})
	o := s.operator(t, interceptor.Funcs{})
	o.now.SetTime(start)
	touch := func(route string) string { return get[routev1.Route](o, route).Annotations[names.AnnotationTouched] }
	var wait time.Duration
	for _, want := range []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		if wait, _ = o.reconcileAfter(wait); wait == 0 { // it touched the Route, which is an event
			wait, _ = o.reconcileAfter(0)
		}
		if wait != want {
			t.Fatalf("waits %s at %s, want %s", wait, o.now.Now().Sub(start), want)
		}
		touched := touch("web-admin")
		if o.now.Now().Equal(start) != (touched == "") || touched != "" && touched != o.now.Now().UTC().Format(time.RFC3339) {
			t.Errorf("touched %q at %s", touched, o.now.Now())
		}
	}
	check.Equal(t, "time at which an admitted Route was touched", "", touch("web-http"))
	admitted("admin", "admin.example.com")(o)
	if wait, _ := o.reconcileAfter(wait); wait != 0 {
		t.Errorf("waits %s although no Route is rejected", wait)
	}
}

// The cache may be behind: the Route may be deleted, or a new one may have its name.
func TestOnlyTheRejectedObjectIsTouched(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com")))
	var sent []string
	r := s.operator(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(o)
			sent = append(sent, string(data))
			return errors.Join(err, c.Patch(ctx, o, patch, options...))
		},
	})
	gone := ownRoute("gone", admittedAs("gone.example.com"))
	gone.UID = "uid-of-gone"
	if _, err := r.writer.TouchRejected(t.Context(), []exposure.Rejected{{Object: gone}}, metav1.Now()); err != nil {
		t.Errorf("touching a Route that was deleted: %v", err)
	}
	if len(sent) != 1 || !strings.Contains(sent[0], `"uid":"uid-of-gone"`) {
		t.Errorf("sent %q, which is not about the Route with this uid only", sent)
	}
}
