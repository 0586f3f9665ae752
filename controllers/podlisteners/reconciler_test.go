package podlisteners_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestSummaryListsAllVolumes(t *testing.T) {
	w := newWorld()
	w.publishedBefore(ofNode(nodeAddr...))
	w.existing.Spec.Listeners["metrics"], w.existing.Spec.Summary = listenersv1alpha1.PodListener{Scope: "Cluster"}, "outdated"
	w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume("metrics", "not-bound"))
	c, _ := w.mustRun(t)
	check.Equal(t, "summary", "listener=192.0.2.1:31234, metrics=<pending>", stored(t, c, newObject()).Spec.Summary)
}

// withoutStart ignores the addresses that a Pod started with, which TestAddressesAtTheStartOfAPodAreRecorded is about.
var withoutStart = cmpopts.IgnoreFields(listenersv1alpha1.PodListenersSpec{}, "StartAddresses", "RestartOnChange")

func TestPodGetsTheAddressOfItsNode(t *testing.T) {
	w := newWorld()
	c, recorded := w.mustRun(t)
	want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{"listener": ofNode(nodeAddr...)}}
	check.Equal(t, "PodListeners", want, published(t, c), withoutStart)
	pv := stored(t, c, w.Volume)
	check.Equal(t, "labels of the Pod", map[string]string{"listener.stackable.tech/mnt.aaaabbbb": "web"}, stored(t, c, w.Pod).Labels)
	check.Equal(t, "labels of the volume", map[string]string{
		"listeners.stackable.tech/listener-namespace": "shop", "listeners.stackable.tech/listener-name": "web",
	}, pv.Labels)
	check.Equal(t, "recorded node of the volume", "node-1", pv.Annotations[names.AnnotationNode])
	expectNoEvents(t, recorded)
}

func TestEntriesOfPodListeners(t *testing.T) {
	type entry = listenersv1alpha1.PodListener
	lb := []listenersv1alpha1.IngressAddress{{Address: "lb.example", AddressType: "Hostname", Ports: map[string]int32{"http": 8080}}}
	onHost := func(number int32) listenersv1alpha1.IngressAddress {
		return listenersv1alpha1.IngressAddress{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": number}}
	}
	before := func(w *world) { w.publishedBefore(ofCluster(lb...)); w.Listener.Status.IngressAddresses = lb }
	advertises := func(w *world, address string) {
		w.Node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: address}
	}
	for name, tc := range map[string]struct {
		change func(*world)
		want   entry
	}{
		"all addresses of a Listener without node ports": {func(w *world) { w.loadBalancer(lb...) }, ofCluster(lb...)},
		"the name of a Listener that does not exist":     {func(w *world) { w.Listener = nil }, ofCluster()},
		"the node and the host ports of this Pod, and not those of other Pods": {
			func(w *world) { w.hostPort(80); w.Listener.Status.IngressAddresses = lb }, ofNode(onHost(80)),
		},
		"the ports of a Pod in the network of its node": {func(w *world) { w.hostPort(0); w.Pod.Spec.HostNetwork = true }, ofNode(onHost(8080))},
		"what is advertised in place of the address of this node": {
			func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1), targetOf("192.0.2.2", portMap, 2)) }, ofNode(advertisedAt(1)),
		},
		"what is advertised in place of the host ports of this Pod": {func(w *world) {
			w.hostPort(80)
			w.advertise(targetOf("192.0.2.1", map[string]int32{"http": 81}, 1), targetOf("192.0.2.1", map[string]int32{"http": 80}, 2))
		}, ofNode(advertisedAt(2))},
		"what is advertised while the class does not exist": {func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1)); w.Class = nil }, ofNode(advertisedAt(1))},
		"what is advertised, until the Listener has the addresses by a class that advertises none": {
			func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1)); w.Class.Spec.Advertise = nil }, ofNode(advertisedAt(1)),
		},
		"no address of the node if none is advertised for it": {func(w *world) { w.advertise(targetOf("192.0.2.2", portMap, 2)) }, ofNode()},
		"no address of the node if its class publishes names, and none leads there": {func(w *world) {
			w.Class.Spec.Hostname = &listenersv1alpha1.Hostname{Template: "edge.example", Records: listenersv1alpha1.HostnameRecordsNone}
		}, ofNode()},
		"the previous addresses while none are advertised for the node": {func(w *world) { w.advertise(); before(w) }, ofNode(lb...)},
		// It has the addresses of its previous exposure until its first Pod with a host port runs.
		"the host ports of this Pod, while its Listener waits for others": {func(w *world) {
			w.hostPort(8080)
			w.Listener.Status.IngressAddresses = nodeAddr
			w.condition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonPreviousExposure, "")
		}, ofNode(onHost(8080))},
		// The node agent waits longer for an address than for an object that does not exist.
		"no address while a Listener takes long to be exposed": {func(w *world) {
			w.Listener.CreationTimestamp, w.Listener.Status = metav1.NewTime(time.Now().Add(-5*time.Second)), nil
		}, ofCluster()},
		// Two Pods on two nodes share a claim: the volume is pinned to the node of the first one.
		"no address of another node than the one that the volume is pinned to":     {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-9") }, ofCluster()},
		"no address of other Pods for a Pod without host ports":                    {func(w *world) { w.hostPort(0); w.Listener.Status.IngressAddresses = lb }, ofNode()},
		"node ports, until a Pod of a class that changed has host ports":           {func(w *world) { w.hostPort(0); w.Listener.Status.NodePorts = portMap }, ofNode(nodeAddr...)},
		"the previous addresses while the status of the Listener is outdated":      {func(w *world) { before(w); w.Listener.Generation++ }, ofCluster(lb...)},
		"the previous addresses while the class does not exist":                    {func(w *world) { before(w); w.Class = nil }, ofCluster(lb...)},
		"no address that the Listener has no more, while its class does not exist": {func(w *world) { w.publishedBefore(ofCluster(lb...)); w.Class = nil }, ofCluster()},
		"no address of a Listener that was deleted":                                {func(w *world) { w.publishedBefore(ofCluster(lb...)); w.Listener = nil }, ofCluster()},
		"no address of a Listener that is being deleted, whose status does not change any more": {
			func(w *world) { before(w); w.loadBalancer(lb...); deleted(w.Listener) }, ofCluster(),
		},
		"no address of an earlier Listener of the name": {func(w *world) { w.publishedBefore(ofCluster(lb...)); w.Listener.Status = nil }, ofCluster()},
		"the new address of the node while the class of a running Pod does not exist": {func(w *world) {
			w.Class = nil
			w.publishedBefore(ofNode(nodeAddr...))
			w.Listener.Status.IngressAddresses, w.Node.Status.Addresses[0].Address = nodeAddr, "192.0.2.7"
		}, ofNode(at("192.0.2.7")...)},
		"the addresses in the status for a new Pod while the class does not exist":               {func(w *world) { w.loadBalancer(lb...); w.Class = nil }, ofCluster(lb...)},
		"the address of the node for a new Pod while the class does not exist":                   {func(w *world) { w.Class = nil }, ofNode(nodeAddr...)},
		"the addresses of the node in each family of the Service while the class does not exist": {func(w *world) { w.bothFamilies(); w.Class = nil }, ofNode(bothAddr...)},
		"the host name of the node while the class does not exist and other addresses are host names": {func(w *world) {
			w.Class, w.Listener.Status.IngressAddresses = nil, host("node-2.example")
			w.addNodeAddress(corev1.NodeHostName, "node-1.example")
		}, ofNode(host("node-1.example")...)},
		"the address of the node that the status has while the class does not exist": {func(w *world) {
			w.Class, w.Listener.Status.IngressAddresses = nil, host("node-1.example")
			w.addNodeAddress(corev1.NodeExternalDNS, "node-1.example")
		}, ofNode(host("node-1.example")...)},
		"the address of the node that the class chooses": {func(w *world) {
			w.Class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{Types: []listenersv1alpha1.NodeAddressType{"ExternalDNS", "InternalIP"}}
			w.addNodeAddress(corev1.NodeExternalDNS, "node-1.example")
		}, ofNode(host("node-1.example")...)},
		"the addresses of the node in the order of the Service's families": {func(w *world) {
			w.Class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
			w.bothFamilies()
		}, ofNode(bothAddr...)},
		"the address that the node advertises":                {func(w *world) { advertises(w, "198.51.100.1") }, ofNode(at("198.51.100.1")...)},
		"no address of a node that advertises an invalid one": {func(w *world) { advertises(w, "198.51.100") }, ofNode()},
		"the previous addresses while the node advertises an invalid one": {func(w *world) {
			advertises(w, "198.51.100")
			w.Listener.Status.IngressAddresses = nodeAddr
			w.publishedBefore(ofNode(nodeAddr...))
		}, ofNode(nodeAddr...)},
		"the previous addresses while the Node does not exist":                {func(w *world) { before(w); w.Node = nil }, ofNode(lb...)},
		"the addresses that the Pod was given while its claim does not exist": {func(w *world) { before(w); w.Claim = nil }, ofNode(lb...)},
		"no address of a new Pod whose claim does not exist":                  {func(w *world) { w.publishedBefore(ofCluster()); w.Claim = nil }, ofCluster()},
		"no entry for a volume that the Pod does not have": {func(w *world) {
			w.publishedBefore(entry{})
			w.existing.Spec.Listeners = map[string]entry{"other": ofCluster(lb...)}
		}, ofNode(nodeAddr...)},
		"the node that is missing in an object of Stackable's operator": {
			func(w *world) { w.publishedBefore(ofCluster(lb...)); w.existing.Spec.NodeName = "" }, ofNode(nodeAddr...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newWorld(tc.change).mustRun(t)
			want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]entry{"listener": tc.want}}
			check.Equal(t, "PodListeners", want, published(t, c), withoutStart)
		})
	}
}

// The addresses that a Pod started with decide whether it is reported and evicted: an unknown start must never look
// like a change, and a change from before the class restarted Pods must not restart one.
func TestAddressesAtTheStartOfAPodAreRecorded(t *testing.T) {
	earlier := at("192.0.2.9")
	before := func(addresses, start []listenersv1alpha1.IngressAddress, restart bool) func(*world) {
		return func(w *world) {
			w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: addresses})
			w.existing.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": start, "removed": earlier}
			if restart {
				w.existing.Spec.RestartOnChange = []string{"listener", "removed"}
			}
		}
	}
	all := func(changes ...func(*world)) []func(*world) { return changes }
	restarts := func(w *world) { w.Class.Spec.OnAddressChange = listenersv1alpha1.OnAddressChangeRestart }
	for name, tc := range map[string]struct {
		change             []func(*world)
		want               []listenersv1alpha1.IngressAddress
		outdated, restarts bool
	}{
		"the first ones":                              {change: all(restarts), want: nodeAddr},
		"the first ones, by default":                  {want: nodeAddr},
		"none before there are any":                   {change: all(restarts, func(w *world) { w.Listener.Status.ObservedGeneration = 0 })},
		"the first ones after a wait":                 {change: all(restarts, before(nil, nil, false)), want: nodeAddr},
		"the same after a change":                     {change: all(restarts, before(nodeAddr, earlier, true)), want: earlier, outdated: true, restarts: true},
		"the same after a change, by default":         {change: all(before(nodeAddr, earlier, false)), want: earlier, outdated: true},
		"the same after a change and back":            {change: all(restarts, before(earlier, nodeAddr, true)), want: nodeAddr},
		"the present ones of a Pod that runs":         {change: all(restarts, before(earlier, nil, false)), want: nodeAddr},
		"no restart for a change before the class":    {change: all(restarts, before(nodeAddr, earlier, false)), want: earlier, outdated: true},
		"no restart any more when the class rewrites": {change: all(before(nodeAddr, earlier, true)), want: earlier, outdated: true},
		"the same while there is no class":            {change: all(before(earlier, earlier, true), func(w *world) { w.Class = nil }), want: earlier, outdated: true, restarts: true},
		"the same while there are no addresses":       {change: all(restarts, before(earlier, earlier, true), func(w *world) { w.Node = nil }), want: earlier},
		"the same while the Listener does not exist":  {change: all(restarts, before(earlier, earlier, true), func(w *world) { w.Listener = nil }), want: earlier},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newWorld(tc.change...).mustRun(t)
			spec := published(t, c)
			want := map[string][]listenersv1alpha1.IngressAddress{"listener": tc.want}
			if tc.want == nil {
				want = nil
			}
			check.Equal(t, "addresses at the start", want, spec.StartAddresses)
			if outdated, restart := spec.Outdated(), spec.NeedsRestart(); (len(outdated) == 1) != tc.outdated || (len(restart) == 1) != tc.restarts {
				t.Errorf("the outdated volumes are %q, and those that need a restart %q", outdated, restart)
			}
			if slices.Contains(spec.RestartOnChange, "removed") {
				t.Errorf("a volume that the Pod does not have is in %q", spec.RestartOnChange)
			}
		})
	}
}

// Addresses that are about to go away would be advertised for as long as the Pod runs. A class that is wrong must not
// keep Pods from starting either.
func TestAPodStartsWithPreviousAddressesOnlyIfNoOthersCome(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration // of an existing object, or 0
		has    []listenersv1alpha1.IngressAddress
		want   []listenersv1alpha1.IngressAddress
		waits  bool
	}{
		"a new Pod waits":                        {reason: listenersv1alpha1.ReasonPreviousExposure, waits: true},
		"it waits for two minutes":               {reason: listenersv1alpha1.ReasonPreviousExposure, age: 100 * time.Second, waits: true},
		"then it gets the previous ones":         {reason: listenersv1alpha1.ReasonPreviousExposure, age: 3 * time.Minute, want: nodeAddr},
		"it gets others when there are some":     {reason: listenersv1alpha1.ReasonAddressesAssigned, age: 10 * time.Second, want: nodeAddr},
		"a Pod that runs keeps what it has":      {reason: listenersv1alpha1.ReasonPreviousExposure, age: 10 * time.Second, has: nodeAddr, want: nodeAddr},
		"and a new Pod does not wait for others": {reason: listenersv1alpha1.ReasonAddressesAssigned, want: nodeAddr},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.condition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, tc.reason, "through the previous exposure")
			if tc.age > 0 {
				w.publishedBefore(ofNode(tc.has...))
				w.existing.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
			}
			c := w.start(t, interceptor.Funcs{})
			result := c.reconcile()
			spec := published(t, c.client)
			if got := spec.Listeners["listener"].IngressAddresses; !cmp.Equal(got, tc.want) || len(spec.StartAddresses["listener"]) != len(tc.want) {
				t.Errorf("addresses %v, at the start %v; want %v", got, spec.StartAddresses, tc.want)
			}
			if waits := len(c.recorded) == 1; waits != tc.waits || tc.waits && (result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Minute-tc.age) {
				t.Errorf("%d events, looks again after %s", len(c.recorded), result.RequeueAfter)
			}
		})
	}
}

// The Listener of a class-based claim is not created either, and the Pod gets no label.
func TestPodWithoutBoundListenerVolumesHasNoPodListeners(t *testing.T) {
	for name, change := range map[string]func(*world){
		"without claims":             func(w *world) { w.Pod.Spec.Volumes = nil },
		"claim that is not bound":    func(w *world) { w.Claim.Spec.VolumeName = "" },
		"volume that does not exist": func(w *world) { w.Volume = nil },
		"volume of another driver":   func(w *world) { w.Volume.Spec.CSI.Driver = "other.example" },
		"volume of another claim":    func(w *world) { w.Volume.Spec.ClaimRef.UID = "another" },
		"Pod not bound to a node":    func(w *world) { w.Pod.Spec.NodeName = "" },
		"finished Pod":               func(w *world) { w.Pod.Status.Phase = corev1.PodSucceeded },
		"rejected Pod":               func(w *world) { w.Pod.Status.Phase = corev1.PodFailed },
		"Pod that is being deleted":  func(w *world) { deleted(w.Pod) },
		"ephemeral claim of another": func(w *world) { w.ephemeral() },
	} {
		for kind, claimed := range map[string]func(*world){"by name": func(*world) {}, "by class": (*world).classBased} {
			t.Run(name+", "+kind, func(t *testing.T) {
				_, _, err := newWorld(claimed, change).run(t, fakeclient.FailWrite(0, errors.New("unexpected write")))
				check.Must(t, err)
			})
		}
	}
}

// While the Listener is being exposed, its addresses are about to be known. The Pod is labelled at once, because the
// kubelet then tries again to mount a volume that it was not permitted to read.
func TestPodListenersIsWrittenOnceForAListenerThatIsBeingExposed(t *testing.T) {
	for name, change := range map[string]func(*world){
		"without a status":        func(w *world) { w.Listener.Status = nil },
		"with an outdated status": func(w *world) { w.Listener.Generation++ },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Listener.CreationTimestamp = metav1.Now()
			exposed := w.Listener.Status.DeepCopy()
			change(w)
			writes := 0
			c := w.start(t, before(func(verb string, o any) error {
				if _, ok := o.(*listenersv1alpha1.PodListeners); ok || verb == "create" {
					writes++
				}
				return nil
			}))
			if wait := c.reconcile().RequeueAfter; wait <= 0 || wait > 5*time.Second {
				t.Errorf("waits %s", wait)
			}
			if labels := stored(t, c.client, w.Pod).Labels; labels[names.PodMountLabel(w.Listener.UID)] != "web" {
				t.Errorf("the Pod has the labels %v", labels)
			}
			if writes > 0 || len(c.recorded) > 0 {
				t.Errorf("%d writes, %d events before the addresses are known", writes, len(c.recorded))
			}
			listener := stored(t, c.client, w.Listener)
			listener.Status = exposed
			listener.Status.ObservedGeneration = listener.Generation
			if wait := c.reconcile(c.client.Status().Update(t.Context(), listener)).RequeueAfter + c.reconcile().RequeueAfter; wait != 0 {
				t.Errorf("waits %s", wait)
			}
			if got := published(t, c.client).Listeners["listener"].IngressAddresses; !cmp.Equal(got, nodeAddr) || writes != 1 {
				t.Errorf("addresses %v after %d writes", got, writes)
			}
		})
	}
}

// The users of a namespace see events, and not the log of the operator.
func TestARejectionByTheAPIServerIsReportedUnlessItPasses(t *testing.T) {
	const create, patch = "create *v1alpha1.PodListeners", "patch *v1.Pod"
	resource, why := schema.GroupResource{Resource: "pods"}, errors.New("no permission")
	terminating := apierrors.NewForbidden(resource, "web-0", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	byPolicy := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-0", field.ErrorList{field.Forbidden(nil, "no permission")})
	for name, tc := range map[string]struct {
		write           string
		failure         error
		fails, reported bool
	}{
		"namespace that is being deleted":     {create, terminating, false, false},
		"object that is not in the cache yet": {create, apierrors.NewAlreadyExists(resource, "web-0"), false, false},
		"permission that the operator lacks":  {create, apierrors.NewForbidden(resource, "web-0", why), true, true},
		"API server that is not available":    {create, errors.New("the API server is unavailable"), true, false},
		"webhook, or permissions":             {patch, apierrors.NewForbidden(resource, "web-0", why), true, true},
		"policy":                              {patch, byPolicy, true, true},
		"end of the namespace":                {patch, terminating, true, false},
		"newer version":                       {patch, apierrors.NewConflict(resource, "web-0", why), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, recorded, err := newWorld().run(t, before(func(verb string, o any) error {
				if fmt.Sprintf("%s %T", verb, o) == tc.write {
					return tc.failure
				}
				return nil
			}))
			if tc.fails != errors.Is(err, tc.failure) || !tc.fails && err != nil {
				t.Errorf("error is %v", err)
			}
			event := strings.Join(drain(recorded), "\n")
			if reported := strings.HasPrefix(event, "Warning RequestRejected ") && strings.Contains(event, "no permission"); reported != tc.reported || !reported && event != "" {
				t.Errorf("event is %q", event)
			}
		})
	}
}

func TestPodListenersThatDoesNotMatchIsReplacedOrDeleted(t *testing.T) {
	right := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{"listener": ofNode(nodeAddr...)}}
	forged := map[string]listenersv1alpha1.PodListener{"listener": ofCluster(host("evil.example")...)}
	for name, tc := range map[string]struct {
		change func(*world)
		want   *listenersv1alpha1.PodListenersSpec
	}{
		"forged addresses":  {func(w *world) { w.existing.Spec.Listeners = forged }, right},
		"of another node":   {func(w *world) { w.existing.Spec.NodeName = "node-2" }, right},
		"without an owner":  {func(w *world) { w.existing.OwnerReferences = nil }, right},
		"with other owners": {func(w *world) { w.existing.OwnerReferences[0].Name = "x%2f"; w.existing.OwnerReferences[0].UID = "x" }, right},
		"with thousands of labels": {func(w *world) {
			w.existing.Labels = map[string]string{}
			for i := range 1000 {
				w.existing.Labels[fmt.Sprintf("label-%d", i)] = "x"
			}
		}, right},
		"with a finalizer": {func(w *world) { w.existing.Finalizers = []string{"example.com/x"}; w.existing.OwnerReferences = nil }, right},
		"with a finalizer, of a Pod that does not exist": {func(w *world) { w.existing.Finalizers, w.Pod = []string{"example.com/x"}, nil }, nil},
		"with a finalizer, and deleted":                  {func(w *world) { deleted(w.existing) }, right},
		"with a second owner": {
			func(w *world) {
				w.existing.OwnerReferences = append(w.existing.OwnerReferences, owner("Node", "", "x"))
			}, right,
		},
		"of a Pod that does not exist": {func(w *world) { w.Pod = nil }, nil},
		// The agents keep PodListeners in memory, and finished Pods stay until they are deleted.
		"of a Pod that has succeeded": {func(w *world) { w.Pod.Status.Phase = corev1.PodSucceeded }, nil},
		"of a Pod that has failed":    {func(w *world) { w.Pod.Status.Phase = corev1.PodFailed }, nil},
		"of a Pod of another uid":     {func(w *world) { w.Pod.UID = "another" }, nil},
		"of a Pod without claims":     {func(w *world) { w.Pod.Spec.Volumes = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.existing = newObject()
			tc.change(w)
			c := w.start(t, interceptor.Funcs{})
			for range 2 { // the event of the deletion requests the object again
				c.reconcile()
			}
			check.Equal(t, "PodListeners", tc.want, published(t, c.client), withoutStart)
			var got listenersv1alpha1.PodListeners
			if err := c.client.Get(t.Context(), objectKey, &got); client.IgnoreNotFound(err) != nil || len(got.Labels)+len(got.Finalizers) > 0 {
				t.Errorf("labels %v and finalizers %v are left, error %v", got.Labels, got.Finalizers, err)
			}
		})
	}
}

// Requests of PodListeners that were deleted have no object that names the Pod.
func TestDeletedPodListenersAreCreatedAgainWhileTheirPodExists(t *testing.T) {
	w := newWorld()
	c := w.start(t, interceptor.Funcs{})
	c.reconcile()
	c.reconcile() // now the cache has had the object
	c.reconcile(c.client.Delete(t.Context(), newObject()))
	if published(t, c.client) == nil {
		t.Error("the PodListeners of a Pod were not created again")
	}
	// A Pod of the same name is another Pod.
	second := w.Pod.DeepCopy()
	second.UID, second.ResourceVersion = "second", ""
	c.reconcile(c.client.Delete(t.Context(), w.Pod), c.client.Create(t.Context(), second))
	if published(t, c.client) != nil {
		t.Error("the PodListeners of a deleted Pod exist")
	}
	request := c.Receive(t.Context(), second)
	_, err := c.Reconcile(t.Context(), request)
	c.must(err)
	c.must(c.client.Get(t.Context(), request.NamespacedName, &listenersv1alpha1.PodListeners{}))
}

func TestListenerOfAClassBasedClaimIsApplied(t *testing.T) {
	w := newWorld((*world).classBased)
	c, _ := w.mustRun(t)
	got := listenerNamed(t, c, "listener-web-0")
	check.Equal(t, "owners", []metav1.OwnerReference{
		owner("PersistentVolumeClaim", "listener-web-0", "claim-uid"), owner("PersistentVolume", "pvc-claim-uid", "pv-uid"),
	}, got.OwnerReferences)
	want := listenersv1alpha1.ListenerSpec{
		ClassName:                ptr.To("public"),
		Ports:                    []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}},
		PublishNotReadyAddresses: ptr.To(true),
	}
	check.Equal(t, "spec", want, got.Spec)
	check.Equal(t, "labels of the Pod", map[string]string{names.PodMountLabel(got.UID): "listener-web-0"}, stored(t, c, w.Pod).Labels)
}

// The status is that of the ports or the class of the earlier Pod until the Listener is exposed again.
func TestAPodWithOtherPortsDoesNotStartWithTheAddressesOfTheEarlierOne(t *testing.T) {
	w := newWorld((*world).withOwnListener)
	w.Listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "earlier", Port: 9092, Protocol: ptr.To(corev1.ProtocolTCP)}}
	w.Listener.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	c, _, err := w.run(t, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if err := c.Apply(ctx, o, options...); err != nil {
			return err
		}
		if isListener(o) {
			o.(interface{ SetGeneration(int64) }).SetGeneration(4) // as the API server does when the spec changes
		}
		return nil
	}})
	check.Must(t, err)
	if got := published(t, c); got != nil && len(got.Listeners["listener"].IngressAddresses) > 0 {
		t.Errorf("the Pod starts with %+v", got.Listeners)
	}
}

// A quota refuses the Listener of one volume only.
func TestOtherVolumesOfAPodWhoseListenerAQuotaForbidsGetTheirAddresses(t *testing.T) {
	w := newWorld()
	own := w.addClaim(byClass("public"))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "listeners"}, "own", errors.New("exceeded quota: addresses"))
	c := w.start(t, before(func(_ string, o any) error {
		if isListener(o) {
			return quota
		}
		return nil
	}), own...)
	if _, err := c.try(); !errors.Is(err, quota) {
		t.Errorf("error is %v, want that of the quota, so that it is tried again", err)
	}
	spec := published(t, c.client)
	if spec == nil || len(spec.Listeners["listener"].IngressAddresses) != 1 || len(spec.Listeners["own"].IngressAddresses) != 0 {
		t.Errorf("PodListeners %+v", spec)
	}
}

func TestListenerHasThePortsThatTheClaimLists(t *testing.T) {
	metrics := corev1.ContainerPort{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}
	for name, tc := range map[string]struct {
		annotation string
		ports      []corev1.ContainerPort // of a second container
		want       []string
		events     []string // parts of them, in any order
	}{
		"in its order":                      {"metrics, http", []corev1.ContainerPort{metrics}, []string{"metrics", "http"}, nil},
		"as far as the Pod has them":        {"http, gone", nil, []string{"http"}, []string{`Warning InvalidClaim Volume "listener": the annotation listener-operator.dev/ports lists "gone"`}},
		"the last of several with one name": {"http", []corev1.ContainerPort{{Name: "http", ContainerPort: 81}}, []string{"http"}, []string{`Warning DuplicatePortName Volume "listener": several containers`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).classBased)
			w.Claim.Annotations = map[string]string{names.AnnotationPorts: tc.annotation, names.AnnotationProvisioner: names.Driver}
			w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, corev1.Container{Ports: tc.ports})
			c, recorded := w.mustRun(t)
			var got []string
			for _, p := range listenerNamed(t, c, "listener-web-0").Spec.Ports {
				got = append(got, p.Name)
			}
			check.Equal(t, "ports", tc.want, got)
			texts := slices.DeleteFunc(drain(recorded), func(e string) bool { return strings.Contains(e, listenersv1alpha1.ReasonWaitingForAddress) })
			if len(texts) != len(tc.events) || len(texts) == 1 && !strings.HasPrefix(texts[0], tc.events[0]) {
				t.Errorf("events %q, want %q", texts, tc.events)
			}
		})
	}
}

func TestPodsThatShareAClaimDoNotOverwriteEachOthersPorts(t *testing.T) {
	w := newWorld((*world).classBased)
	second := w.Pod.DeepCopy()
	second.Name, second.UID = "web-1", "second"
	second.Spec.Containers[0].Ports[0].ContainerPort = 9090
	applied := 0
	c := w.start(t, before(func(_ string, o any) error {
		if isListener(o) {
			applied++
		}
		return nil
	}), second)
	for range 5 {
		for _, pod := range []*corev1.Pod{w.Pod, second} {
			_, err := c.Reconcile(t.Context(), c.Receive(t.Context(), pod))
			c.must(err)
		}
	}
	check.Equal(t, "applies of the Listener, one for each of two mounts", 2, applied)
	check.Equal(t, "port of the last Pod that mounted the claim", int32(9090), listenerNamed(t, c.client, w.Claim.Name).Spec.Ports[0].Port)
}

// The ports stay those of the Pod that mounted the claim last, and until the status follows, the addresses those that
// work.
func TestListenerHasTheClassThatItsClaimNamesNow(t *testing.T) {
	ofClaim := func(before, now string) string {
		return fmt.Sprintf("Normal ClassOfClaim spec.className was %q, and is %q now, as claim listener-web-0 says; to use another class, change the claim: "+
			"kubectl annotate pvc listener-web-0 --namespace shop listeners.stackable.tech/listener-class=CLASS --overwrite", before, now)
	}
	keeps := func(problem string) string {
		return "Warning " + problem + ", so Listener listener-web-0 keeps class public; name another class in the annotation listeners.stackable.tech/listener-class"
	}
	other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: newWorld().Class.Spec}
	private := other.DeepCopy()
	private.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"elsewhere"}}
	for name, tc := range map[string]struct {
		annotations map[string]string
		class       *listenersv1alpha1.ListenerClass // other than public
		of          string                           // the Listener
		remounts    bool
		want, event string
	}{
		"as before":                            {annotations: byClass("public"), class: other, of: "public", want: "public"},
		"the claim names another class":        {annotations: byClass("other"), class: other, of: "public", want: "other", event: ofClaim("public", "other")},
		"the Listener was changed":             {annotations: byClass("public"), class: other, of: "other", want: "public", event: ofClaim("other", "public")},
		"the Listener was changed to no class": {annotations: byClass("public"), class: other, of: "", want: "public", event: ofClaim("", "public")},
		"the Listener was changed before the Pod started again": {
			annotations: byClass("public"), class: other, of: "other", remounts: true, want: "public", event: ofClaim("other", "public"),
		},
		"the annotation was removed": {class: other, of: "public", want: "public"},
		"a class that does not exist": {
			annotations: byClass("othr"), class: other, of: "public", want: "public", event: keeps(`ClassNotFound ListenerClass "othr" does not exist`),
		},
		"a class that does not exist when the Pod starts again": {
			annotations: byClass("othr"), class: other, of: "public", remounts: true, want: "public",
			event: keeps(`ClassNotFound ListenerClass "othr" does not exist`),
		},
		"a class that does not allow the namespace": {
			annotations: byClass("other"), class: private, of: "public", want: "public",
			event: keeps("NamespaceNotAllowed ListenerClass other does not allow namespace shop"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).withOwnListener)
			w.Claim.Annotations, w.Listener.Spec.ClassName = tc.annotations, &tc.of
			w.Listener.Annotations = map[string]string{names.AnnotationClaim: w.Claim.Name}
			w.Listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}}
			w.Listener.Status.IngressAddresses = nodeAddr
			if !tc.remounts {
				w.mounted()
				w.Pod.Spec.Containers[0].Ports[0].ContainerPort = 9090
			}
			c := w.start(t, interceptor.Funcs{}, tc.class)
			for range 2 {
				c.reconcile()
			}
			got := stored(t, c.client, w.Listener)
			if got.Class() != tc.want || got.Spec.Ports[0].Port != 8080 || got.UID != w.Listener.UID {
				t.Errorf("the Listener has class %q and port %d, want %q and 8080", got.Class(), got.Spec.Ports[0].Port, tc.want)
			}
			if entry := published(t, c.client).Listeners["listener"]; !cmp.Equal(entry.IngressAddresses, nodeAddr) {
				t.Errorf("the Pod has the addresses %v", entry.IngressAddresses)
			}
			check.Equal(t, "event", tc.event, strings.Join(drain(c.recorded), "\n"))
		})
	}
}

func TestListenerOfAUserWithTheNameOfAClaimIsNotChanged(t *testing.T) {
	w := newWorld((*world).withOwnListener)
	w.Listener.OwnerReferences = nil
	c, recorded := w.mustRun(t)
	got := stored(t, c, w.Listener)
	if len(got.OwnerReferences) != 0 || len(got.Spec.Ports) != 0 {
		t.Errorf("the user's Listener was changed: %+v", got)
	}
	if len(recorded) == 0 {
		t.Error("no event of the Pod")
	}
	if entry := published(t, c).Listeners["listener"]; len(entry.IngressAddresses) > 0 {
		t.Errorf("the Pod has addresses of a Listener that was not created for its claim: %+v", entry)
	}
}

func TestNodeOfAVolumeIsRecordedAtANewMount(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"first mount":           {func(*world) {}, "node-1"},
		"mount on another node": {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"} }, "node-1"},
		"mounted before": {func(w *world) {
			w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"}
			w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node"})
		}, "node-9"},
		// It may be the one that the volume was released from.
		"node that is lost": {func(w *world) { w.Node = nil }, ""},
		"node that is lost, after the volume was replaced":         {func(w *world) { w.Node = nil; w.mounted() }, ""},
		"Pod that is being deleted, after the volume was replaced": {func(w *world) { deleted(w.Pod); w.mounted() }, ""},
		"node that is lost, mounted on another node before": {func(w *world) {
			w.Node = nil
			w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"}
		}, "node-9"},
		"ephemeral, which only this Pod mounts": {func(w *world) {
			w.ephemeral()
			w.Claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.Pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
		}, ""},
		"pinned": {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-1") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.change)
			c, _ := w.mustRun(t)
			check.Equal(t, "recorded node", tc.want, stored(t, c, w.Volume).Annotations[names.AnnotationNode])
		})
	}
}

func TestVolumeOfAPinnedClassIsPinnedBeforeAnAddressIsPublished(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string // the nodes to which the volume is pinned
	}{
		"first mount":                          {func(*world) {}, []string{"node-1"}},
		"unpinned so far":                      {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"} }, []string{"node-1"}},
		"class unknown at the first reconcile": {func(w *world) { w.publishedBefore(ofCluster()) }, []string{"node-1"}},
		"pinned":                               {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-1") }, []string{"node-1"}},
		"pinned to another node":               {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-9") }, []string{"node-9"}},
		"with an address already":              {func(w *world) { w.publishedBefore(ofNode(nodeAddr...)) }, nil},
		"class that is not pinned":             {func(w *world) { w.Class.Spec.PinnedNodePorts = false }, nil},
		"class that is no NodePort class":      {func(w *world) { w.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer }, nil},
		"class that does not exist":            {func(w *world) { w.Class = nil }, nil},
		"class that is not pinned any more": {func(w *world) {
			w.Class.Spec.PinnedNodePorts = false
			w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-1")
		}, []string{"node-1"}},
		"class with pinning": {func(w *world) {
			w.Class.Spec.PinnedNodePorts = false
			w.Class.Spec.Pinning = &listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyPreferred}
		}, []string{"node-1"}},
		// It could not start anywhere else, and would have to be released again.
		"node that was deleted while the mount waits": {func(w *world) { w.Node = nil }, nil},
		"node that is out of service": {func(w *world) {
			w.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Class.Spec.PinnedNodePorts = true
			tc.change(w)
			pinnedAtCreation := false
			var c *controller
			c = w.start(t, before(func(verb string, _ any) error {
				if verb == "create" {
					pinnedAtCreation = stored(t, c.client, w.Volume).Spec.NodeAffinity != nil
				}
				return nil
			}))
			c.reconcile()
			pv := stored(t, c.client, w.Volume)
			check.Equal(t, "pinned nodes", tc.want, claim.PinnedNodes(pv))
			if w.existing == nil && w.Node != nil && pinnedAtCreation != (tc.want != nil) {
				t.Errorf("the volume was pinned when the addresses were published: %v", pinnedAtCreation)
			}
			if tc.want != nil && pv.Annotations[names.AnnotationNode] != "" && w.Volume.Annotations == nil {
				t.Errorf("the pinned volume has the recorded node %s", pv.Annotations[names.AnnotationNode])
			}
		})
	}
}

// The node affinity of a PersistentVolume is immutable, so one that an administrator set stays, and the volume is not
// pinned. Its Pod gets an address nevertheless.
func TestNodeAffinityOfAnotherKeyStays(t *testing.T) {
	w := newWorld()
	w.Class.Spec.PinnedNodePorts = true
	affinity := claim.NodeAffinity("node-1")
	affinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelTopologyZone
	w.Volume.Spec.NodeAffinity = affinity.DeepCopy()
	c, _ := w.mustRun(t)
	pv := stored(t, c, w.Volume)
	if diff := cmp.Diff(affinity, pv.Spec.NodeAffinity); diff != "" || pv.Annotations[names.AnnotationNode] != "node-1" {
		t.Errorf("annotations %v; node affinity (-want +got):\n%s", pv.Annotations, diff)
	}
	check.Equal(t, "addresses", nodeAddr, published(t, c).Listeners["listener"].IngressAddresses)
}

// A Listener that Stackable's listener operator created is owned by its volume only, and would be deleted with it.
func TestClaimBecomesOwnerOfItsListener(t *testing.T) {
	for _, annotations := range []map[string]string{nil, {names.AnnotationClaim: "listener-web-0"}} {
		w := newWorld((*world).withOwnListener)
		w.Listener.Annotations, w.Listener.OwnerReferences = annotations, w.Listener.OwnerReferences[1:]
		w.Listener.Spec.Ports, w.Listener.Status = []listenersv1alpha1.ListenerPort{{Name: "of-another-pod", Port: 9000}}, nil
		w.mounted() // before
		c, _ := w.mustRun(t)
		l := stored(t, c, w.Listener)
		if !claim.HasOwner(l, "claim-uid") || !claim.HasOwner(l, "pv-uid") || len(l.Spec.Ports) != 1 || l.Spec.Ports[0].Name != "of-another-pod" {
			t.Errorf("annotations %v, owners %v, ports %v", annotations, l.OwnerReferences, l.Spec.Ports)
		}
	}
}

func TestPodListenersOfAPodThatIsDeletedBeforeItStartedIsDeleted(t *testing.T) {
	type entries = map[string]listenersv1alpha1.PodListener
	waiting, filled := entries{"listener": ofCluster()}, entries{"listener": ofNode(nodeAddr...)}
	for name, tc := range map[string]struct {
		phase   corev1.PodPhase
		entries entries
		deleted bool
	}{
		"while a volume waits":            {corev1.PodPending, waiting, true},
		"without entries":                 {corev1.PodPending, nil, true},
		"when all volumes have addresses": {corev1.PodPending, filled, false},
		"when the Pod runs":               {corev1.PodRunning, waiting, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			deleted(w.Pod)
			w.existing, w.Pod.Status.Phase = newObject(), tc.phase
			w.existing.Spec.Listeners = tc.entries
			before := metric.Value(t, "listener_operator_withdrawn_podlisteners_total")
			c, _ := w.mustRun(t)
			check.Equal(t, "deleted", tc.deleted, published(t, c) == nil)
			if n := metric.Value(t, "listener_operator_withdrawn_podlisteners_total") - before; (n == 1) != tc.deleted {
				t.Errorf("counted: %v, deleted: %v", n, tc.deleted)
			}
		})
	}
}

func TestPodGetsAnEventWithTheReasonOfAMissingAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"no Listener":  {func(w *world) { w.Listener = nil }, "it does not exist; the mount continues when it is created"},
		"no class":     {func(w *world) { w.Class, w.Listener.Status.NodePorts = nil, nil }, `ListenerClass "public" does not exist`},
		"no className": {func(w *world) { w.Listener.Spec.ClassName, w.Listener.Status.NodePorts = nil, nil }, "it has no spec.className"},
		"load balancer pending": {func(w *world) {
			w.Listener.Status.NodePorts = nil
			w.condition("Ready", "False", "", "no load balancer for Service web")
		}, "no load balancer for Service web"},
		"no host port": {
			func(w *world) { w.hostPort(0) },
			`Pod shop/web-0 declares no hostPort for "http" (8080/TCP); set hostPort in the ports of its containers, or hostNetwork: true`,
		},
		"advertised address of another Listener": {func(w *world) {
			w.advertise()
			w.condition("Accepted", "False", "AddressTaken", "a port is at edge.example:1")
		}, "a port is at edge.example:1"},
		"volume that is pinned to another node": {
			func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-9") },
			"PersistentVolume pvc-claim-uid is pinned to node node-9, where another Pod has mounted it first, but this Pod is on node node-1; " +
				"delete the Pod, so that it is scheduled again",
		},
		"message that is too long for an event": {func(w *world) {
			w.Listener.Status.NodePorts = nil
			w.condition("Accepted", "False", "", strings.Repeat("a", 5000))
		}, strings.Repeat("a", 1024-61-3) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			_, recorded := newWorld(tc.change).mustRun(t)
			want := []string{`Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: ` + tc.want}
			check.Equal(t, "events", want, drain(recorded))
		})
	}
}

// A Listener advertises an address for a node when it knows of a Pod there. So a new Pod is published without one, and
// without a warning.
func TestAPodIsKnownBeforeAnAddressIsAdvertisedForIt(t *testing.T) {
	for name, change := range map[string]func(*world){"node ports": func(*world) {}, "host ports": func(w *world) { w.hostPort(80) }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(change)
			w.advertise()
			w.Listener.CreationTimestamp = metav1.Now()
			w.condition("Ready", "False", "WaitingForPods", "no Pod")
			c, recorded := w.mustRun(t)
			want := map[string]listenersv1alpha1.PodListener{"listener": ofNode()}
			check.Equal(t, "listeners", want, published(t, c).Listeners)
			expectNoEvents(t, recorded)
		})
	}
}

// recordedEvents has the actions and notes of events.
type recordedEvents []string

func (w *recordedEvents) Eventf(_, _ runtime.Object, _, _, action, note string, args ...any) {
	*w = append(*w, action+": "+fmt.Sprintf(note, args...))
}

// However often the Listener is written, an event is emitted only if its text changes. The API server counts events
// that differ in their text alone as one, with the text of the first, so each reason has an action of its own.
func TestEventIsEmittedOnceUntilItsTextChanges(t *testing.T) {
	w := newWorld()
	var got recordedEvents
	c := w.start(t, interceptor.Funcs{})
	c.Events = &got
	status := func(reason string, addresses ...listenersv1alpha1.IngressAddress) {
		t.Helper()
		for i := range 2 {
			listener := stored(t, c.client, w.Listener)
			listener.Status = &listenersv1alpha1.ListenerStatus{
				ObservedGeneration: listener.Generation, IngressAddresses: addresses, ServiceName: ptr.To(fmt.Sprint("written-", i)),
				Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: reason, Message: "of " + reason}},
			}
			c.reconcile(c.client.Status().Update(t.Context(), listener))
		}
	}
	const note = `Volume "listener" waits for an address of Listener shop/web: of `
	expect := func(when string, actions ...string) {
		t.Helper()
		var want recordedEvents
		for _, action := range actions {
			want = append(want, "Mount"+action+": "+note+action)
		}
		check.Equal(t, "events "+when, want, got)
		got = nil
	}
	status(listenersv1alpha1.ReasonWaitingForRouter)
	status(listenersv1alpha1.ReasonRouteNotAdmitted)
	expect("for two reasons", listenersv1alpha1.ReasonWaitingForRouter, listenersv1alpha1.ReasonRouteNotAdmitted)
	status("", nodeAddr...)
	status(listenersv1alpha1.ReasonRouteNotAdmitted)
	expect("after an address was removed", listenersv1alpha1.ReasonRouteNotAdmitted)
	c.reconcile(c.client.Delete(t.Context(), newObject())) // a new one is created
	expect("for a new object")
	status("")
	got = nil
	c.reconcile()
	unknown := stored(t, c.client, w.Listener)
	known := unknown.Status
	unknown.Status = nil
	c.reconcile(c.client.Status().Update(t.Context(), unknown))
	unknown.Status = known
	c.reconcile(c.client.Status().Update(t.Context(), unknown))
	expect("after the status was not known for a moment")
}

// Kubernetes deletes events after an hour.
func TestEventIsRepeatedWhileItsCauseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Class, w.Listener.Status.NodePorts = nil, nil
		c := w.start(t, interceptor.Funcs{})
		for range 4 {
			check.Equal(t, "looks again after", 30*time.Minute, c.reconcile().RequeueAfter)
			time.Sleep(15 * time.Minute) // another object changes
		}
		if got := drain(c.recorded); len(got) != 2 {
			t.Errorf("%d events in 45 minutes: %q", len(got), got)
		}
	})
}

func TestSilentMistakesGetAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"a claim that named a Listener names a class": {func(w *world) { w.Claim.Annotations = byClass("other") }, "Mount: the annotations were changed after PersistentVolume pvc-claim-uid was provisioned, which has no effect: the volume still uses " +
			"listeners.stackable.tech/listener-name: web; to use another Listener, delete the claim and create it again"},
		"the Listener that a Pod mounts is deleted": {func(w *world) {
			w.Listener, w.Pod.Status.Phase = nil, corev1.PodRunning
			w.mounted()
		}, `Mount: Listener shop/web was deleted, and its Service with it; the files of volume "listener" keep the last addresses, which do not work any more; create the Listener again`},
		"two containers share the name of a port": {func(w *world) {
			w.classBased()
			w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9090}}})
		}, `Mount: Volume "listener": several containers have a port of the same name, and only one is exposed: http is 9090/TCP, not 8080/TCP; ` +
			"rename one of them, so that both are exposed"},
		"nothing is wrong": {func(w *world) { w.Claim.Annotations = byName("web") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWorld(tc.change).start(t, interceptor.Funcs{})
			var got recordedEvents
			c.Events = &got
			for range 2 {
				c.reconcile()
			}
			var want recordedEvents
			if tc.want != "" {
				want = recordedEvents{tc.want}
			}
			check.Equal(t, "events", want, got)
		})
	}
}

func TestNextReconcileRecoversFromAnyFailedWrite(t *testing.T) {
	broken := errors.New("the API server is unavailable")
	for n := range 4 {
		w := newWorld()
		// The Listener exists, so that one reconcile writes objects of all kinds: Listener, PersistentVolume, Pod and
		// PodListeners.
		w.withOwnListener()
		w.Listener.OwnerReferences = []metav1.OwnerReference{owner("PersistentVolume", "pvc-0", "gone")}
		c := w.start(t, fakeclient.FailWrite(n, broken))
		if _, err := c.try(); !errors.Is(err, broken) {
			t.Errorf("write %d: the error is not returned: %v", n, err)
		}
		if _, err := c.try(); err != nil {
			t.Errorf("write %d: the second reconcile failed: %v", n, err)
		}
		if got := published(t, c.client).Listeners["listener"].IngressAddresses; !cmp.Equal(got, nodeAddr) {
			t.Errorf("write %d: after the second reconcile the addresses are %v", n, got)
		}
	}
}

// Labels stand for a Listener whose name is too long for one.
func TestAPodMountsAListenerWithAnyName(t *testing.T) {
	long := strings.Repeat("a", 70)
	for name, label := range map[string]string{"7days-data": "7days-data", long: names.Service(long)} {
		w := newWorld((*world).classBased)
		w.Claim.Name, w.Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, w.Volume.Spec.ClaimRef.Name = name, name, name
		c := w.start(t, interceptor.Funcs{})
		c.reconcile()
		listener := listenerNamed(t, c.client, name)
		listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: listener.Generation, IngressAddresses: nodeAddr, NodePorts: portMap}
		c.reconcile(c.client.Status().Update(t.Context(), listener))
		if entry := published(t, c.client).Listeners["listener"]; entry.ListenerName != name || !cmp.Equal(entry.IngressAddresses, nodeAddr) {
			t.Errorf("%s: published %+v", name, entry)
		}
		ofPod, ofVolume := stored(t, c.client, w.Pod).Labels[names.PodMountLabel(listener.UID)], stored(t, c.client, w.Volume).Labels[names.LabelListenerName]
		if ofPod != label || ofVolume != label {
			t.Errorf("%s: the Pod has label %q, the volume %q, want %q", name, ofPod, ofVolume, label)
		}
	}
}

func TestVolumeOfAListenerThatCannotExistIsReportedAndNotRetried(t *testing.T) {
	for _, name := range []string{"x%2f", "X", strings.Repeat("x", 254)} {
		w := newWorld()
		w.Volume.Spec.CSI.VolumeAttributes = byName(name)
		_, recorded, err := w.run(t, fakeclient.FailWrite(0, errors.New("unexpected write")))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if all := drain(recorded); len(all) != 1 || !strings.HasPrefix(all[0], "Warning InvalidName ") {
			t.Errorf("%s: events %q", name, all)
		}
	}
}
