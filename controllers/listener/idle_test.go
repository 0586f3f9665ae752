package listener

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	testingclock "k8s.io/utils/clock/testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// mountedBy returns a Pod with these labels and ports that mounts the Listener, and its PodListeners.
func mountedBy(name string, labels map[string]string, ports ...corev1.ContainerPort) []client.Object {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: "pod-uid", Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: "node-1", Containers: []corev1.Container{{Ports: ports}},
			Volumes: []corev1.Volume{objects.ClaimVolume("listener", "listener")},
		},
	}
	mounts := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, "node-1")
	mounts.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{Scope: "Cluster", PersistentVolumeName: "pv", ListenerName: key.Name}
	return []client.Object{pod, mounts}
}

// notReadyNode returns a node whose kubelet does not respond.
func notReadyNode(name, ip string) *corev1.Node {
	node := newNode(name, ip)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	return node
}

func TestReadyListenerSaysWhyNothingListens(t *testing.T) {
	http := corev1.ContainerPort{Name: "web", ContainerPort: 80}
	for name, tc := range map[string]struct {
		change  func(*state)
		reason  string
		message string
	}{
		"no Pod": {func(*state) {}, "Reserved", "reserved; no Pod mounts it; its addresses are kept: web.shop.svc.cluster.local"},
		"a Pod that listens": {func(s *state) {
			s.with(mountedBy("web-0", nil, http)...)
		}, "AddressesAssigned", "reachable at"},
		"a Pod with a sidecar that listens": {func(s *state) {
			objects := mountedBy("web-0", nil)
			objects[0].(*corev1.Pod).Spec.InitContainers = []corev1.Container{{
				RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{http},
			}}
			s.with(objects...)
		}, "AddressesAssigned", "reachable at"},
		"a Pod without the selected labels": {func(s *state) {
			s.listener.Spec.ExtraPodSelectorLabels = map[string]string{"role": "leader"}
			s.with(mountedBy("web-0", map[string]string{"role": "replica"}, http)...)
		}, "NoMatchingPods", "no Pod that mounts it has the labels of spec.extraPodSelectorLabels: role=leader"},
		"a Pod with the selected labels": {func(s *state) {
			s.listener.Spec.ExtraPodSelectorLabels = map[string]string{"role": "leader"}
			s.with(mountedBy("web-0", map[string]string{"role": "leader", "app": "web"}, http)...)
		}, "AddressesAssigned", "reachable at"},
		"a port that no container declares": {func(s *state) {
			s.with(mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 8080})...)
		}, "PortNotDeclared", "on which a program has to listen: 80 (http)"},
		"a port of another protocol": {func(s *state) {
			s.with(mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolUDP})...)
		}, "PortNotDeclared", "80 (http)"},
		"a node port that its program reads from its volume": {func(s *state) {
			*s = *newState(listenersv1alpha1.ServiceTypeNodePort).change(withSameTarget).with(newNode("node-1", "10.0.0.1"), newVolume("pv", lastMountedOn("node-1")))
			s.with(mountedBy("web-0", nil)...)
		}, "AddressesAssigned", "reachable at 10.0.0.1"},
		"the only node is not ready": {func(s *state) {
			*s = *newState(listenersv1alpha1.ServiceTypeNodePort).with(notReadyNode("node-1", "10.0.0.1"), newVolume("pv", lastMountedOn("node-1")))
			s.with(mountedBy("web-0", nil, http)...)
		}, "NodesNotReady", "no node of its addresses is ready, so they may not respond: node-1; its addresses are kept: 10.0.0.1"},
		"one of two nodes is not ready": {func(s *state) {
			*s = *newState(listenersv1alpha1.ServiceTypeNodePort).with(newNode("node-1", "10.0.0.1"), notReadyNode("node-2", "10.0.0.2"),
				newVolume("pv", lastMountedOn("node-1")), newVolume("pv-2", lastMountedOn("node-2")))
			s.with(mountedBy("web-0", nil, http)...)
		}, "AddressesAssigned", "reachable at 10.0.0.1 and 1 more; those of nodes that are not ready may not respond: node-2"},
		"a Pod that started with another address": {func(s *state) {
			objects := mountedBy("web-0", nil, http)
			spec := &objects[1].(*listenersv1alpha1.PodListeners).Spec
			entry := spec.Listeners["listener"]
			entry.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.2", AddressType: "IP"}}
			spec.Listeners["listener"] = entry
			spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": {{Address: "192.0.2.1", AddressType: "IP"}}}
			s.with(objects...)
		}, "PodsOutdated", "these Pods started with other addresses, and need a restart only if their programs use the address that they read at their start: web-0"},
		"a target port by name": {func(s *state) {
			s.service.Spec.Ports[0].TargetPort = intstr.FromString("web")
			s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`)
			s.with(mountedBy("web-0", nil, http)...)
		}, "AddressesAssigned", "reachable at"},
		"a selector of the class": {func(s *state) {
			s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"selector":{"app":"other"}}}`)
		}, "AddressesAssigned", "reachable at"},
		"a Pod that has finished": {func(s *state) {
			objects := mountedBy("web-0", nil, http)
			objects[0].(*corev1.Pod).Status.Phase = corev1.PodSucceeded
			s.with(objects...)
		}, "Reserved", "no Pod mounts it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(listenersv1alpha1.ServiceTypeClusterIP)
			tc.change(s)
			o := s.reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) { r.settler.Idle = 0 })
			if o.err != nil {
				t.Fatal(o.err)
			}
			ready := o.condition(listenersv1alpha1.ListenerReady)
			if ready.Status != metav1.ConditionTrue || ready.Reason != tc.reason || !strings.Contains(ready.Message, tc.message) {
				t.Errorf("condition %+v", ready)
			}
			if got := o.listener.Status.Summary.Reason; got != tc.reason {
				t.Errorf("summary %q", got)
			}
			warns := slices.ContainsFunc(o.events, func(e string) bool { return strings.HasPrefix(e, "Warning "+tc.reason+" ") })
			if want := tc.reason != "AddressesAssigned" && tc.reason != "Reserved"; warns != want {
				t.Errorf("events %q", o.events)
			}
		})
	}
}

// A Pod that is replaced within a minute costs no write, and a Listener that has been idle says so at once after the
// operator restarts.
func TestNothingListensIsReportedAfterAMinute(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeClusterIP)
	c := s.newClient(t)
	recorder := events.NewFakeRecorder(100)
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	newOperator := func() *Reconciler {
		r := newReconciler(s.backends, c, recorder)
		setClock(r, clock)
		return r
	}
	r := newOperator()
	reconcileOnce := func() (reason string, after time.Duration) {
		t.Helper()
		listener := &listenersv1alpha1.Listener{}
		if err := c.Get(t.Context(), key, listener); err != nil {
			t.Fatal(err)
		}
		result, err := r.Reconcile(t.Context(), listener)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, listener); err != nil {
			t.Fatal(err)
		}
		return observation{listener: listener}.condition(listenersv1alpha1.ListenerReady).Reason, result.RequeueAfter
	}
	expect := func(when, wantReason string, wantAfter time.Duration) {
		t.Helper()
		if reason, after := reconcileOnce(); reason != wantReason || after != wantAfter {
			t.Errorf("%s: reason %s, again after %s; want %s and %s", when, reason, after, wantReason, wantAfter)
		}
	}
	expect("at first", "AddressesAssigned", time.Minute)
	clock.SetTime(clock.Now().Add(40 * time.Second))
	expect("after 40 seconds", "AddressesAssigned", 20*time.Second)
	clock.SetTime(clock.Now().Add(20 * time.Second))
	expect("after a minute", "Reserved", 0)
	expect("later", "Reserved", 0)
	if _, ok := r.settler.Get(settle.Unresponsive(s.listener.UID)); ok {
		t.Error("what was reported is remembered")
	}
	r = newOperator()
	expect("after a restart", "Reserved", 0)
	mounted := mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80})
	for _, o := range mounted {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	expect("with a Pod", "AddressesAssigned", 0)
	remove := func() {
		for _, o := range mounted {
			if err := c.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove()
	expect("while the Pod is replaced", "AddressesAssigned", time.Minute)
	clock.SetTime(clock.Now().Add(40 * time.Second))
	mounted = mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80})
	for _, o := range mounted {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	expect("with the next Pod", "AddressesAssigned", 0)
	remove()
	expect("while that is replaced", "AddressesAssigned", time.Minute)
}

// That is written with the reason alone, and so costs no write when a Pod mounts the Listener, or is replaced.
func TestListenerSaysSinceWhenNoPodMountsIt(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	start := clock.Now()
	for name, s := range map[string]*state{
		"with addresses": newState(listenersv1alpha1.ServiceTypeClusterIP), "without addresses": newState(listenersv1alpha1.ServiceTypeNodePort),
	} {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start)
			fake := s.newClient(t)
			intercept, writes := countWrites(-1, nil)
			c := interceptor.NewClient(fake, intercept)
			var r *Reconciler
			restart := func() {
				r = newReconciler(s.backends, c, events.NewFakeRecorder(100))
				setClock(r, clock)
			}
			restart()
			expect := func(when string, want *metav1.Time, wantWrites ...string) {
				t.Helper()
				*writes = nil
				listener := &listenersv1alpha1.Listener{}
				for range 2 {
					if err := fake.Get(t.Context(), key, listener); err != nil {
						t.Fatal(err)
					}
					if _, err := r.Reconcile(t.Context(), listener); err != nil {
						t.Fatal(err)
					}
				}
				if err := fake.Get(t.Context(), key, listener); err != nil {
					t.Fatal(err)
				}
				if got := listener.Status.UnusedSince; !want.Equal(got) {
					t.Errorf("%s: unused since %v, want %v", when, got, want)
				}
				if !slices.Equal(*writes, wantWrites) {
					t.Errorf("%s: writes %q, want %q", when, *writes, wantWrites)
				}
			}
			mounted := append(mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80}), newNode("node-1", "10.0.0.1"),
				newVolume("pv", lastMountedOn("node-1")))
			var since *metav1.Time
			if name == "without addresses" {
				since = ptr.To(metav1.NewTime(start))
			}
			expect("a new Listener", since, "apply Service", "apply status")
			for _, o := range mounted {
				if err := fake.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			if name == "without addresses" {
				expect("with a Pod", nil, "apply status")
			} else {
				expect("with a Pod", nil)
			}
			if err := errors.Join(fake.Delete(t.Context(), mounted[0]), fake.Delete(t.Context(), mounted[1])); err != nil {
				t.Fatal(err)
			}
			expect("after the Pod", nil)
			clock.SetTime(clock.Now().Add(time.Minute))
			since = ptr.To(metav1.NewTime(clock.Now()))
			expect("a minute later", since, "apply status")
			clock.SetTime(clock.Now().Add(30 * 24 * time.Hour))
			expect("a month later", since)
			restart()
			expect("after a restart", since, "apply Service")
		})
	}
}

func TestWarningOfNothingListening(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeClusterIP).with(mountedBy("web-0", nil)...)
	o := s.reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { r.settler.Idle = 0 })
	if len(o.events) != 1 || !strings.HasPrefix(o.events[0], "Warning PortNotDeclared no container of its Pods declares") {
		t.Errorf("events %q", o.events)
	}
	o = newState(listenersv1alpha1.ServiceTypeClusterIP).reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { r.settler.Idle = 0 })
	if len(o.events) != 1 || !strings.HasPrefix(o.events[0], "Normal Reserved reserved; no Pod mounts it") {
		t.Errorf("events %q", o.events)
	}
}

// An override without namespace applies to no object.
func TestOverrideWithoutNamespaceIsReported(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeClusterIP).change(func(s *state) {
		s.listener.Spec.ObjectOverrides = append(s.listener.Spec.ObjectOverrides, runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","labels":{"a":"b"}}}`)},
			runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"}}`)})
	})
	o := s.reconcile(t, 2, interceptor.Funcs{}, nil)
	accepted := o.condition(listenersv1alpha1.ListenerAccepted)
	const want = "ignored, because metadata.namespace is not set: spec.objectOverrides[0]; set it to shop"
	if accepted.Status != metav1.ConditionTrue || !strings.HasSuffix(accepted.Message, want) {
		t.Errorf("condition %+v", accepted)
	}
	if !slices.ContainsFunc(o.events, func(e string) bool { return strings.HasPrefix(e, "Warning InvalidOverrides ") }) {
		t.Errorf("events %q", o.events)
	}
	if _, overridden := o.service.Labels["a"]; overridden {
		t.Error("the override is not ignored")
	}
}

// Whatever is created in a namespace that is being deleted is deleted again.
func TestNothingIsWrittenInANamespaceThatIsBeingDeleted(t *testing.T) {
	namespace := terminating(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
	intercept, writes := countWrites(-1, nil)
	o := newState(listenersv1alpha1.ServiceTypeNodePort).change(func(s *state) { s.service = nil }).with(namespace).reconcile(t, 2, intercept, nil)
	if o.err != nil || len(*writes) > 0 {
		t.Errorf("error %v, writes %q", o.err, *writes)
	}
}
