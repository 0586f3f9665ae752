//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// awaitAnswerAt waits until a request through a router gets the expected answer. HAProxy follows endpoints with a delay
// that no watch shows.
func (s *scenario) awaitAnswerAt(r *testRouter, url string, want answer) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		got, err := r.request(ctx, url)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("from outside through router %s, %s (-want +got):\n%s", r.name, url, diff)
		}
		return err
	})
}

// checkFiles returns an error unless the test server, which is reached at the first of these addresses through the
// router, reads exactly these in its volume "listener".
func (r *testRouter) checkFiles(ctx context.Context, addresses ...listenersv1alpha1.IngressAddress) error {
	port := slices.Sorted(maps.Keys(addresses[0].Ports))[0]
	a, err := r.request(ctx, urlOf(addresses[0], port, "/files"))
	if err != nil {
		return err
	}
	if err := checkFiles(a.Body, addresses...); err != nil {
		return fmt.Errorf("status %d: %w", a.Status, err)
	}
	return nil
}

// awaitFiles waits until the files are those of these addresses.
func (s *scenario) awaitFiles(r *testRouter, addresses ...listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.eventually(func(ctx context.Context) error { return r.checkFiles(ctx, addresses...) })
}

// awaitHosts waits until a Listener has the addresses of these hosts, in this order.
func (s *scenario) awaitHosts(name string, hosts ...string) *listenersv1alpha1.Listener {
	s.Helper()
	return mustAwait(s, &listenersv1alpha1.Listener{}, s.key(name), func(l *listenersv1alpha1.Listener) bool {
		return l.Status != nil && slices.Equal(hostsOf(l), hosts)
	})
}

func hostsOf(l *listenersv1alpha1.Listener) []string {
	var hosts []string
	for _, a := range l.Status.IngressAddresses {
		hosts = append(hosts, a.Address)
	}
	return hosts
}

// hostHash returns what the placeholder {hash} stands for. listener is <namespace>/<name of the Listener>/<port>.
func hostHash(listener string) string {
	sum := sha256.Sum256([]byte(listener))
	return hex.EncodeToString(sum[:8])
}

// hostAddress returns the address of a host with one port.
func hostAddress(host, port string, number int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{
		Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number},
	}
}

// Routes are installed and removed on a running cluster, and the operator follows without a restart.
func TestRoutesAreUsedWhileTheyAreServed(t *testing.T) {
	s := newScenario(t)
	prepareRouters(t)
	crds.Remove(t, api, crds.Routes) // an earlier run may have left them
	operator := s.operatorPods()
	class := s.createClass(routedByPod())
	s.create(pod("web", byClass(class.Name)))
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNotServed)
	t.Logf("condition without Routes: %s", message)

	served := time.Now()
	serveRoutes(t)
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForRouter)
	t.Logf("the Listener waits for a router %s after Routes are served", time.Since(served).Round(time.Millisecond))
	r := startRouter(t, testRouter{name: "first", domain: thirdDomain, node: 3})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	s.awaitReady("web")
	host := "web." + s.namespace + "." + thirdDomain
	s.awaitHosts("web-listener", host)
	s.awaitAnswerAt(r, "http://"+host+"/whoami", answer{Status: 200, Body: "web"})
	if err := r.checkFiles(s.timeoutContext(), hostAddress(host, "http", 80)); err != nil {
		t.Error(err)
	}

	crds.Remove(t, api, crds.Routes)
	message = s.awaitCondition("web-listener", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNotServed)
	t.Logf("condition after the removal of Routes: %s", message)
	if diff := cmp.Diff(operator, s.operatorPods()); diff != "" {
		t.Errorf("the operator was restarted (-before +after):\n%s", diff)
	}
}

// As brokers need it, TLS is terminated by each replica, and the requested host name selects the replica.
func TestEachReplicaHasARouteOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	s.createAuthoritySecret()
	class := s.createClass(routed(listenersv1alpha1.RouteExposure{SubdomainTemplate: "{podName}.{namespace}", Ports: []string{"https"}}))
	set := statefulSet("broker", 3, byClass(class.Name))
	addTLS(&set.Spec.Template.Spec)
	s.create(set)
	for i := range 3 {
		name := fmt.Sprintf("broker-%d", i)
		p := s.awaitReady(name)
		own := hostAddress(fmt.Sprintf("%s.%s.%s", name, s.namespace, appsDomain), "https", 443)
		entry := s.awaitPodListener(p, "listener")
		if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, entry.IngressAddresses); diff != "" || entry.Scope != listenersv1alpha1.ListenerScopeCluster {
			t.Errorf("addresses of %s, with scope %s (-want +got):\n%s", name, entry.Scope, diff)
		}
		s.awaitAnswerAt(openshift.apps, urlOf(own, "https", "/whoami"), answer{Status: 200, Body: name, Subject: name, Names: []string{own.Address}})
		if err := openshift.apps.checkFiles(s.timeoutContext(), own); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.checkOnlyRouterAccess(p, "listener-"+name)
	}
}

// checkOnlyRouterAccess fails the test if a client outside the cluster can reach a Pod or its Service other than
// through the router.
func (s *scenario) checkOnlyRouterAccess(p *corev1.Pod, service string) {
	s.Helper()
	found := mustGet(s, &corev1.Service{}, s.key(service))
	for _, address := range []string{p.Status.PodIP, found.Spec.ClusterIP} {
		if conn, err := testbed.ClientDial(s.ctx, "tcp", net.JoinHostPort(address, "8443")); err == nil {
			_ = conn.Close()
			s.Errorf("the client reaches %s at %s, so it is not outside the cluster", p.Name, address)
		}
	}
	for _, p := range found.Spec.Ports {
		if p.NodePort != 0 {
			s.Errorf("Service %s has the node port %d, so it is reachable without the router", service, p.NodePort)
		}
	}
}

// A Pod has one volume for each kind of TLS termination.
func TestTLSTerminationFollowsTheClass(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	s.createAuthoritySecret()
	const customDomain = "shop.example.test"
	custom := "web-edge." + s.namespace + "." + customDomain
	pair, err := openshift.authority.Issue(pki.Request{CommonName: "own", DNSNames: []string{custom}})
	s.must(err)
	s.create(tlsSecret("own", pair.Cert, pair.Key))
	s.allowRouterToRead("own")
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{
		"none": routed(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationNone, SubdomainTemplate: "{listener}-{hash}", Ports: []string{"http"},
		}),
		"edge": routed(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationEdge, HostTemplate: "{listener}.{namespace}." + customDomain, Ports: []string{"http"},
			CertificateSecretName: "own", InsecureEdgeTerminationPolicy: listenersv1alpha1.RouteInsecurePolicyRedirect,
		}),
		"reencrypt": routed(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationReencrypt, SubdomainTemplate: "{listener}-{hash}", Ports: []string{"https"},
			DestinationCACertificate: string(openshift.authority.Cert), InsecureEdgeTerminationPolicy: listenersv1alpha1.RouteInsecurePolicyAllow,
		}),
		// Neither the Pod nor the router serves TLS on the port.
		"mistaken": routed(listenersv1alpha1.RouteExposure{SubdomainTemplate: "{listener}.{namespace}", Ports: []string{"http"}}),
		// OpenShift generates the host: <name of the Route>-<namespace>.
		"chosen": routed(listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationEdge, Ports: []string{"http"}}),
	})
	var volumes []corev1.Volume
	for volume, class := range classes {
		volumes = append(volumes, objects.EphemeralVolume(volume, byClass(class.Name)))
	}
	p := podWith("web", volumes...)
	addTLS(&p.Spec)
	s.create(p)
	p = s.awaitReady("web")

	ofRouter := []string{"*." + appsDomain}
	mistaken := s.awaitPodListener(p, "mistaken").IngressAddresses[0]
	s.eventually(func(ctx context.Context) error {
		_, err := openshift.apps.request(ctx, urlOf(mistaken, "http", "/whoami"))
		if err != nil && strings.Contains(err.Error(), "HTTP response to HTTPS client") {
			return nil
		}
		return fmt.Errorf("TLS passed through to a port without TLS: error is %w", err)
	})
	for volume, want := range map[string]struct {
		address listenersv1alpha1.IngressAddress
		answers map[string]answer // by scheme
	}{
		"none": {hostAddress("web-none-"+hostHash(s.namespace+"/web-none/http")+"."+appsDomain, "http", 80), map[string]answer{
			"http": {Status: 200, Body: "web"}, "https": {Status: 503, Names: ofRouter},
		}},
		"edge": {hostAddress(custom, "http", 443), map[string]answer{
			"https": {Status: 200, Body: "web", Subject: "own", Names: []string{custom}}, "http": {Status: 302, Location: "https://" + custom + "/whoami"},
		}},
		"reencrypt": {hostAddress("web-reencrypt-"+hostHash(s.namespace+"/web-reencrypt/https")+"."+appsDomain, "https", 443), map[string]answer{
			"https": {Status: 200, Body: "web", Names: ofRouter}, "http": {Status: 200, Body: "web"},
		}},
		"chosen": {hostAddress("web-chosen-http-"+s.namespace+"."+appsDomain, "http", 443), map[string]answer{
			"https": {Status: 200, Body: "web", Names: ofRouter}, "http": {Status: 503},
		}},
	} {
		entry := s.awaitPodListener(p, volume)
		check.Equal(t, "addresses of volume "+volume, []listenersv1alpha1.IngressAddress{want.address}, entry.IngressAddresses)
		for scheme, answer := range want.answers {
			s.awaitAnswerAt(openshift.apps, scheme+"://"+want.address.Address+"/whoami", answer)
		}
	}
}

// Another Route has the host. Condition and events have the router's message, and the Pod starts as soon as the host is
// free.
func TestAPodWaitsForARejectedRoute(t *testing.T) {
	t.Parallel()
	s, other := newScenario(t), newScenario(t)
	s.ensureRouters()
	host := "web-listener." + s.namespace + "." + appsDomain
	first := other.takeHost(host)
	class := s.createClass(routedAt("{listener}.{namespace}." + appsDomain))
	s.create(pod("web", byClass(class.Name)))
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonRouteNotAdmitted)
	words := "HostAlreadyClaimed: a route in another namespace holds " + host + " and is older than web-listener-http"
	if !strings.Contains(message, words) {
		t.Errorf("the condition is %q, and lacks the router's message %q", message, words)
	}
	s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress, words)
	s.awaitEvent("Listener", "web-listener", listenersv1alpha1.ReasonRouteNotAdmitted, words)
	freed := time.Now()
	other.remove(first)
	s.awaitReady("web")
	t.Logf("ready %s after the other Route was deleted", time.Since(freed).Round(time.Millisecond))
	s.awaitAnswerAt(openshift.apps, "http://"+host+"/whoami", answer{Status: 200, Body: "web"})
}

// takeHost creates a Route with a host, and waits until it is admitted, and until new Routes have a later creation
// timestamp. Timestamps have a resolution of one second, and of two Routes with the same one either may get the host.
func (s *scenario) takeHost(host string) *routev1.Route {
	s.Helper()
	route := &routev1.Route{
		ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: routev1.RouteSpec{Host: host, To: routev1.RouteTargetReference{Kind: "Service", Name: "web"}},
	}
	s.create(route)
	mustAwait(s, &routev1.Route{}, s.key(route.Name), func(r *routev1.Route) bool { return len(r.Status.Ingress) > 0 })
	s.eventually(func(ctx context.Context) error {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "probe"}}
		if err := api.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if !probe.CreationTimestamp.After(route.CreationTimestamp.Time) {
			return errors.New("new objects still have the same creation timestamp")
		}
		return nil
	})
	return route
}

// The host in the class changes, the router is deleted, and another one is created.
func TestFilesFollowTheHostAndTheRouter(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	shard := map[string]string{"scenario": s.namespace}
	third := startRouter(t, testRouter{name: "third", domain: thirdDomain, node: 3, shard: shard})
	t.Cleanup(func() { _ = third.stop() })
	spec := routedByPod()
	spec.Route.Labels, spec.Route.Routers = shard, []string{"third"}
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	p := s.awaitReady("web")
	host := "web." + s.namespace + "." + thirdDomain
	s.awaitHosts("web-listener", host)
	s.awaitFiles(third, hostAddress(host, "http", 80))

	s.patch(class, func() { class.Spec.Route.SubdomainTemplate = "new.{podName}.{namespace}" })
	changed := time.Now()
	moved := "new.web." + s.namespace + "." + thirdDomain
	s.awaitHosts("web-listener", moved)
	s.awaitFiles(third, hostAddress(moved, "http", 80))
	t.Logf("the files were updated after %s", time.Since(changed).Round(time.Millisecond))
	s.awaitAnswerAt(third, "http://"+host+"/whoami", answer{Status: 503})

	s.patch(class, func() {
		class.Spec.Route.SubdomainTemplate, class.Spec.Route.HostTemplate = "", "own.{podName}.{namespace}.example.test"
	})
	own := "own.web." + s.namespace + ".example.test"
	s.awaitHosts("web-listener", own)
	s.awaitFiles(third, hostAddress(own, "http", 80))

	// The status entries of a stopped router remain until OpenShift removes them.
	s.must(third.stop())
	s.awaitHosts("web-listener", own)
	third.removeFromRoutes(s)
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForRouter)
	t.Logf("condition without a router: %s", message)
	s.awaitHosts("web-listener")

	s.patch(class, func() {
		class.Spec.Route.HostTemplate, class.Spec.Route.SubdomainTemplate = "", "{podName}.{namespace}"
	})
	fourth := startRouter(t, testRouter{name: "third", domain: "fourth.example.test", node: 3, shard: shard})
	t.Cleanup(func() { _ = fourth.stop() })
	back := "web." + s.namespace + ".fourth.example.test"
	s.awaitHosts("web-listener", back)
	s.awaitFiles(fourth, hostAddress(back, "http", 80))
	s.checkNotRestarted(p)
}

// Two routers admit the same Route, each with its own host.
func TestTheClassSelectsTheRouters(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	spec := routedByPod()
	spec.Route.Labels = internalShard
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	s.awaitReady("web")
	apps, internal := "web."+s.namespace+"."+appsDomain, "web."+s.namespace+"."+internalDomain
	l := s.awaitListener("web-listener", 2)
	if got := slices.Sorted(slices.Values(hostsOf(l))); !slices.Equal(got, []string{apps, internal}) {
		t.Errorf("hosts of a class that names no routers: %v", got)
	}
	for _, routers := range [][]string{{"internal", "default"}, {"default", "internal"}, {"internal"}} {
		s.patch(class, func() { class.Spec.Route.Routers = routers })
		var hosts []string
		var addresses []listenersv1alpha1.IngressAddress
		for _, r := range routers {
			host := map[string]string{"default": apps, "internal": internal}[r]
			hosts, addresses = append(hosts, host), append(addresses, hostAddress(host, "http", 80))
		}
		s.awaitHosts("web-listener", hosts...)
		s.awaitFiles(map[string]*testRouter{"default": openshift.apps, "internal": openshift.internal}[routers[0]], addresses...)
	}
	s.awaitAnswerAt(openshift.apps, "http://"+apps+"/whoami", answer{Status: 200, Body: "web"})
	s.awaitAnswerAt(openshift.internal, "http://"+internal+"/whoami", answer{Status: 200, Body: "web"})
	s.awaitAnswerAt(openshift.internal, "http://"+apps+"/whoami", answer{Status: 503})

	// A Listener waits if no router of the class admits its Route, although another router serves it.
	s.patch(class, func() { class.Spec.Route.Labels = map[string]string{"type": "other"} })
	mustAwait(s, &routev1.Route{}, s.key("web-listener-http"), func(r *routev1.Route) bool { return r.Labels["type"] == "other" })
	openshift.internal.removeFromRoutes(s)
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForRouter)
	t.Logf("condition outside of the shard: %s", message)
}

// A condition of the Listener says what has to be fixed in the class or in the Listener.
func TestAnInvalidRouteIsReported(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	tcp := []listenersv1alpha1.ListenerPort{port("http", 8080, corev1.ProtocolTCP)}
	both := append(slices.Clone(tcp), port("https", 8443, corev1.ProtocolTCP))
	const accepted, ready = listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady
	s.create(tlsSecret("malformed", []byte("malformed-certificate"), []byte("malformed-key")))
	for _, secret := range []string{"missing", "malformed"} {
		s.allowRouterToRead(secret)
	}
	edge := func(secret string) listenersv1alpha1.RouteExposure {
		return listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationEdge, CertificateSecretName: secret}
	}
	for name, tc := range map[string]struct {
		route     listenersv1alpha1.RouteExposure
		ports     []listenersv1alpha1.ListenerPort
		condition string
		reason    string
		words     string
	}{
		"invalid":   {listenersv1alpha1.RouteExposure{SubdomainTemplate: "-{listener}.{namespace}"}, tcp, accepted, listenersv1alpha1.ReasonInvalidHost, "is not a host name"},
		"duplicate": {listenersv1alpha1.RouteExposure{SubdomainTemplate: "{listener}.{namespace}"}, both, accepted, listenersv1alpha1.ReasonInvalidHost, "{port}"},
		"pod":       {listenersv1alpha1.RouteExposure{SubdomainTemplate: "{podName}.{namespace}"}, tcp, accepted, listenersv1alpha1.ReasonNoSinglePod, "refers to the Pod"},
		"udp": {
			listenersv1alpha1.RouteExposure{}, []listenersv1alpha1.ListenerPort{port("game", 9090, corev1.ProtocolUDP)}, accepted,
			listenersv1alpha1.ReasonNoRoutablePorts, "TCP",
		},
		"total": {
			listenersv1alpha1.RouteExposure{HostTemplate: listenersv1alpha1.HostTemplate(strings.Repeat("{className}.", 18) + "{listener}.{namespace}")}, tcp, accepted,
			listenersv1alpha1.ReasonInvalidHost, "must be no more than 253",
		},
		"wildcard": {
			listenersv1alpha1.RouteExposure{HostTemplate: "{listener}.{namespace}.test", WildcardPolicy: listenersv1alpha1.RouteWildcardPolicySubdomain}, tcp, ready,
			listenersv1alpha1.ReasonRouteNotAdmitted, `router "default": RouteNotAdmitted: wildcard routes are not allowed`,
		},
		"missing": {
			edge("missing"), tcp, ready, listenersv1alpha1.ReasonRouteNotAdmitted,
			`ExternalCertificateValidationFailed: spec.tls.externalCertificate: Not found: "secrets \"missing\" not found"`,
		},
		"malformed": {
			edge("malformed"), tcp, ready, listenersv1alpha1.ReasonRouteNotAdmitted,
			"ExtendedValidationFailed: [spec.tls.certificate: Invalid value",
		},
		"unreadable": {
			edge("unreadable"), tcp, accepted, reasons.Rejected("Route"),
			"router serviceaccount does not have permission to get this secret",
		},
	} {
		if name == "missing" && microShift != "" { // the API server looks, too
			tc.condition, tc.reason, tc.words = accepted, reasons.Rejected("Route"), `Not found: "secrets \"missing\" not found"`
		}
		class := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{name: routed(tc.route)})[name]
		s.createListener(name, class.Name, tc.ports...)
		message := s.awaitCondition(name, tc.condition, metav1.ConditionFalse, tc.reason)
		if !strings.Contains(message, tc.words) {
			t.Errorf("%s: the condition is %q, and lacks %q", name, message, tc.words)
		}
		t.Logf("%s: %s", name, message)
	}

	// The Listener becomes ready when the Secret is created, although the router looks at it only when the Route
	// changes.
	pair, err := openshift.authority.Issue(pki.Request{DNSNames: []string{"missing.test"}})
	s.must(err)
	s.create(tlsSecret("missing", pair.Cert, pair.Key))
	s.awaitListener("missing", 1)
	route := mustGet(s, &routev1.Route{}, s.key("missing-http"))
	if route.Annotations[names.AnnotationTouched] == "" && microShift == "" {
		t.Error("the Route was admitted without a change, so the router looks at Secrets by itself")
	}

	unknown := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-unknown"}, Spec: routed(listenersv1alpha1.RouteExposure{HostTemplate: "{node}.test"}),
	}
	if err := api.Create(s.ctx, unknown); err == nil || !strings.Contains(err.Error(), "{podIndex}") {
		t.Errorf("creating a class with an unknown placeholder: error is %v", err)
		_ = api.Delete(s.ctx, unknown)
	}
}

// The names of two Listeners differ only in the part that is truncated.
func TestLongHostNamesAreTruncatedAndStayUnique(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	class := s.createClass(routed(listenersv1alpha1.RouteExposure{
		Termination: listenersv1alpha1.RouteTerminationNone, SubdomainTemplate: "{listener}-{port}-{hash}",
	}))
	long := "a" + strings.Repeat("-long", 11)
	hosts := map[string]bool{}
	for i := range 2 {
		name := long + "-" + strconv.Itoa(i)
		s.createListener(name, class.Name, port("http", 8080, corev1.ProtocolTCP))
		l := s.awaitListener(name, 1)
		host := hostsOf(l)[0]
		if label, domain, _ := strings.Cut(host, "."); len(label) > 63 || domain != appsDomain {
			t.Errorf("Listener %s has the host %s", name, host)
		}
		hosts[host] = true
	}
	if len(hosts) != 2 {
		t.Errorf("two Listeners share a host: %v", hosts)
	}
}

// A Pod has two Listeners whose class derives the host from the Pod. Within a namespace, too, the oldest Route gets the
// host.
func TestTwoListenersCannotShareAHost(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	class := s.createClass(routedByPod())
	host := "web." + s.namespace + "." + appsDomain
	s.create(podWith("web", objects.EphemeralVolume("first", byClass(class.Name)), objects.EphemeralVolume("second", byClass(class.Name))))
	// Either may be the first.
	s.eventually(func(ctx context.Context) error {
		var first, second listenersv1alpha1.Listener
		if err := errors.Join(api.Get(ctx, s.key("web-first"), &first), api.Get(ctx, s.key("web-second"), &second)); err != nil {
			return err
		}
		has, lacks := &first, &second
		if first.Status == nil || second.Status == nil || len(first.Status.IngressAddresses) == 0 {
			has, lacks = lacks, has
		}
		if has.Status == nil || lacks.Status == nil || !slices.Equal(hostsOf(has), []string{host}) || len(hostsOf(lacks)) > 0 {
			return fmt.Errorf("want one at %s: %+v, %+v", host, first.Status, second.Status)
		}
		why := meta.FindStatusCondition(lacks.Status.Conditions, listenersv1alpha1.ListenerAccepted)
		words := fmt.Sprintf("the host is web.%s.*, which Listener %s has already", s.namespace, client.ObjectKeyFromObject(has))
		if why.Reason != listenersv1alpha1.ReasonInvalidHost || !strings.Contains(why.Message, words) {
			return fmt.Errorf("the condition of %s is %s %q, and does not say %q", lacks.Name, why.Reason, why.Message, words)
		}
		return nil
	})
}

// Without the permission to set hosts, classes that leave the host to OpenShift or to the router's domain still work.
func TestOnlyCustomHostsRequirePermission(t *testing.T) {
	s := newScenario(t)
	s.ensureRouters()
	binding := mustGet(s, &rbacv1.ClusterRoleBinding{}, client.ObjectKey{Name: "listener-operator-custom-host"})
	grant := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	s.remove(binding)
	t.Cleanup(func() { _ = client.IgnoreAlreadyExists(api.Create(context.Background(), grant)) })
	const none = listenersv1alpha1.RouteTerminationNone
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{
		"platform":  routed(listenersv1alpha1.RouteExposure{Termination: none}),
		"subdomain": routed(listenersv1alpha1.RouteExposure{Termination: none, SubdomainTemplate: "{listener}.{namespace}"}),
		"own":       routed(listenersv1alpha1.RouteExposure{Termination: none, HostTemplate: "{listener}.{namespace}.example.test"}),
	})
	// The removal of the permission takes effect with a delay, so the first rejected Route is awaited.
	s.createListener("own", classes["own"].Name, port("http", 8080, corev1.ProtocolTCP))
	message := s.awaitCondition("own", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, reasons.Rejected("Route"))
	for _, words := range []string{"spec.host: Forbidden: you do not have permission to set the host field of the route", "listener-operator-custom-host"} {
		if !strings.Contains(message, words) {
			t.Errorf("the condition is %q, and lacks %q", message, words)
		}
	}
	s.createListener("platform", classes["platform"].Name, port("http", 8080, corev1.ProtocolTCP))
	s.awaitHosts("platform", "platform-http-"+s.namespace+"."+appsDomain)
	s.createListener("subdomain", classes["subdomain"].Name, port("http", 8080, corev1.ProtocolTCP))
	s.awaitHosts("subdomain", "subdomain."+s.namespace+"."+appsDomain)

	s.create(grant)
	s.awaitHosts("own", "own."+s.namespace+".example.test")
}
