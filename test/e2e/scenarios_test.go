//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// awaitPodListener waits until a Pod's PodListeners object has an address for one of its volumes, and returns the
// entry.
func (s *scenario) awaitPodListener(p *corev1.Pod, volume string) listenersv1alpha1.PodListener {
	s.Helper()
	found := mustAwait(s, &listenersv1alpha1.PodListeners{}, listenersv1alpha1.PodListenersName(p.UID),
		func(l *listenersv1alpha1.PodListeners) bool {
			return len(l.Spec.Listeners[volume].IngressAddresses) > 0
		})
	return found.Spec.Listeners[volume]
}

// TestEachReplicaIsReachedAtItsOwnAddress covers the operator's main use: a client outside of the cluster reaches each
// replica, and each replica reads its own address.
func TestEachReplicaIsReachedAtItsOwnAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 3, byClass(class.Name)))
	for i := range 3 {
		name := fmt.Sprintf("broker-%d", i)
		p := s.awaitReady(name)
		entry := s.awaitPodListener(p, "listener")
		if entry.Scope != listenersv1alpha1.ListenerScopeNode || len(entry.IngressAddresses) != 1 {
			t.Fatalf("the entry of %s is %+v, want one address of its node", name, entry)
		}
		own := entry.IngressAddresses[0]
		if own.Address != testbed.NodeIP(nodeOf(p)) {
			t.Errorf("%s on %s has the address %s", name, p.Spec.NodeName, own.Address)
		}
		s.awaitAnswer(own, name)
		if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
			t.Errorf("files in %s (-want +got):\n%s", name, diff)
		}
		l := s.awaitListener("listener-"+name, 1)
		if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, l.Status.IngressAddresses); diff != "" {
			t.Errorf("addresses (-Pod +Listener):\n%s", diff)
		}
		if _, err := testbed.ClientDial(s.ctx, "tcp", net.JoinHostPort(p.Status.PodIP, "8080")); err == nil {
			t.Errorf("the client reaches the IP address of Pod %s, so it is not outside of the cluster", name)
		}
	}
}

// TestABrokerThatMovesKeepsItsAddress: the deletion of a Pod and a rolling restart change neither address nor port.
func TestABrokerThatMovesKeepsItsAddress(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	set := statefulSet("broker", 2, byClass(class.Name))
	s.create(set)
	before := map[string]*corev1.Pod{}
	addresses := map[string]listenersv1alpha1.IngressAddress{}
	for _, name := range []string{"broker-0", "broker-1"} {
		before[name] = s.awaitReady(name)
		addresses[name] = s.awaitPodListener(before[name], "listener").IngressAddresses[0]
	}
	check := func(name string) {
		t.Helper()
		after := s.awaitReady(name, before[name])
		if diff := cmp.Diff(addresses[name], s.awaitPodListener(after, "listener").IngressAddresses[0]); diff != "" {
			t.Errorf("address of %s (-before +after):\n%s", name, diff)
		}
		s.awaitAnswer(addresses[name], name)
		before[name] = after
	}

	s.remove(before["broker-0"])
	check("broker-0")

	s.patch(set, func() { set.Spec.Template.Annotations = map[string]string{"restarted": "yes"} })
	check("broker-1")
	check("broker-0")
}

// TestAnAddressFollowsAPodThatIsNotPinned: when the Pod starts on another node, the Listener gets that node's address.
func TestAnAddressFollowsAPodThatIsNotPinned(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	before := s.awaitReady("web-0")
	old := s.awaitPodListener(before, "listener").IngressAddresses[0]
	s.awaitAnswer(old, "web-0")

	// While there is no Pod, the Listener keeps the address.
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](0) })
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(before))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(before.UID)))
	var l listenersv1alpha1.Listener
	s.get(&l, s.key("listener-web-0"))
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{old}, l.Status.IngressAddresses); diff != "" {
		t.Errorf("addresses while there is no Pod (-before +now):\n%s", diff)
	}

	s.patch(set, func() {
		set.Spec.Replicas = ptr.To[int32](1)
		set.Spec.Template.Spec.Affinity = notOn(before.Spec.NodeName)
	})
	after := s.awaitReady("web-0", before)
	moved := s.awaitPodListener(after, "listener").IngressAddresses[0]
	if moved.Address != testbed.NodeIP(nodeOf(after)) || !maps.Equal(moved.Ports, old.Ports) {
		t.Errorf("on %s the Pod has the address %+v; before, it was %+v", after.Spec.NodeName, moved, old)
	}
	s.awaitAnswer(moved, "web-0")
	mustAwait(s, &listenersv1alpha1.Listener{}, "listener-web-0", func(l *listenersv1alpha1.Listener) bool {
		return len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == moved.Address
	})
}

// TestThreeReplicasShareOneListener: each replica reads the address of its own node, and the Listener has those of all
// nodes, ordered by node name.
func TestThreeReplicasShareOneListener(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener(class.Name)
	set := statefulSet("broker", 3, byName("bootstrap"))
	set.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: set.Spec.Selector,
	}}
	s.create(set)
	want := map[string]bool{}
	for i := range 3 {
		p := s.awaitReady(fmt.Sprintf("broker-%d", i))
		entry := s.awaitPodListener(p, "listener")
		if len(entry.IngressAddresses) != 1 || entry.IngressAddresses[0].Address != testbed.NodeIP(nodeOf(p)) {
			t.Errorf("the entry of %s on %s is %+v", p.Name, p.Spec.NodeName, entry)
		}
		want[testbed.NodeIP(nodeOf(p))] = true
	}
	l := s.awaitListener("bootstrap", len(want))
	var got []string
	for _, a := range l.Status.IngressAddresses {
		got = append(got, a.Address)
		// kube-proxy of each node follows the Service with a delay.
		if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
			_, err := request(ctx, a, "/whoami")
			return err
		}); err != nil {
			t.Errorf("from outside, %s: %v", a.Address, err)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if l.Generation != 1 {
		t.Errorf("the spec of the user's Listener was changed: generation %d", l.Generation)
	}
}

// TestAnEphemeralVolumeIsDeletedWithItsPod: nothing of it remains, in the API or on the node.
func TestAnEphemeralVolumeIsDeletedWithItsPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	p := pod("web", map[string]map[string]string{"listener": byClass(class.Name)})
	s.create(p)
	p = s.awaitReady("web")
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	s.awaitAnswer(own, "web")
	var pvc corev1.PersistentVolumeClaim
	s.get(&pvc, s.key("web-listener"))
	staging := stagingDir(p, pvc.Spec.VolumeName)
	if _, err := os.Stat(staging); err != nil {
		t.Errorf("the kubelet has created no directory to stage the volume: %v", err)
	}
	s.remove(p)
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: pvc.Spec.VolumeName})
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	mustAwaitDeleted(s, &corev1.Service{}, s.key("web-listener"))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.awaitPodDirRemoved(p)
	s.awaitDirRemoved(staging)
}

func nodePort(service *corev1.Service, name string) int32 {
	for _, p := range service.Spec.Ports {
		if p.Name == name {
			return p.NodePort
		}
	}
	return 0
}

// TestTwoListenersInOnePod: a broker has its own address and a shared one, in two volumes.
func TestTwoListenersInOnePod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener("cluster-internal")
	s.create(pod("broker", map[string]map[string]string{"own": byClass(class.Name), "shared": byName("bootstrap")}))
	p := s.awaitReady("broker")
	own, shared := s.awaitPodListener(p, "own").IngressAddresses[0], s.awaitPodListener(p, "shared").IngressAddresses[0]
	if want := fmt.Sprintf("bootstrap.%s.svc.cluster.local", s.namespace); shared.Address != want || shared.Ports["http"] != 8080 {
		t.Errorf("the shared address is %+v, want %s:8080", shared, want)
	}
	s.awaitAnswer(own, "broker")
	want := wantFiles("own", own)
	maps.Copy(want, wantFiles("shared", shared))
	if diff := cmp.Diff(want, s.readFiles(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, name := range []string{"broker-own", "bootstrap"} {
		l := s.awaitListener(name, 1)
		if p.Labels[names.PodMountLabel(l.UID)] != name {
			t.Errorf("the Pod lacks the label of Listener %s: %v", name, p.Labels)
		}
	}
}

// TestAPortCanBeUDP: a client outside of the cluster reaches a UDP port.
func TestAPortCanBeUDP(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("game", map[string]map[string]string{"listener": byClass(class.Name)}))
	own := s.awaitPodListener(s.awaitReady("game"), "listener").IngressAddresses[0]
	s.awaitAnswer(own, "game")
	s.awaitAnswerOverUDP(own, "game")
}

// TestAFreshVolumeIsReportedOnce: the PodListeners of a Pod with an ephemeral volume is written once, with the address.
// The Listener gets its address once and loses it once, and no status is written twice. The number of requests may be
// higher, because the operator's cache lags behind; what they repeat changes nothing.
func TestAFreshVolumeIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	listeners, podListeners := s.versions(&listenersv1alpha1.ListenerList{}), s.versions(&listenersv1alpha1.PodListenersList{})
	p := pod("web", map[string]map[string]string{"listener": byClass(class.Name)})
	s.create(p)
	s.awaitReady("web")
	s.awaitListener("web-listener", 1)
	s.remove(p)
	if versions := podListeners(); len(versions) != 1 {
		t.Errorf("%d versions of the PodListeners: %+v", len(versions), versions)
	}
	var last *listenersv1alpha1.ListenerStatus
	var reasons []string
	assigned := 0
	for _, version := range listeners() {
		status := version.(*listenersv1alpha1.Listener).Status
		if status == nil || cmp.Equal(status, last) {
			continue
		}
		last = status
		reason := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerReady).Reason
		reasons = append(reasons, reason)
		if reason == listenersv1alpha1.ReasonAddressesAssigned {
			assigned++
		}
	}
	if assigned != 1 || len(slices.Compact(slices.Clone(reasons))) != len(reasons) {
		t.Errorf("the reasons of the condition Ready were %q", reasons)
	}
}

// versions watches the objects of a kind in the namespace. The function that it returns waits until one of them is
// deleted, and returns all versions until then.
func (s *scenario) versions(list client.ObjectList) func() []client.Object {
	s.Helper()
	changes, err := api.Watch(s.ctx, list, client.InNamespace(s.namespace))
	if err != nil {
		s.Fatalf("watching %T: %v", list, err)
	}
	s.Cleanup(changes.Stop)
	return func() (versions []client.Object) {
		s.Helper()
		timeout := s.timeoutContext().Done()
		for {
			select {
			case change := <-changes.ResultChan():
				if change.Type == watch.Deleted {
					return versions
				}
				versions = append(versions, change.Object.(client.Object))
			case <-timeout:
				s.Fatalf("no object of %T was deleted", list)
			}
		}
	}
}

// TestAMountTakesFewWrites counts the writes, from all clients, for a claim that is bound, as at each restart of a Pod
// on the same node: the label of the Pod, and its PodListeners object.
func TestAMountTakesFewWrites(t *testing.T) {
	s := newScenario(t)
	if err := awaitEndedNamespaces(s.timeoutContext()); err != nil { // their deletion takes writes
		t.Fatal(err)
	}
	class := s.createClass(unpinned())
	s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: byClass(class.Name)}, Spec: claimSpec()})
	var writes map[string]float64
	for _, name := range []string{"first", "again"} {
		before := s.ourWrites()
		p := podWith(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "kept"}})
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: testbed.NodeName(1)}
		s.create(p)
		s.remove(s.awaitReady(name))
		mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
		writes = s.ourWrites()
		for what := range writes {
			writes[what] -= before[what]
		}
	}
	maps.DeleteFunc(writes, func(_ string, count float64) bool { return count == 0 })
	if diff := cmp.Diff(map[string]float64{"PATCH pods": 1, "POST podlisteners": 1}, writes); diff != "" {
		t.Errorf("writes for mounting a bound claim (-want +got):\n%s", diff)
	}
}

// ourWrites returns the number of writes, except for events, that the API server has served for resources that the
// operator and its agents write, by verb and resource.
func (s *scenario) ourWrites() map[string]float64 {
	s.Helper()
	config, err := testbed.RESTConfig()
	if err != nil {
		s.Fatal(err)
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/", &corev1.SchemeGroupVersion, clientgoscheme.Codecs
	server, err := rest.RESTClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	body, err := server.Get().AbsPath("/metrics").Stream(s.ctx)
	if err != nil {
		s.Fatalf("reading the API server's metrics: %v", err)
	}
	defer func() { _ = body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		s.Fatalf("parsing the API server's metrics: %v", err)
	}
	writes := map[string]float64{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		what := labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		ours := slices.Contains([]string{"podlisteners", "listeners", "listeners/status", "services", "persistentvolumes"}, what) ||
			what == "pods" && labels["verb"] == "PATCH"
		if ours && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY"}, labels["verb"]) {
			writes[labels["verb"]+" "+what] += m.GetCounter().GetValue()
		}
	}
	return writes
}

// TestAMissingClassIsUsedOnceItIsCreated: an event on the claim says what is missing, and creating it suffices.
func TestAMissingClassIsUsedOnceItIsCreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(s.namespace)}))
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonClassNotFound))
	created := time.Now()
	s.createClass(unpinned())
	own := s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0]
	t.Logf("ready %s after the class was created", time.Since(created).Round(time.Millisecond))
	s.awaitAnswer(own, "web")
}

// TestAMissingListenerIsUsedOnceItIsCreated: the same for a Listener that a claim names, which has no class at first.
func TestAMissingListenerIsUsedOnceItIsCreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byName("late")}))
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonListenerNotFound)
	late := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}},
	}
	s.create(late)
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonClassNotSet)
	s.awaitCondition("late", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonClassNotSet)
	s.patch(late, func() { late.Spec.ClassName = &class.Name })
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0], "web")
}

// TestListenersKeepTheirAddressesWhenTheClassIsDeleted: Service, addresses and files stay, a condition of the Listener
// reports the missing class, and a Pod that starts again gets the address of its node.
func TestListenersKeepTheirAddressesWhenTheClassIsDeleted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(statefulSet("web", 1, byClass(class.Name)))
	first := s.awaitReady("web-0")
	own := s.awaitPodListener(first, "listener").IngressAddresses[0]
	s.awaitAnswer(own, "web-0")
	s.remove(class)
	message := s.awaitCondition("listener-web-0", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonClassNotFound)
	t.Logf("condition: %s", message)
	l := s.awaitListener("listener-web-0", 1)
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, l.Status.IngressAddresses); diff != "" {
		t.Errorf("addresses (-before +after):\n%s", diff)
	}
	s.awaitAnswer(own, "web-0")
	if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	s.remove(first)
	again := s.awaitPodListener(s.awaitReady("web-0", first), "listener").IngressAddresses[0]
	s.awaitAnswer(again, "web-0")
	if again.Ports["http"] != own.Ports["http"] {
		t.Errorf("the node port is %d, and was %d", again.Ports["http"], own.Ports["http"])
	}
}

// TestTheClassLimitsWhoUsesItAndHow: a class for another namespace gives a Pod no Service until the namespace is
// allowed, and a Listener that overrides more than the class allows keeps what it has.
func TestTheClassLimitsWhoUsesItAndHow(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"scenario": s.namespace}}}
	class := s.createClass(spec)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonNamespaceNotAllowed, "does not allow namespace "+s.namespace)
	var services corev1.ServiceList
	if err := api.List(s.ctx, &services, client.InNamespace(s.namespace)); err != nil || len(services.Items) > 0 {
		t.Errorf("there are %d Services (%v)", len(services.Items), err)
	}
	var namespace corev1.Namespace
	s.get(&namespace, client.ObjectKey{Name: s.namespace})
	s.patch(&namespace, func() {
		namespace.Labels = maps.Clone(namespace.Labels)
		namespace.Labels["scenario"] = s.namespace
	})
	own := s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0]
	s.awaitAnswer(own, "web")

	var l listenersv1alpha1.Listener
	s.get(&l, s.key("web-listener"))
	s.patch(&l, func() {
		l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web-listener","namespace":%q},"spec":{"type":"LoadBalancer","externalIPs":["192.0.2.1"]}}`, s.namespace)}}
	})
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidOverrides)
	if !strings.Contains(message, "spec.externalIPs") {
		t.Errorf("the condition does not name the field: %s", message)
	}
	s.awaitAnswer(own, "web")
}

// TestAnInvalidClaimIsReported: each of these Pods waits, and an event on its claim says why.
func TestAnInvalidClaimIsReported(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	both := byClass(class.Name)
	maps.Copy(both, byName("other"))
	noPorts := pod("no-ports", map[string]map[string]string{"listener": byClass(class.Name)})
	noPorts.Spec.Containers[0].Ports = nil
	foreign := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "conflict-listener"}}
	s.create(foreign)
	for _, tc := range []struct {
		pod    *corev1.Pod
		reason string
	}{
		{pod("neither", map[string]map[string]string{"listener": nil}), listenersv1alpha1.ReasonInvalidClaim},
		{pod("both", map[string]map[string]string{"listener": both}), listenersv1alpha1.ReasonInvalidClaim},
		{noPorts, listenersv1alpha1.ReasonNoPorts},
		{pod("0-starts-with-a-digit", map[string]map[string]string{"listener": byClass(class.Name)}), listenersv1alpha1.ReasonInvalidName},
		{pod("conflict", map[string]map[string]string{"listener": byClass(class.Name)}), listenersv1alpha1.ReasonForeignListener},
	} {
		s.create(tc.pod)
		t.Logf("%s: %s", tc.pod.Name, s.awaitEvent("PersistentVolumeClaim", tc.pod.Name+"-listener", tc.reason))
	}
	var after listenersv1alpha1.Listener
	s.get(&after, client.ObjectKeyFromObject(foreign))
	if after.Generation != 1 || len(after.OwnerReferences) != 0 {
		t.Errorf("the user's Listener was changed: %+v", after)
	}
}

// TestAnInlineVolumeIsRefused: the driver declares inline volumes for compatibility (contract 1.2), but does not
// support them. The event says what to use instead.
func TestAnInlineVolumeIsRefused(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	p := podWith("inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: names.Driver, VolumeAttributes: byClass("external-unstable"),
	}})
	// Inline CSI volumes of this driver are not permitted in restricted namespaces.
	namespace := &corev1.Namespace{}
	s.get(namespace, client.ObjectKey{Name: s.namespace})
	s.patch(namespace, func() { namespace.Labels["pod-security.kubernetes.io/enforce"] = "privileged" })
	s.create(p)
	note := s.awaitEvent("Pod", "inline", "FailedMount", "InvalidArgument", "inline", "volumeClaimTemplate", "storageClassName "+names.Driver)
	t.Logf("event: %s", note)
}

// TestForeignServiceIsNeverModified: a Service with the Listener's name that the operator has not created is not
// changed. Once it is deleted, the operator creates its own.
func TestForeignServiceIsNeverModified(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web-listener", Labels: map[string]string{"owner": "user"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}
	s.create(foreign)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	t.Logf("condition: %s", s.awaitCondition("web-listener",
		listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonForeignService))
	var after corev1.Service
	s.get(&after, client.ObjectKeyFromObject(foreign))
	if after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Service was changed: %+v", after)
	}
	s.remove(foreign)
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0], "web")
}

// TestADeletedListenerIsCreatedAgain: an administrator deletes the Listener of a running Pod. The operator creates it
// again, and a Service for it as soon as Kubernetes has deleted the earlier one, and nobody has to do anything.
func TestADeletedListenerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, _ := s.createReachablePod()
	deleted := s.awaitListener("web-listener", 1)
	s.remove(deleted)
	again := mustAwait(s, &listenersv1alpha1.Listener{}, "web-listener", func(l *listenersv1alpha1.Listener) bool {
		return l.UID != deleted.UID && l.Status != nil && len(l.Status.IngressAddresses) == 1
	})
	s.awaitAnswer(again.Status.IngressAddresses[0], "web")
	mustAwait(s, &listenersv1alpha1.PodListeners{}, listenersv1alpha1.PodListenersName(p.UID), func(l *listenersv1alpha1.PodListeners) bool {
		return cmp.Equal(l.Spec.Listeners["listener"].IngressAddresses, again.Status.IngressAddresses)
	})
	var events eventsv1.EventList
	if err := api.List(s.ctx, &events, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.Regarding.Name == "web-listener" && e.Regarding.Kind == "Listener" && e.Type != corev1.EventTypeNormal {
			t.Errorf("event %s: %s", e.Reason, e.Note)
		}
	}
}

// TestADeletedServiceGetsItsNodePortsAgain: clients reach the Pod at the same address and port when an administrator
// has deleted its Service, and neither the status of the Listener nor the files of the Pod change.
func TestADeletedServiceGetsItsNodePortsAgain(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, own := s.createReachablePod()
	before := s.awaitListener("web-listener", 1)
	deleted := &corev1.Service{}
	s.get(deleted, s.key("web-listener"))
	if out, err := kubectl(s.timeoutContext(), "--namespace", s.namespace, "delete", "service", deleted.Name); err != nil {
		t.Fatalf("deleting the Service: %v\n%s", err, out)
	}
	again := mustAwait(s, &corev1.Service{}, deleted.Name, func(service *corev1.Service) bool { return service.UID != deleted.UID })
	for _, port := range deleted.Spec.Ports {
		if got := nodePort(again, port.Name); got != port.NodePort {
			t.Errorf("the node port of %s is %d, want %d", port.Name, got, port.NodePort)
		}
	}
	s.awaitAnswer(own, "web")
	s.awaitFilesAt(own, own) // kube-proxy may not have followed the deletion yet when the Pod answers
	if diff := cmp.Diff(before.Status, s.awaitListener("web-listener", 1).Status); diff != "" {
		t.Errorf("status of the Listener (-before +after):\n%s", diff)
	}
	if after := s.awaitReady("web"); after.UID != p.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the Pod was restarted")
	}
}

// TestAVolumeOfStackableIsTakenOver: volumes that Stackable's listener operator has provisioned can be mounted, lose
// the finalizer of its provisioner, and are deleted with their claims.
func TestAVolumeOfStackableIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Annotations: byClass(class.Name), Labels: map[string]string{"app": "web"}},
		Spec:       claimSpec(),
	}
	claim.Spec.VolumeName = "stackable-" + s.namespace
	s.create(claim)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        claim.Spec.VolumeName,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": names.Driver},
			Finalizers:  []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Labels:      map[string]string{names.LabelListenerNamespace: s.namespace, names.LabelListenerName: "listener-web-0"},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              names.Driver,
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: claim.Spec.VolumeName, VolumeAttributes: byClass(class.Name),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"}}},
			}}}},
		},
	}
	s.create(pv)
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	p := s.awaitReady("web-0")
	if p.Spec.NodeName != "node-2" {
		t.Errorf("the Pod runs on %s, its volume is pinned to node-2", p.Spec.NodeName)
	}
	s.awaitAnswer(s.awaitPodListener(p, "listener").IngressAddresses[0], "web-0")
	if _, err := await(s.timeoutContext(), &corev1.PersistentVolume{}, types.NamespacedName{Name: pv.Name},
		func(pv *corev1.PersistentVolume) bool {
			return !slices.Contains(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
		}); err != nil {
		t.Error(err)
	}
	s.remove(set)
	mustAwaitDeleted(s, &appsv1.StatefulSet{}, client.ObjectKeyFromObject(set))
	s.remove(claim)
	mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: pv.Name})
	mustAwaitDeleted(s, &corev1.Service{}, s.key("listener-web-0"))
}

// TestTheClientCannotReachServicesDirectly guards the other tests, which would prove nothing if the client reached the
// cluster IPs of Services.
func TestTheClientCannotReachServicesDirectly(t *testing.T) {
	t.Parallel()
	var dns corev1.Service
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns); err != nil {
		t.Fatal(err)
	}
	if _, err := netip.ParseAddr(dns.Spec.ClusterIP); err != nil {
		t.Fatalf("kube-dns has no address: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if conn, err := testbed.ClientDial(ctx, "tcp", net.JoinHostPort(dns.Spec.ClusterIP, "53")); err == nil {
		_ = conn.Close()
		t.Error("the client reaches the cluster IP of a Service")
	}
}
