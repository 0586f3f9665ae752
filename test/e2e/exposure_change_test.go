//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/test/cluster/traefik"
)

// A client polls the address in the Listener's status, which answers as long as it is there. The files are updated, and
// what served the old address is deleted.
func TestAClassChangesBetweenRouteAndNodePort(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	class := s.createClass(routedByPod())
	s.create(pod("web", byClass(class.Name)))
	p := s.awaitReady("web")
	host := "web." + s.namespace + "." + appsDomain
	s.awaitHosts("web-listener", host)
	s.awaitAnswerAt(openshift.apps, "http://"+host+"/whoami", answer{Status: 200, Body: "web"})
	client := s.startPolling("web-listener")
	client.awaitAnswerFrom(s, host)

	s.patch(class, func() { class.Spec = unpinned() })
	nodePortAddress := s.awaitHosts("web-listener", testbed.NodeIP(nodeOf(p))).Status.IngressAddresses[0]
	mustAwaitDeleted(s, &routev1.Route{}, s.key("web-listener-http"))
	client.awaitAnswerFrom(s, nodePortAddress.Address)
	s.awaitAnswerAt(openshift.apps, "http://"+host+"/whoami", answer{Status: 503})
	s.awaitFilesAt(nodePortAddress, nodePortAddress)

	s.patch(class, func() { class.Spec = routedByPod() })
	s.awaitHosts("web-listener", host)
	mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool {
		return service.Spec.Type == corev1.ServiceTypeClusterIP && nodePort(service, "http") == 0
	})
	s.awaitFiles(openshift.apps, hostAddress(host, "http", 80))
	s.awaitNoAnswer(nodePortAddress)
	client.awaitAnswerFrom(s, host)
	client.stop()
	s.checkNotRestarted(p)
}

// The new exposure depends on another controller, which takes time. Until it has an address, the Listener keeps the
// previous one.
func TestTheOldAddressStaysUntilTheNewOneIsReady(t *testing.T) {
	t.Parallel()
	s, other := newScenario(t), newScenario(t)
	s.ensureRouters()
	class := s.createClass(routedByPod())
	s.create(pod("web", byClass(class.Name)))
	s.awaitReady("web")
	host := "web." + s.namespace + "." + appsDomain
	s.awaitHosts("web-listener", host)

	s.patch(class, func() {
		class.Spec = loadBalanced()
		class.Spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
	})
	s.awaitPreviousAddress("web-listener", host, "has no load balancer address yet")
	s.awaitReconcile(class, "web-listener")
	s.get(&routev1.Route{}, s.key("web-listener-http"))
	s.awaitPreviousAddress("web-listener", host, "has no load balancer address yet")
	s.awaitAnswerAt(openshift.apps, "http://"+host+"/whoami", answer{Status: 200, Body: "web"})
	service := mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool {
		return service.Spec.Type == corev1.ServiceTypeLoadBalancer
	})
	const balanced = "192.0.2.40"
	s.assignAddress(service, balanced)
	s.awaitHosts("web-listener", balanced)
	mustAwaitDeleted(s, &routev1.Route{}, s.key("web-listener-http"))

	own := "own.web." + s.namespace + ".example.test"
	first := other.takeHost(own)
	s.patch(class, func() { class.Spec = routedAt("own.{podName}.{namespace}.example.test") })
	s.awaitPreviousAddress("web-listener", balanced, "HostAlreadyClaimed")
	s.awaitReconcile(class, "web-listener")
	s.awaitPreviousAddress("web-listener", balanced, "HostAlreadyClaimed")
	mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool {
		return service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 1
	})
	other.remove(first)
	s.awaitHosts("web-listener", own)
	mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool { return service.Spec.Type == corev1.ServiceTypeClusterIP })
	s.awaitAnswerAt(openshift.apps, "http://"+own+"/whoami", answer{Status: 200, Body: "web"})
}

// awaitReconcile changes the class and waits until the operator has reconciled a Listener of it, so that an earlier
// reconciliation is complete.
func (s *scenario) awaitReconcile(class *listenersv1alpha1.ListenerClass, listener string) {
	s.Helper()
	mark := strconv.FormatInt(class.Generation, 10)
	s.patch(class, func() { class.Spec.ServiceAnnotations = map[string]string{"e2e.example/mark": mark} })
	mustAwait(s, &corev1.Service{}, s.key(listener), func(service *corev1.Service) bool { return service.Annotations["e2e.example/mark"] == mark })
}

// awaitPreviousAddress waits until a Listener is ready at its previous address, with these words in the condition's
// message.
func (s *scenario) awaitPreviousAddress(name, address, words string) {
	s.Helper()
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key(name), func(l *listenersv1alpha1.Listener) bool {
		ready := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && slices.Equal(hostsOf(l), []string{address}) &&
			strings.Contains(ready.Message, "through the previous exposure") && strings.Contains(ready.Message, words)
	})
}

// A user annotates the claims, and deletes nothing. A client of each replica learns its address every three seconds and
// connects all the time: the previous address answers meanwhile. The Pods keep running, with their Services.
func TestTheClassOfARunningStatefulSetChangesWithoutALostConnection(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{"ports": unpinned(), "hosts": routedByPod()})
	classes["balancer"] = s.createBalancedClass(nil)
	balanced := map[string]string{}
	s.create(statefulSet("web", 2, byClass(classes["ports"].Name)))
	pods, clients, services := map[string]*corev1.Pod{}, map[string]*poller{}, map[string]*corev1.Service{}
	for _, name := range []string{"web-0", "web-1"} {
		pods[name] = s.awaitReady(name)
		clients[name] = s.startLearning("listener-" + name)
		clients[name].awaitAnswerFrom(s, testbed.NodeIP(nodeOf(pods[name])))
		services[name] = mustGet(s, &corev1.Service{}, s.key("listener-"+name))
		balanced[name] = s.freeAddress()
	}
	for _, class := range []string{"balancer", "ports", "hosts", "ports", "hosts", "balancer", "hosts"} {
		for name, p := range pods {
			pvc := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("listener-"+name))
			s.patch(pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = classes[class].Name })
			t.Logf("%s: class %s", p.Name, class)
		}
		if class == "balancer" {
			s.setPool(balanced["web-0"], balanced["web-1"])
		}
		for name, p := range pods {
			switch class {
			case "ports":
				clients[name].awaitAnswerFrom(s, testbed.NodeIP(nodeOf(p)))
			case "hosts":
				clients[name].awaitAnswerFrom(s, name+"."+s.namespace+"."+appsDomain)
			default:
				entry := s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
					return len(entry.IngressAddresses) == 1 && slices.Contains([]string{balanced["web-0"], balanced["web-1"]}, entry.IngressAddresses[0].Address)
				})
				clients[name].awaitAnswerFrom(s, entry.IngressAddresses[0].Address)
			}
		}
	}
	for name, p := range pods {
		clients[name].stop()
		s.checkNotRestarted(p)
		if service := mustGet(s, &corev1.Service{}, s.key("listener-"+name)); service.UID != services[name].UID {
			t.Errorf("Service %s was replaced", service.Name)
		}
	}
	l := mustGet(s, &listenersv1alpha1.Listener{}, s.key("listener-web-0"))
	s.patch(l, func() { l.Spec.ClassName = &classes["ports"].Name })
	t.Logf("event: %s", s.awaitEvent("Listener", l.Name, listenersv1alpha1.ReasonClassOfClaim, "kubectl annotate pvc listener-web-0"))
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key(l.Name), func(l *listenersv1alpha1.Listener) bool { return l.Class() == classes["hosts"].Name })
}

// poller is a client that polls a Listener's first address.
type poller struct {
	// answers receives each address that has answered, and is closed when the poller stops.
	answers chan string
	stop    context.CancelFunc
}

// startPolling starts a poller. It fails the test if a request fails although the Listener has the same address before
// and after it, and the address has answered before: kube-proxy opens a node port some time after the API server has
// allocated it, which cannot be observed.
func (s *scenario) startPolling(listener string) *poller {
	s.Helper()
	return s.startPoller(func(ctx context.Context, answers chan<- string) {
		last := ""
		for ctx.Err() == nil {
			before, err := s.firstAddress(ctx, listener)
			if err != nil {
				return
			}
			if err = s.poll(ctx, before); err == nil {
				last = before.Address
				answers <- last
				continue
			}
			after, readErr := s.firstAddress(ctx, listener)
			if readErr == nil && fmt.Sprint(after) == fmt.Sprint(before) && before.Address == last {
				s.Errorf("requesting the Listener's address %v: %v", before, err)
			}
		}
	})
}

// startPoller starts a poller, which polls until its context is done, or the addresses cannot be read.
func (s *scenario) startPoller(poll func(ctx context.Context, answers chan<- string)) *poller {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	p := &poller{answers: make(chan string, 10000), stop: cancel}
	go func() {
		defer close(p.answers)
		poll(ctx, p.answers)
	}()
	s.Cleanup(func() {
		cancel()
		for range p.answers { // until it has stopped
		}
	})
	return p
}

// learnPeriod is how often a client that learns reads the address of a Listener.
const learnPeriod = 3 * time.Second

// startLearning starts a client that connects to the first address of a Listener, which it reads now and then, and uses
// as soon as it answers. It fails the test if an address that it uses does not answer.
func (s *scenario) startLearning(listener string) *poller {
	s.Helper()
	return s.startPoller(func(ctx context.Context, answers chan<- string) {
		var used listenersv1alpha1.IngressAddress
		var learned time.Time
		for ctx.Err() == nil {
			if time.Since(learned) > learnPeriod {
				address, err := s.firstAddress(ctx, listener)
				if err != nil {
					return
				}
				trial, done := context.WithTimeout(ctx, time.Second)
				if s.poll(trial, address) == nil {
					used, learned = address, time.Now()
				}
				done()
			}
			if used.Address == "" {
				continue
			}
			if err := s.poll(ctx, used); err == nil {
				answers <- used.Address
			} else if ctx.Err() == nil {
				s.Errorf("a connection to %v was lost: %v", used, err)
			}
		}
	})
}

// awaitAnswerFrom waits until an address has answered.
func (p *poller) awaitAnswerFrom(s *scenario, address string) {
	s.Helper()
	late := time.After(timeout)
	for {
		select {
		case at, open := <-p.answers:
			if at == address {
				return
			}
			if !open {
				s.Fatal("the poller has stopped")
			}
		case <-late:
			s.Fatalf("%s does not answer", address)
		}
	}
}

// firstAddress returns the first address of a Listener, which consumers prefer.
func (s *scenario) firstAddress(ctx context.Context, listener string) (listenersv1alpha1.IngressAddress, error) {
	var l listenersv1alpha1.Listener
	if err := api.Get(ctx, s.key(listener), &l); err != nil {
		return listenersv1alpha1.IngressAddress{}, err
	}
	if l.Status == nil || len(l.Status.IngressAddresses) == 0 {
		if ctx.Err() == nil {
			s.Errorf("Listener %s has no address", listener)
		}
		return listenersv1alpha1.IngressAddress{}, errors.New("no address")
	}
	return l.Status.IngressAddresses[0], nil
}

// poll sends one request to an address, through the router if it is a host name. A late answer is not lost.
func (s *scenario) poll(ctx context.Context, a listenersv1alpha1.IngressAddress) error {
	if a.AddressType == listenersv1alpha1.AddressTypeHostname {
		by := openshift.apps.client()
		by.Timeout = patientClient.Timeout
		_, err := fetch(ctx, by, urlOf(a, "http", "/whoami"))
		return err
	}
	_, err := requestWith(ctx, patientClient, a, "/whoami")
	return err
}

// Each former route stays until the Pod is reached by the next one. Traefik does not serve UDPRoutes and ListenerSets,
// and reports the Gateway as not valid because of its listener for UDP, but serves the others.
func TestAPodMovesFromOneKindOfRoutesToTheNext(t *testing.T) {
	s := newScenario(t)
	s.ensureTraefik()
	prepareRouters(t) // for the CA
	s.createAuthoritySecret()
	s.createGateway(
		gatewayListener("http", gatewayv1.HTTPProtocolType, traefik.HTTPPort), gatewayListener("tls", gatewayv1.TLSProtocolType, traefik.TLSPort),
		gatewayListener("tcp", gatewayv1.TCPProtocolType, traefik.TCPPorts()[0]), gatewayListener("udp", gatewayv1.UDPProtocolType, 9090),
	)
	class := s.createClass(s.byGateway(listenersv1alpha1.GatewayRouteKindUDP, "", "echo", "http", "https"))
	p := pod("web", byClass(class.Name))
	addTLS(&p.Spec)
	s.create(p)
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForGateway,
		"UDPRoute "+s.namespace+"/web-listener-echo", "its listener udp is false")
	change := func(spec listenersv1alpha1.ListenerClassSpec) {
		t.Helper()
		s.patch(class, func() { class.Spec.Gateway, class.Spec.Ports = spec.Gateway, spec.Ports })
	}
	change(s.byRange(listenersv1alpha1.GatewayRouteKindUDP, "echo", 20000, 20999))
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForGateway,
		"ListenerSet "+s.namespace+"/web-listener-udp", "supports ListenerSets")
	const template = "{listener}.{namespace}.gateway.example.test"
	host := "web-listener." + s.namespace + ".gateway.example.test"

	change(s.byGateway(listenersv1alpha1.GatewayRouteKindHTTP, template, "http"))
	s.awaitReady("web")
	s.awaitByHost("http", hostAddress(host, "http", traefik.HTTPPort), "web")
	mustAwaitDeleted(s, &gatewayv1.UDPRoute{}, s.key("web-listener-echo"))
	mustAwaitDeleted(s, &gatewayv1.ListenerSet{}, s.key("web-listener-udp"))

	change(s.byGateway(listenersv1alpha1.GatewayRouteKindTLS, template, "https"))
	s.awaitByHost("https", hostAddress(host, "https", traefik.TLSPort), "web")
	mustAwaitDeleted(s, &gatewayv1.HTTPRoute{}, s.key("web-listener-http"))

	change(s.byGateway(listenersv1alpha1.GatewayRouteKindTCP, "", "http"))
	own := listenersv1alpha1.IngressAddress{
		Address: traefikAddress(), AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": int32(traefik.TCPPorts()[0])}, //nolint:gosec // a port
	}
	s.awaitAnswer(own, "web")
	s.awaitFilesAt(own, own)
	mustAwaitDeleted(s, &gatewayv1.TLSRoute{}, s.key("web-listener-https"))

	change(listenersv1alpha1.ListenerClassSpec{})
	s.awaitHosts("web-listener", "web-listener."+s.namespace+".svc.cluster.local")
	mustAwaitDeleted(s, &gatewayv1.TCPRoute{}, s.key("web-listener-http"))
}

// Its user deletes its claim and its Pod. The claim that is created again may get the Listener of the earlier one, and
// its Pod starts with the new address alone.
func TestAReplicaMovesToAnotherClass(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureRouters()
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{"ports": unpinned(), "hosts": routedByPod()})
	claimOf := func(class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: byClass(classes[class].Name)}, Spec: objects.ClaimSpec(""),
		}
	}
	claim := claimOf("ports")
	s.create(claim)
	s.create(podWith("web", objects.ClaimVolume("listener", "web")))
	p, previous := s.awaitReachable("web")
	s.remove(claim)
	s.remove(p)
	mustAwaitDeleted(s, &corev1.PersistentVolumeClaim{}, s.key("web"))
	s.create(claimOf("hosts"))
	s.create(podWith("web", objects.ClaimVolume("listener", "web")))
	moved := s.awaitReady("web", p)
	host := "web." + s.namespace + "." + appsDomain
	s.awaitFiles(openshift.apps, hostAddress(host, "http", 80))
	s.checkStartedWith(moved, host)
	s.awaitNoAnswer(previous)
}

// A Pod that runs keeps the previous address until the new one is known, and is then reported as outdated.
func TestAPodThatStartsWhileItsListenerMovesWaitsForTheNewAddress(t *testing.T) {
	t.Parallel()
	s, other := newScenario(t), newScenario(t)
	s.ensureRouters()
	class := s.createClass(unpinned())
	s.createListener("web", class.Name, port("http", 8080, corev1.ProtocolTCP))
	s.create(pod("first", byName("web")))
	first := s.awaitReady("first")
	s.awaitHosts("web", testbed.NodeIP(nodeOf(first)))

	host := "web." + s.namespace + ".example.test"
	taken := other.takeHost(host)
	s.patch(class, func() { class.Spec = routedAt("{listener}.{namespace}.example.test") })
	s.awaitPreviousAddress("web", testbed.NodeIP(nodeOf(first)), "HostAlreadyClaimed")
	s.create(pod("second", byName("web")))
	t.Logf("event: %s", s.awaitEvent("Pod", "second", listenersv1alpha1.ReasonWaitingForAddress, "HostAlreadyClaimed"))

	other.remove(taken)
	second := s.awaitReady("second")
	s.checkStartedWith(second, host)
	s.awaitCondition("web", listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonPodsOutdated, first.Name)
	s.checkNotRestarted(first)
}

// checkStartedWith checks that the volume of a Pod contained this host, and no other address, when the Pod started.
func (s *scenario) checkStartedWith(p *corev1.Pod, host string) {
	s.Helper()
	known := mustGet(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	if start := known.Spec.StartAddresses["listener"]; len(start) != 1 || start[0].Address != host {
		s.Errorf("Pod %s started with %v, want only %s", p.Name, start, host)
	}
}
