package listener

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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

// An event says so, too, once.
func TestReadyListenerSaysWhyNothingListens(t *testing.T) {
	http := corev1.ContainerPort{Name: "web", ContainerPort: 80}
	ports := func(p ...corev1.ContainerPort) []corev1.ContainerPort { return p }
	mounted := func(labels map[string]string, ports []corev1.ContainerPort, change func(*corev1.Pod, *listenersv1alpha1.PodListenersSpec)) []client.Object {
		objects := mountedBy("web-0", labels, ports...)
		if change != nil {
			change(objects[0].(*corev1.Pod), &objects[1].(*listenersv1alpha1.PodListeners).Spec)
		}
		return objects
	}
	withSidecar := func(pod *corev1.Pod, _ *listenersv1alpha1.PodListenersSpec) {
		pod.Spec.InitContainers = []corev1.Container{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: ports(http)}}
	}
	finished := func(pod *corev1.Pod, _ *listenersv1alpha1.PodListenersSpec) { pod.Status.Phase = corev1.PodSucceeded }
	outdated := func(_ *corev1.Pod, spec *listenersv1alpha1.PodListenersSpec) {
		entry := spec.Listeners["listener"]
		entry.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.2", AddressType: "IP"}}
		spec.Listeners["listener"] = entry
		spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": {{Address: "192.0.2.1", AddressType: "IP"}}}
	}
	cluster := func() *state { return newState(clusterIP) }
	leader := func() *state {
		return cluster().change(func(s *state) { s.listener.Spec.ExtraPodSelectorLabels = map[string]string{"role": "leader"} })
	}
	onNode := func(node *corev1.Node) *state {
		return newState(nodePort).with(node, newVolume("pv", lastMountedOn(node.Name)))
	}
	override := func(spec string) *state {
		return cluster().change(func(s *state) { s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":` + spec + `}`) })
	}
	toName := func(s *state) { s.service.Spec.Ports[0].TargetPort = intstr.FromString("web") }
	for name, tc := range map[string]struct {
		state   *state
		mounted []client.Object
		reason  string
		message string
	}{
		"no Pod":                            {cluster(), nil, "Reserved", "reserved; no Pod mounts it; its addresses are kept: web.shop.svc.cluster.local"},
		"a Pod that listens":                {cluster(), mounted(nil, ports(http), nil), "AddressesAssigned", "reachable at"},
		"a Pod with a sidecar that listens": {cluster(), mounted(nil, nil, withSidecar), "AddressesAssigned", "reachable at"},
		"a Pod without the selected labels": {
			leader(), mounted(map[string]string{"role": "replica"}, ports(http), nil), "NoMatchingPods", "no Pod that mounts it has the labels of spec.extraPodSelectorLabels: role=leader",
		},
		"a Pod with the selected labels": {leader(), mounted(map[string]string{"role": "leader", "app": "web"}, ports(http), nil), "AddressesAssigned", "reachable at"},
		"a port that no container declares": {
			cluster(), mounted(nil, ports(corev1.ContainerPort{ContainerPort: 8080}), nil),
			"PortNotDeclared", "no container of its Pods declares these ports, on which a program has to listen: 80 (http)",
		},
		"a port of another protocol": {
			cluster(), mounted(nil, ports(corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolUDP}), nil), "PortNotDeclared", "80 (http)",
		},
		"a node port that its program reads from its volume": {
			onNode(newNode("node-1", "10.0.0.1")).change(withSameTarget), mounted(nil, nil, nil), "AddressesAssigned", "reachable at 10.0.0.1",
		},
		"the only node is not ready": {
			onNode(notReadyNode("node-1", "10.0.0.1")), mounted(nil, ports(http), nil),
			"NodesNotReady", "no node of its addresses is ready, so they may not respond: node-1; its addresses are kept: 10.0.0.1",
		},
		"one of two nodes is not ready": {
			onNode(newNode("node-1", "10.0.0.1")).with(notReadyNode("node-2", "10.0.0.2"), newVolume("pv-2", lastMountedOn("node-2"))), mounted(nil, ports(http), nil),
			"AddressesAssigned", "reachable at 10.0.0.1 and 1 more; those of nodes that are not ready may not respond: node-2",
		},
		"a Pod that started with another address": {
			cluster(), mounted(nil, ports(http), outdated),
			"PodsOutdated", "these Pods started with other addresses, and need a restart only if their programs use the address that they read at their start: web-0",
		},
		"a target port by name":   {override(`{"ports":[{"port":80,"targetPort":"web"}]}`).change(toName), mounted(nil, ports(http), nil), "AddressesAssigned", "reachable at"},
		"a selector of the class": {override(`{"selector":{"app":"other"}}`), nil, "AddressesAssigned", "reachable at"},
		"a Pod that has finished": {cluster(), mounted(nil, ports(http), finished), "Reserved", "no Pod mounts it"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.with(tc.mounted...).reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { r.settler.Idle = 0 })
			check.Must(t, o.err)
			ready := o.condition(listenersv1alpha1.ListenerReady)
			if ready.Status != metav1.ConditionTrue || ready.Reason != tc.reason || !strings.Contains(ready.Message, tc.message) {
				t.Errorf("condition %+v", ready)
			}
			check.Equal(t, "reason in the summary", tc.reason, o.listener.Status.Summary.Reason)
			var events []string
			switch tc.reason {
			case "AddressesAssigned":
			case "Reserved":
				events = []string{"Normal Reserved " + ready.Message}
			default:
				events = []string{"Warning " + tc.reason + " " + ready.Message}
			}
			check.Equal(t, "events", events, o.events)
		})
	}
}

// A Pod that is replaced within a minute costs no write, and a Listener that has been idle says so at once after the
// operator restarts.
func TestNothingListensIsReportedAfterAMinute(t *testing.T) {
	o := newState(clusterIP).operator(t, interceptor.Funcs{})
	o.settler.Idle = settle.IdlePeriod
	mounted := func() []client.Object { return mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80}) }
	start, stop := func() { o.create(mounted()...) }, func() { o.delete(mounted()...) }
	for _, step := range []struct {
		when   string
		do     func()
		after  time.Duration
		reason string
		again  time.Duration
	}{
		{"at first", nil, 0, "AddressesAssigned", time.Minute},
		{"after 40 seconds", nil, 40 * time.Second, "AddressesAssigned", 20 * time.Second},
		{"after a minute", nil, 20 * time.Second, "Reserved", 0},
		{"later", nil, 0, "Reserved", 0},
		{"after a restart", o.restart, 0, "Reserved", 0},
		{"with a Pod", start, 0, "AddressesAssigned", 0},
		{"while the Pod is replaced", stop, 0, "AddressesAssigned", time.Minute},
		{"with the next Pod", start, 40 * time.Second, "AddressesAssigned", 0},
		{"while that is replaced", stop, 0, "AddressesAssigned", time.Minute},
	} {
		if step.do != nil {
			step.do()
		}
		again, _ := o.reconcileAfter(step.after)
		if reason := observe.Condition(o.listener(), listenersv1alpha1.ListenerReady).Reason; reason != step.reason || again != step.again {
			t.Errorf("%s: reason %s, again after %s; want %s and %s", step.when, reason, again, step.reason, step.again)
		}
		if _, remembered := o.settler.Get(settle.Unresponsive("listener-uid")); remembered && step.reason == "Reserved" {
			t.Errorf("%s: what was reported is remembered", step.when)
		}
	}
}

// That is written with the reason alone, and so costs no write when a Pod mounts the Listener, or is replaced.
func TestListenerSaysSinceWhenNoPodMountsIt(t *testing.T) {
	const used, month = time.Duration(-1), 30 * 24 * time.Hour
	mounted := append(mountedBy("web-0", nil, corev1.ContainerPort{ContainerPort: 80}), newNode("node-1", "10.0.0.1"), newVolume("pv", lastMountedOn("node-1")))
	type step struct {
		when   string
		do     func(*operator)
		after  time.Duration
		since  time.Duration // after the start, or used
		writes []string
	}
	first, status := []string{"apply Service", "apply status"}, []string{"apply status"}
	start := func(o *operator) { o.create(mounted...) }
	later := []step{
		{"after the Pod", func(o *operator) { o.delete(mounted[:2]...) }, 0, used, nil},
		{"a minute later", nil, time.Minute, time.Minute, status},
		{"a month later", nil, month, time.Minute, nil},
		{"after a restart", (*operator).restart, 0, time.Minute, []string{"apply Service"}},
	}
	for serviceType, steps := range map[listenersv1alpha1.ServiceType][]step{
		clusterIP: {{"with an address", nil, 0, used, first}, {"with a Pod", start, 0, used, nil}},
		nodePort:  {{"without an address", nil, 0, 0, first}, {"with a Pod", start, 0, used, status}},
	} {
		t.Run(string(serviceType), func(t *testing.T) {
			for _, created := range mounted {
				created.SetResourceVersion("")
			}
			o, begin := newState(serviceType).operator(t, interceptor.Funcs{}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			o.settler.Idle = settle.IdlePeriod
			o.now.SetTime(begin)
			for _, step := range append(steps, later...) {
				if step.do != nil {
					step.do(o)
				}
				_, writes := o.reconcileAfter(step.after)
				_, again := o.reconcileAfter(0)
				var want *metav1.Time
				if step.since != used {
					want = ptr.To(metav1.NewTime(begin.Add(step.since)))
				}
				if got := o.listener().Status.UnusedSince; !want.Equal(got) {
					t.Errorf("%s: unused since %v, want %v", step.when, got, want)
				}
				if writes = append(writes, again...); !slices.Equal(writes, step.writes) {
					t.Errorf("%s: writes %q, want %q", step.when, writes, step.writes)
				}
			}
		})
	}
}

// An override without namespace applies to no object.
func TestOverrideWithoutNamespaceIsReported(t *testing.T) {
	s := newState(clusterIP).change(func(s *state) {
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
	o := newState(nodePort).change(func(s *state) { s.service = nil }).with(namespace).reconcile(t, 2, intercept, nil)
	if o.err != nil || len(*writes) > 0 {
		t.Errorf("error %v, writes %q", o.err, *writes)
	}
}
