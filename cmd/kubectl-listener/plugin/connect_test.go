package plugin_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// listen returns the port of a server, and one at which nothing listens.
func listen(t *testing.T) (open, closed int32) {
	t.Helper()
	ports := [2]int32{}
	for i := range ports {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		check.Must(t, err)
		port, err := strconv.ParseInt(strings.TrimPrefix(server.Addr().String(), "127.0.0.1:"), 10, 32)
		check.Must(t, err)
		ports[i] = int32(port)
		if i == 1 {
			_ = server.Close()
			continue
		}
		t.Cleanup(func() { _ = server.Close() })
	}
	return ports[0], ports[1]
}

// publish makes these the addresses of the Listener and of the Pod's volume.
func (w *world) publish(t *testing.T, addresses ...listenersv1alpha1.IngressAddress) {
	t.Helper()
	w.listener.Status.IngressAddresses = addresses
	w.updateStatus(t, w.listener)
	w.publishToPod(t, addresses...)
}

// publishToPod makes these the addresses of the Pod's volume.
func (w *world) publishToPod(t *testing.T, addresses ...listenersv1alpha1.IngressAddress) {
	t.Helper()
	entry := w.podListeners.Spec.Listeners["listener"]
	entry.IngressAddresses = addresses
	w.podListeners.Spec.Listeners["listener"] = entry
	w.update(t, w.podListeners)
}

// connect runs `kubectl listener connect`.
func (w *world) connect(t *testing.T, argument string) result {
	t.Helper()
	return resultOf(t, apiserver.Config(t), "connect", argument, "-n", w.namespace, "--timeout", "10s")
}

func TestConnectTriesEachAddress(t *testing.T) {
	w := newWorld(t)
	open, closed := listen(t)
	w.listener.Spec.Ports = append(w.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "dns", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)})
	w.update(t, w.listener)
	set := func(ports map[string]int32) { w.publish(t, at("127.0.0.1", ports)) }
	states := func(argument string) (states []string, problem *found) {
		r := w.connect(t, argument)
		for _, f := range r.Findings {
			states = append(states, f.State)
		}
		return states, r.Problem
	}
	workload := w.statefulSet()
	w.create(t, workload)
	if _, problem := states("sts/db"); problem == nil || problem.Message != "has no Pod" {
		t.Errorf("problem %+v", problem)
	}
	w.pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(workload, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	w.update(t, w.pod)
	set(map[string]int32{"http": closed})
	if _, problem := states("web-0"); problem == nil || !strings.Contains(problem.Remedy, "See whether its Pods are ready: kubectl listener why pod/web-0") {
		t.Errorf("problem %+v", problem)
	}
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.updateStatus(t, w.pod)
	for _, argument := range []string{"web-0", "listener/web", "sts/db"} {
		set(map[string]int32{"http": open, "dns": closed})
		if got, problem := states(argument); strings.Join(got, " ") != "Warning OK" || problem != nil { // dns is not tried
			t.Errorf("%s: %q, problem %+v", argument, got, problem)
		}
		set(map[string]int32{"http": open, "https": closed})
		got, problem := states(argument)
		if strings.Join(got, " ") != "OK Failed" || problem == nil || !strings.Contains(problem.Message, "refused") || !strings.Contains(problem.Remedy, "Pod web-0 is ready, so see whether its program listens") {
			t.Errorf("%s: %q, problem %+v", argument, got, problem)
		}
	}
	w.publish(t)
	if got, problem := states("web-0"); problem == nil || problem.Message != "has no address" {
		t.Errorf("%q, problem %+v", got, problem)
	}
}

// The name of a headless Service leads to Pods, and other names lead to the Service.
func TestConnectSaysWhenANameOfPodsExists(t *testing.T) {
	for name, tc := range map[string]struct {
		headless, notReady bool
		want               string
	}{
		"a cluster IP": {want: "Your DNS server does not know the name"},
		"headless":     {headless: true, want: "exists only while a Pod that is ready mounts Listener "},
		"also of Pods that are not ready": {
			headless: true, notReady: true, want: "exists only while a Pod mounts Listener ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.headless {
				w.makeHeadless(t, tc.notReady)
			}
			w.publish(t, at("web.invalid", map[string]int32{"http": 80}))
			if p := w.connect(t, "web-0").Problem; p == nil || p.Kind != "Address" || !strings.Contains(p.Remedy, tc.want) {
				t.Errorf("problem %+v, want %q", p, tc.want)
			}
			for _, f := range whyOf(t, w.namespace, "web-0").Findings {
				if f.Kind == "Service" && strings.Contains(f.Message, "headless") != tc.headless {
					t.Errorf("why says %q", f.Message)
				}
			}
		})
	}
}

// makeHeadless replaces the Service by a headless one.
func (w *world) makeHeadless(t *testing.T, publishNotReady bool) {
	t.Helper()
	uid := w.service.UID
	check.Must(t, w.Delete(t.Context(), w.service))
	w.service.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: w.service.Name, OwnerReferences: w.service.OwnerReferences}
	w.service.Spec = corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: publishNotReady, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}
	if w.create(t, w.service); w.service.UID == uid {
		t.Fatal("the Service is the same")
	}
}

// One address of a Listener does not respond, and the name of another is unknown.
func TestConnectGivesEachCauseItsRemedy(t *testing.T) {
	w := newWorld(t)
	w.makeHeadless(t, false)
	w.publish(t,
		at("224.0.0.1", map[string]int32{"http": 80}),
		at("web.invalid", map[string]int32{"http": 80}),
	)
	got := map[string]string{}
	for _, f := range w.connect(t, "web-0").Findings {
		got[f.Name] = f.Remedy
	}
	for address, want := range map[string]string{"224.0.0.1:80": "docs/choosing-a-class.md", "web.invalid:80": "exists only while a Pod that is ready mounts Listener "} {
		if !strings.Contains(got[address], want) {
			t.Errorf("the remedy for %s is %q, want %q", address, got[address], want)
		}
	}
}

// No connection to the address of a group can be opened.
func TestConnectSaysWhyNothingResponds(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, *world)
		want   string
	}{
		"nothing is known": {func(*testing.T, *world) {}, "docs/choosing-a-class.md"},
		"the Listener says so": {func(t *testing.T, w *world) {
			addresses := w.listener.Status.IngressAddresses
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonNodesNotReady))
			w.listener.Status.IngressAddresses = addresses
			w.updateStatus(t, w.listener)
		}, "/web: NodesNotReady: message of NodesNotReady. See why: kubectl listener why "},
		"the node is not ready": {func(t *testing.T, w *world) { w.stopNode(t) }, " is not ready, so its addresses may not respond. See why: "},
		"a NetworkPolicy": {func(t *testing.T, w *world) {
			w.create(t, w.policy("deny"))
			w.create(t, w.policy("others"))
		}, "/deny: selects Pod web-0; clients outside may be denied by it: https://github.com/listener-operator/listener-operator/blob/main/docs/network-policies.md"},
		"a NetworkPolicy that admits every client": {func(t *testing.T, w *world) {
			w.create(t, w.policy("clients", networkingv1.NetworkPolicyIngressRule{}))
		}, "docs/choosing-a-class.md"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(t, at("224.0.0.1", map[string]int32{"http": 80}))
			tc.change(t, w)
			for _, argument := range []string{"web-0", "listener/web"} {
				if p := w.connect(t, argument).Problem; p == nil || p.Kind != "Address" || !strings.Contains(p.Remedy, tc.want) {
					t.Errorf("%s: problem %+v, want %q", argument, p, tc.want)
				}
			}
		})
	}
}
