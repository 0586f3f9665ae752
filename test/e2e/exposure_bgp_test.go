//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/pages"
)

var withBGP = flag.Bool("bgp", false, "run the scenarios with a router that learns a range of cluster IPs by BGP, as make test-bgp does")

// Kubernetes assigns the first 256 addresses of a range of this size only to Services that ask for them. These are
// routed, as on docs/routed-cluster-ips.md.
const (
	serviceRange = "10.120.0.0/20"
	routedRange  = "10.120.0.0/24"
)

// newRoutedRange returns a scenario on a cluster that has a range of cluster IPs for clients outside.
func newRoutedRange(t *testing.T) *scenario {
	t.Helper()
	if !*withBGP {
		t.Skip("this scenario needs the flag -bgp; make test-bgp sets it")
	}
	s := newScenario(t)
	s.createRoutedRange()
	return s
}

// createRoutedRange adds a range to the cluster IPs of the cluster, until the end of the test.
func (s *scenario) createRoutedRange() {
	s.Helper()
	extra := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "routed"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRange}}}
	mustAwaitDeleted(s, &networkingv1.ServiceCIDR{}, client.ObjectKeyFromObject(extra)) // of another scenario
	if err := api.Create(s.ctx, extra); err != nil {
		s.Fatalf("creating ServiceCIDR %s: %v", extra.Name, err)
	}
	s.Cleanup(func() {
		if err := api.Delete(context.WithoutCancel(s.ctx), extra); err != nil { // it stays until no Service has an address of it
			s.Errorf("deleting ServiceCIDR %s: %v", extra.Name, err)
		}
	})
	mustAwait(s, &networkingv1.ServiceCIDR{}, client.ObjectKeyFromObject(extra), func(c *networkingv1.ServiceCIDR) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	})
}

// routedClusterIPs returns the spec of a class with cluster IPs in the routed range.
func routedClusterIPs() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		ClusterIPs: &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{routedRange}},
	}
}

// createInRange creates replicas on different nodes, and returns their Pods and their cluster IPs, which are all in the
// routed range.
func (s *scenario) createInRange(replicas int32) (pods []*corev1.Pod, addresses map[string]listenersv1alpha1.IngressAddress) {
	s.Helper()
	class := s.createClass(routedClusterIPs())
	set := statefulSet("broker", replicas, byClass(class.Name))
	spread(set)
	// Pods stay on a node that is not reached, and run again with it.
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		set.Spec.Template.Spec.Tolerations = append(set.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](600),
		})
	}
	s.create(set)
	addresses = map[string]listenersv1alpha1.IngressAddress{}
	for i := range replicas {
		p := s.awaitReady(fmt.Sprintf("broker-%d", i))
		own := s.awaitPodListener(p, "listener").IngressAddresses
		if len(own) != 1 || !netip.MustParsePrefix(routedRange).Contains(netip.MustParseAddr(own[0].Address)) {
			s.Fatalf("%s has the addresses %v, want one of %s", p.Name, own, routedRange)
		}
		pods, addresses[p.Name] = append(pods, p), own[0]
	}
	return pods, addresses
}

// A router outside the cluster learns the range from all nodes, with the configuration of docs/routed-cluster-ips.md,
// and a client behind it reaches each replica at its own cluster IP through any of them. When a node loses its power,
// the router removes it from the route when its hold time has passed, and in less than half of that time with BFD.
// Requests to Pods on the other nodes are lost only until then. None are when the node returns, nor when BGP ends on
// the node before.
func TestReplicasAreReachedAtARangeThatNodesAnnounceByBGP(t *testing.T) {
	s := newRoutedRange(t)
	nodes := testbed.Nodes()
	pods, own := s.createInRange(int32(len(nodes))) //nolint:gosec // a handful
	node, others := nodeOf(pods[0]), maps.Clone(own)
	delete(others, pods[0].Name)
	client := s.connectRouter()

	cases := []struct {
		name    string
		bfd     bool
		byFRR   []int
		planned bool
	}{
		{name: "hold time"},
		{name: "BFD", bfd: true},
		{name: "BFD, FRR", bfd: true, byFRR: []int{outside, nodeOf(pods[1])}},
		{name: "planned", bfd: true, planned: true},
	}
	results := map[string]*loss{}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := s.within(t)
			b := s.startBGP(client, tc.bfd, tc.byFRR...)
			b.awaitAnswers(own)
			for _, node := range nodes {
				if b.connections(node) == 0 {
					t.Errorf("no connection went through %s", testbed.NodeName(node))
				}
			}
			result := b.losePower(node, others, tc.planned)
			if tc.planned && result.lost > 0 {
				t.Errorf("%d requests were lost although BGP had ended before", result.lost)
			}
			if !tc.bfd && result.lost == 0 {
				t.Error("no request was lost: the node was not used")
			}
			b.awaitAnswers(own)
			results[tc.name] = result
		})
	}
	hold := results["hold time"]
	if t.Failed() || len(results) < len(cases) { // of which -run selects some
		return
	}
	for _, name := range []string{"BFD", "BFD, FRR"} {
		if r := results[name]; r.until > hold.until/2 || r.converged > hold.converged/2 {
			t.Errorf("%s: the last request was lost after %v and the route changed after %v, without BFD after %v and %v; want less than half of that", name, r.until, r.converged, hold.until, hold.converged)
		}
	}
}

// awaitAnswers waits until the client has reached each replica at its address several times in a row.
func (b *bgp) awaitAnswers(own map[string]listenersv1alpha1.IngressAddress) {
	b.Helper()
	b.eventually(func(ctx context.Context) error {
		for want, a := range own {
			for range requestsInARow {
				if got, err := b.client.request(ctx, a, "/whoami"); err != nil || got != want {
					return errors.Join(err, fmt.Errorf("%q answered, want %q", got, want))
				}
			}
		}
		return nil
	})
}

// loss is what clients lose with a node.
type loss struct {
	// sent and lost are the numbers of requests and of those that were lost, before the node started again.
	sent, lost int
	// until is the time from the loss of the node until the last of them was sent, and converged until the router did
	// not use the node any more.
	until, converged time.Duration
	// established and broken are the numbers of connections before the loss, and of those that it broke.
	established, broken int
}

// losePower cuts the power of a node while the client sends requests to Pods of other nodes, starts it again, and
// returns what the client has lost. If that is planned, BGP ends on the node before.
func (b *bgp) losePower(node int, targets map[string]listenersv1alpha1.IngressAddress, planned bool) *loss {
	b.Helper()
	operator := b.operatorPods()
	left := slices.DeleteFunc(testbed.Nodes(), func(n int) bool { return n == node })
	open := b.openConnections(targets)
	load := b.startRequests(targets)
	load.awaitAnswered()

	cut := time.Now()
	if planned {
		b.stop(node)
		b.awaitNextHops(left...)
	}
	off := make(chan error, 1)
	go func() { off <- testbed.StopNode(b.ctx, node) }()
	b.awaitNextHops(left...)
	converged := time.Now()
	b.must(<-off)
	load.awaitAnswered()
	result := &loss{converged: converged.Sub(cut), established: len(open), broken: b.broken(open)}
	var last time.Time
	result.sent, result.lost, last = load.lostBetween(cut, time.Now())
	if result.lost > 0 {
		result.until = last.Sub(cut)
	}
	if last.After(converged) {
		b.Errorf("a request was lost %v after the route had changed", last.Sub(converged))
	}
	b.Logf("%d of %d requests were lost, the last one was sent after %v; the route changed after %v; %d of %d connections broke",
		result.lost, result.sent, result.until, result.converged, result.broken, result.established)

	back := time.Now()
	b.must(testbed.StartNode(b.ctx, node))
	b.start(node)
	announced := time.Now()
	b.awaitNextHops(testbed.Nodes()...)
	b.Logf("the router used the node again %v after BGP had started on it", time.Since(announced))
	load.awaitAnswered()
	load.stop()
	if sent, lost, _ := load.lostBetween(back, time.Now()); lost > 0 {
		b.Errorf("%d of %d requests were lost when the node had started", lost, sent)
	}
	b.Logf("requests without an answer: %v", load.failures())
	b.must(testbed.Ready(b.timeoutContext()))
	b.awaitRestartedOn(testbed.NodeName(node), operator)
	return result
}

const (
	// loadPeriod is the time from one request to the next.
	loadPeriod = 20 * time.Millisecond
	// connectTimeout is a bit less than the time after which TCP would try again, so that a request shows what the
	// network does at one moment.
	connectTimeout = 900 * time.Millisecond
	// answeredInARow is a number of requests that almost certainly use each next hop.
	answeredInARow = 50
)

// requests is a steady load of requests of the client, each by a connection of its own.
type requests struct {
	*bgp
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// results has an error or nil for each request, by the time when it was sent.
	results map[time.Time]error
	row     int // of answered requests
}

// startRequests sends requests to the targets in turn, until stop is called.
func (b *bgp) startRequests(targets map[string]listenersv1alpha1.IngressAddress) *requests {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	r := &requests{bgp: b, cancel: cancel, results: map[time.Time]error{}}
	b.Cleanup(r.stop)
	names := slices.Sorted(maps.Keys(targets))
	by := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{ // a late answer is not lost
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return b.client.dial(ctx, network, address)
		},
	}}
	r.running.Go(func() {
		tick := time.NewTicker(loadPeriod)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case sent := <-tick.C:
				r.running.Go(func() { r.send(ctx, by, sent, names[i%len(names)], targets) })
			}
		}
	})
	return r
}

// send sends one request.
func (r *requests) send(ctx context.Context, by *http.Client, sent time.Time, want string, targets map[string]listenersv1alpha1.IngressAddress) {
	got, err := requestWith(ctx, by, targets[want], "/whoami")
	if ctx.Err() != nil {
		return
	}
	if err == nil && got != want {
		r.Errorf("%q answered, want %q", got, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[sent] = err
	if r.row++; err != nil {
		r.row = 0
	}
}

// stop ends the load.
func (r *requests) stop() {
	r.cancel()
	r.running.Wait()
}

// awaitAnswered waits until requests in a row are answered.
func (r *requests) awaitAnswered() {
	r.Helper()
	r.mu.Lock()
	r.row = 0
	r.mu.Unlock()
	r.eventually(func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.row < answeredInARow {
			return errors.New("requests are lost")
		}
		return nil
	})
}

// lostBetween returns the numbers of requests that were sent in this time and of those that were lost, and when the
// last of these was sent. A request whose connection was reset is not lost: the router has sent it to another node in
// the middle, because the next hops changed.
func (r *requests) lostBetween(begin, end time.Time) (sent, lost int, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, err := range r.results {
		if at.Before(begin) || at.After(end) {
			continue
		}
		if sent++; err == nil || errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if lost++; at.After(last) {
			last = at
		}
	}
	return sent, lost, last
}

// failures returns the numbers of requests without an answer, by cause.
func (r *requests) failures() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	causes := map[string]int{}
	for _, err := range r.results {
		if err != nil {
			causes[cause(err)]++
		}
	}
	return causes
}

// cause returns an error of the network without its addresses.
func cause(err error) string {
	if failure, ok := errors.AsType[*net.OpError](err); ok {
		err = failure.Err
	}
	return err.Error()
}

// established is a connection of the client to a Pod.
type established struct {
	net.Conn
	pod string
}

// connectionsToEach is the number of connections to each Pod that stay.
const connectionsToEach = 30

// openConnections opens connections to each target, until the end of the test, and sends a request by each.
func (b *bgp) openConnections(targets map[string]listenersv1alpha1.IngressAddress) (all []established) {
	b.Helper()
	for name, a := range targets {
		for range connectionsToEach {
			conn, err := b.client.dial(b.timeoutContext(), "tcp", hostPort(a, "http"))
			b.must(err)
			b.Cleanup(func() { _ = conn.Close() })
			c := established{conn, name}
			b.must(c.request())
			all = append(all, c)
		}
	}
	return all
}

// request sends a request by the connection.
func (c established) request() error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "GET /whoami HTTP/1.1\r\nHost: %s\r\n\r\n", c.RemoteAddr()); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if name, err := io.ReadAll(response.Body); err != nil || string(name) != c.pod {
		return errors.Join(err, fmt.Errorf("%q answered", name))
	}
	return nil
}

// broken returns the number of connections that do not work any more.
func (b *bgp) broken(all []established) int {
	var mu sync.Mutex
	var running sync.WaitGroup
	causes, broken := map[string]int{}, 0
	for _, c := range all {
		running.Go(func() {
			if err := c.request(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				causes[cause(err)]++
				broken++
			}
		})
	}
	running.Wait()
	b.Logf("broken connections: %v", causes)
	return broken
}

// Some Services that do not ask for an address get one of the additional range, but none of the part that is routed.
// With the policy of docs/routed-cluster-ips.md, only the operator gets those.
func TestOtherServicesGetNoRoutedAddress(t *testing.T) {
	s := newRoutedRange(t)
	whole, routed := netip.MustParsePrefix(serviceRange), netip.MustParsePrefix(routedRange)
	all, inRange := 0, 0
	for ; inRange < 10; all++ {
		if all == 500 {
			t.Fatalf("of %d Services, %d got an address of the additional range", all, inRange)
		}
		service := s.service(fmt.Sprintf("other-%d", all), "")
		s.create(service)
		address := netip.MustParseAddr(service.Spec.ClusterIP)
		if whole.Contains(address) {
			inRange++
		}
		if routed.Contains(address) {
			t.Errorf("%s got %s, which is routed", service.Name, address)
		}
	}
	t.Logf("of %d Services, %d got an address of the additional range", all, inRange)

	before := s.service("before", "10.120.0.100")
	s.create(before)
	s.restrictRange()
	mistake := "are for Listeners, which the listener operator exposes"
	s.eventually(func(ctx context.Context) error {
		taken := s.service("taken", "10.120.0.101")
		err := api.Create(ctx, taken)
		if err == nil {
			return errors.Join(errors.New("a Service has an address that is routed"), api.Delete(ctx, taken)) // the policy is not effective yet
		}
		if !strings.Contains(err.Error(), mistake) {
			return fmt.Errorf("want an error with %q: %w", mistake, err)
		}
		return nil
	})
	s.patch(before, func() { before.Labels = map[string]string{"changed": "after"} })
	s.create(s.service("free", "10.120.1.100"))
	s.createInRange(1)
}

// service returns a Service that asks for a cluster IP, unless that is empty.
func (s *scenario) service(name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// restrictRange creates the policy of docs/routed-cluster-ips.md, and deletes it at the end of the test.
func (s *scenario) restrictRange() {
	s.Helper()
	created := 0
	for _, b := range pages.Blocks(s, "yaml") {
		if b.Page != "docs/routed-cluster-ips.md" || !strings.Contains(b.Text, "kind: ValidatingAdmissionPolicy") {
			continue
		}
		for document := range strings.SplitSeq(b.Text, "\n---\n") {
			o := &unstructured.Unstructured{}
			s.must(yaml.Unmarshal([]byte(document), &o.Object))
			s.createUntilEnd(o)
			created++
		}
	}
	if created != 2 {
		s.Fatalf("docs/routed-cluster-ips.md has %d objects of a policy, want the policy and its binding", created)
	}
}
