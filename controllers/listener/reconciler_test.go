package listener

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// world is what a Listener finds around it. A nil part does not exist.
type world struct {
	listener      *listenersv1alpha1.Listener
	class         *listenersv1alpha1.ListenerClass
	service       *corev1.Service
	configuration *operatorv1alpha1.ListenerOperator
	others        []client.Object
	backends      backends.List
}

var key = client.ObjectKey{Namespace: "shop", Name: "web"}

// newWorld has a Listener of a class of the type, and the Service that it got in an earlier pass.
func newWorld(serviceType listenersv1alpha1.ServiceType) *world {
	w := &world{
		backends: backends.All(),
		listener: &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "listener-uid", Generation: 3},
			Spec: listenersv1alpha1.ListenerSpec{
				ClassName:                ptr.To("some-class"),
				Ports:                    []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
				PublishNotReadyAddresses: ptr.To(true),
			},
		},
		class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "some-class"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: serviceType, LoadBalancerAllocateNodePorts: ptr.To(true)},
		},
		service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, UID: "service-uid",
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "listeners.stackable.tech/v1alpha1", Kind: "Listener", Name: key.Name, UID: "listener-uid", Controller: ptr.To(true),
				}},
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceType(serviceType), ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
				Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		},
	}
	if serviceType == listenersv1alpha1.ServiceTypeNodePort {
		w.service.Spec.Ports[0].NodePort = 30080
	}
	return w
}

func (w *world) with(objects ...client.Object) *world {
	w.others = append(w.others, objects...)
	return w
}

func (w *world) but(change func(w *world)) *world {
	change(w)
	return w
}

func (w *world) objects() []client.Object {
	objects := append([]client.Object{w.listener}, w.others...)
	if w.class != nil {
		objects = append(objects, w.class)
	}
	if w.service != nil {
		objects = append(objects, w.service)
	}
	if w.configuration != nil {
		objects = append(objects, w.configuration)
	}
	return objects
}

func newNode(name, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func newVolume(name string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{names.LabelListenerNamespace: key.Namespace, names.LabelListenerName: key.Name},
			Annotations: map[string]string{},
		},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: name},
		}},
	}
	if change != nil {
		change(pv)
	}
	return pv
}

func on(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Annotations[names.AnnotationNode] = node }
}

func pinned(nodes ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: nodes}},
		}}}}
	}
}

// of binds the volume to a claim.
func of(claim string, change func(*corev1.PersistentVolume)) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: key.Namespace, Name: claim, UID: types.UID(claim)}
		change(pv)
	}
}

// newClaim returns a claim, an ephemeral one if it has a Pod.
func newClaim(name, pod string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: types.UID(name)}}
	if pod != "" {
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-" + pod, UID: types.UID(pod), Controller: ptr.To(true)}}
	}
	return claim
}

func newPod(uid string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-" + uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc-" + uid},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func newMount(pod, node, volume string, generation int64) *listenersv1alpha1.PodListeners {
	return &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "pod-" + pod, Generation: generation},
		Spec: listenersv1alpha1.PodListenersSpec{NodeName: node, Listeners: map[string]listenersv1alpha1.PodListener{
			"listener": {Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: volume, ListenerName: key.Name},
		}},
	}
}

// optional is a kind that is served, or not.
type optional struct {
	client.Reader
	served bool
}

func (o optional) Served() bool { return o.served }

// newReconciler returns one whose cluster serves every kind.
func newReconciler(list backends.List, c client.Client, live client.Reader, recorder events.EventRecorder) *Reconciler {
	r := &Reconciler{
		Client: c, Events: recorder, Backends: list,
		live: live, applier: apply.New(c, names.FieldManagerService), statuses: apply.New(c, names.FieldManagerListenerStatus), kinds: map[schema.GroupVersionKind]optionalKind{},
		clock: clock.RealClock{}, stood: map[types.UID]standing{},
	}
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			r.kinds[kind.GroupVersionKind] = optional{Reader: c, served: true}
		}
	}
	return r
}

// pass reconciles once, and returns the Listener and the Service afterwards, the events, and the error.
func (w *world) pass(t *testing.T, intercept interceptor.Funcs) (*listenersv1alpha1.Listener, *corev1.Service, []string, error) {
	t.Helper()
	status := w.listener.Status
	w.listener.Status = nil
	fake := fakeclient.New(t, interceptor.Funcs{}, w.objects()...)
	if status != nil { // written as the controller would have, so that it owns the fields
		if err := apply.New(fake, names.FieldManagerListenerStatus).ApplyStatus(t.Context(), w.listener, status); err != nil {
			t.Fatal(err)
		}
	}
	c := interceptor.NewClient(fake, intercept)
	recorder := events.NewFakeRecorder(100)
	r := newReconciler(w.backends, c, c, recorder)
	listener, service := &listenersv1alpha1.Listener{}, &corev1.Service{}
	if err := c.Get(t.Context(), key, listener); err != nil {
		t.Fatal(err)
	}
	_, passErr := r.Reconcile(t.Context(), listener)
	if err := c.Get(t.Context(), key, listener); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, service); apierrors.IsNotFound(err) {
		service = nil
	} else if err != nil {
		t.Fatal(err)
	}
	close(recorder.Events)
	var told []string
	for e := range recorder.Events {
		told = append(told, e)
	}
	return listener, service, told, passErr
}

func ipAddress(address string, port int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": port}}
}

func TestStatusTellsHowToReachTheListener(t *testing.T) {
	const (
		nodePort     = listenersv1alpha1.ServiceTypeNodePort
		loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
		clusterIP    = listenersv1alpha1.ServiceTypeClusterIP
		accepted     = listenersv1alpha1.ReasonAccepted
		assigned     = listenersv1alpha1.ReasonAddressesAssigned
		notAccepted  = listenersv1alpha1.ReasonNotAccepted
	)
	had := &listenersv1alpha1.ListenerStatus{
		ServiceName: ptr.To("web"), NodePorts: map[string]int32{"http": 30080}, ObservedGeneration: 2,
		IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)},
	}
	for name, tc := range map[string]struct {
		world     *world
		addresses []listenersv1alpha1.IngressAddress
		accepted  string // reason
		ready     string // reason
		message   string // a part of the message of the condition that is false, else of Ready
		noService bool   // the status names none
	}{
		"node ports of the nodes where volumes were mounted, sorted by name": {
			world: newWorld(nodePort).with(newNode("b", "10.0.0.1"), newNode("a", "10.0.0.2"), newNode("c", "10.0.0.3"),
				newVolume("pv-1", on("b")), newVolume("pv-2", pinned("a"))),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080), ipAddress("10.0.0.1", 30080)},
			accepted:  accepted, ready: assigned, message: "reachable at 10.0.0.2 and 1 more",
		},
		"where a Pod mounts counts more than where it last did": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", on("a")), newMount("1", "b", "pv-1", 2)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"a node agent's word alone counts for nothing": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", on("a")), newMount("1", "b", "pv-1", 1)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"a pinned volume stays where it is pinned": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newNode("c", "10.0.0.3"),
				newVolume("pv-1", pinned("a")), newMount("1", "b", "pv-1", 2), newVolume("pv-2", func(pv *corev1.PersistentVolume) {
					pinned("a")(pv)
					on("c")(pv)
				})),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"a volume that several Pods share is on all their nodes": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", nil), newMount("1", "b", "pv-1", 2), newMount("2", "a", "pv-1", 2)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080), ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"a Pod that has finished mounts nothing any more": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", on("a")), newMount("1", "a", "pv-1", 2), newMount("2", "b", "pv-1", 2), newPod("1", corev1.PodFailed), newPod("2", corev1.PodRunning)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"a Pod that has finished keeps a volume that the next Pod mounts": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", ""),
				newVolume("pv-1", of("pvc-1", on("a"))), newMount("1", "a", "pv-1", 2), newPod("1", corev1.PodFailed)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"an ephemeral volume is spent when its Pod has finished": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newClaim("pvc-1", "1"), newVolume("pv-1", of("pvc-1", on("a"))), newMount("1", "a", "pv-1", 2), newPod("1", corev1.PodSucceeded),
				newClaim("pvc-2", "2"), newVolume("pv-2", of("pvc-2", on("b"))), newMount("2", "b", "pv-2", 2), newPod("2", corev1.PodRunning)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"an ephemeral volume is spent when its Pod is gone": {
			world:    newWorld(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", "1"), newVolume("pv-1", of("pvc-1", on("a")))),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"a volume is spent when its claim is gone": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newVolume("pv-1", of("pvc-1", on("a"))),
				newClaim("pvc-2", ""), newVolume("pv-2", of("pvc-2", func(pv *corev1.PersistentVolume) {
					on("b")(pv)
					pv.Spec.ClaimRef.UID = "of an earlier claim of this name"
				}))),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"a pinned volume stays where it is pinned when its Pod has finished": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", "1"),
				newVolume("pv-1", of("pvc-1", pinned("a"))), newMount("1", "a", "pv-1", 2), newPod("1", corev1.PodSucceeded)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"volumes of others do not count, whatever their labels": {
			world: newWorld(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", func(pv *corev1.PersistentVolume) {
				on("a")(pv)
				pv.Spec.CSI.Driver = "other.example.com"
			}), newMount("1", "a", "pv-1", 2)),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"a missing node is left out": {
			world:     newWorld(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", on("gone")), newVolume("pv-2", on("a"))),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)},
			accepted:  accepted, ready: assigned, message: "left out: gone (no such Node)",
		},
		"all nodes missing": {
			world:    newWorld(nodePort).with(newVolume("pv-1", on("gone")), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mute"}}, newVolume("pv-2", on("mute"))),
			accepted: accepted, ready: listenersv1alpha1.ReasonNodesMissing,
			message: "gone (no such Node), mute (neither an IP address nor a host name)",
		},
		"never mounted": {
			world: newWorld(nodePort), accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods, message: "no Pod has mounted",
		},
		"node ports not there": {
			world:    newWorld(nodePort).but(func(w *world) { w.service.Spec.Ports[0].NodePort = 0 }),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForNodePorts, message: "Service shop/web has no node ports",
		},
		"load balancer": {
			world: newWorld(loadBalancer).but(func(w *world) {
				w.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
			}),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("203.0.113.1", 80)}, accepted: accepted, ready: assigned,
		},
		"load balancer of a class that nobody serves": {
			world:    newWorld(loadBalancer).but(func(w *world) { w.class.Spec.LoadBalancerClass = ptr.To("example.com/lb") }),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForLoadBalancer, message: `loadBalancerClass "example.com/lb", which ListenerClass some-class asks for`,
		},
		"no load balancer in the cluster": {
			world: newWorld(loadBalancer), accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForLoadBalancer, message: "the cluster's default load balancer",
		},
		"inside the cluster": {
			world:     newWorld(clusterIP),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
		"inside a cluster with a domain of its own": {
			world: newWorld(clusterIP).but(func(w *world) {
				w.configuration = &operatorv1alpha1.ListenerOperator{
					ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName},
					Spec:       operatorv1alpha1.ListenerOperatorSpec{ClusterDomain: "example.org"},
				}
			}),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.example.org", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
		"no cluster IP": {
			world: newWorld(clusterIP).but(func(w *world) {
				w.class.Spec.PreferredAddressType, w.service.Spec.ClusterIPs = listenersv1alpha1.PreferredAddressTypeIP, nil
			}),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForClusterIP, message: "no cluster IP",
		},
		"a Service that is being deleted": {
			world: newWorld(clusterIP).but(func(w *world) {
				w.service.DeletionTimestamp, w.service.Finalizers = ptr.To(metav1.Now()), []string{"example.com/cleanup"}
			}),
			accepted: accepted, ready: listenersv1alpha1.ReasonServiceTerminating, message: "is being deleted",
		},
		"no class named": {
			world:    newWorld(nodePort).but(func(w *world) { w.service, w.listener.Spec.ClassName = nil, nil }),
			accepted: listenersv1alpha1.ReasonClassNotSet, ready: notAccepted, message: "spec.className is not set", noService: true,
		},
		"class not found": {
			world:    newWorld(nodePort).but(func(w *world) { w.service, w.class = nil, nil }),
			accepted: listenersv1alpha1.ReasonClassNotFound, ready: notAccepted, message: `ListenerClass "some-class" does not exist`, noService: true,
		},
		"class deleted while in use": {
			world:     newWorld(nodePort).but(func(w *world) { w.class, w.listener.Status = nil, had }),
			addresses: had.IngressAddresses, accepted: listenersv1alpha1.ReasonClassNotFound, ready: assigned, message: "stay as they are",
		},
		"class deleted and then the Service": {
			world:    newWorld(nodePort).but(func(w *world) { w.class, w.service, w.listener.Status = nil, nil, had }),
			accepted: listenersv1alpha1.ReasonClassNotFound, ready: notAccepted, noService: true,
		},
		"no ports": {
			world:    newWorld(clusterIP).but(func(w *world) { w.service, w.listener.Spec.Ports = nil, nil }),
			accepted: listenersv1alpha1.ReasonNoPorts, ready: notAccepted, message: "spec.ports is empty", noService: true,
		},
		"overrides that went bad keep the addresses": {
			world: newWorld(clusterIP).but(func(w *world) {
				w.listener.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Service",` +
					`"metadata":{"name":"web","namespace":"shop"},"spec":{"externalIPs":["192.0.2.1"]}}`)}}
			}),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  listenersv1alpha1.ReasonInvalidOverrides, ready: assigned, message: "spec.externalIPs may only be set by the ListenerClass",
		},
		"a foreign Service": {
			world: newWorld(clusterIP).but(func(w *world) {
				w.service.OwnerReferences, w.listener.Status = nil, had
			}),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, message: "Service shop/web exists and is not controlled by this Listener but by no one", noService: true,
		},
		"a Service of an earlier Listener of the name": {
			world:    newWorld(clusterIP).but(func(w *world) { w.service.OwnerReferences[0].UID = "old" }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, message: "but by Listener web with uid old", noService: true,
		},
		"a Service that the Listener owns but does not control": {
			world:    newWorld(clusterIP).but(func(w *world) { w.service.OwnerReferences[0].Controller = nil }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"a Service of another group's Listener": {
			world:    newWorld(clusterIP).but(func(w *world) { w.service.OwnerReferences[0].APIVersion = "gateway.example/v1" }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"a Service of something that is no Listener": {
			world:    newWorld(clusterIP).but(func(w *world) { w.service.OwnerReferences[0].Kind = "PodListeners" }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"a Service made by another version of the API": {
			world:     newWorld(clusterIP).but(func(w *world) { w.service.OwnerReferences[0].APIVersion = "listeners.stackable.tech/v1" }),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, _, told, err := tc.world.pass(t, interceptor.Funcs{})
			if err != nil {
				t.Fatal(err)
			}
			status := listener.Status
			if tc.addresses == nil {
				tc.addresses = []listenersv1alpha1.IngressAddress{} // never null
			}
			if diff := cmp.Diff(tc.addresses, status.IngressAddresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if got := status.ServiceName == nil; got != tc.noService {
				t.Errorf("names no Service: got %t, want %t", got, tc.noService)
			}
			if len(status.Conditions) != 2 || status.ObservedGeneration != 3 {
				t.Fatalf("got conditions %v of generation %d", status.Conditions, status.ObservedGeneration)
			}
			reasons := []string{status.Conditions[0].Reason, status.Conditions[1].Reason}
			if diff := cmp.Diff([]string{tc.accepted, tc.ready}, reasons); diff != "" {
				t.Errorf("reasons of Accepted and Ready (-want +got):\n%s", diff)
			}
			condition := status.Conditions[1]
			if status.Conditions[0].Status == metav1.ConditionFalse {
				condition = status.Conditions[0]
			}
			if !strings.Contains(condition.Message, tc.message) {
				t.Errorf("message %q lacks %q", condition.Message, tc.message)
			}
			if len(told) == 0 {
				t.Error("no event")
			}
		})
	}
}

func TestClassThatIsDeletedWhileInUseKeepsTheNodePorts(t *testing.T) {
	w := newWorld(listenersv1alpha1.ServiceTypeNodePort)
	w.class = nil
	w.listener.Status = &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30080}, IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	listener, _, _, err := w.pass(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int32{"http": 30080}, listener.Status.NodePorts); diff != "" {
		t.Errorf("node ports (-want +got):\n%s", diff)
	}
}

func TestNodePortsAreForNodePortClassesAlone(t *testing.T) {
	for serviceType, want := range map[listenersv1alpha1.ServiceType]map[string]int32{
		listenersv1alpha1.ServiceTypeNodePort:     {"http": 30080},
		listenersv1alpha1.ServiceTypeLoadBalancer: nil,
		listenersv1alpha1.ServiceTypeClusterIP:    nil,
	} {
		w := newWorld(serviceType)
		w.service.Spec.Ports[0].NodePort = 30080 // load balancers have them, too
		listener, _, _, err := w.pass(t, interceptor.Funcs{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, listener.Status.NodePorts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", serviceType, diff)
		}
	}
}

func TestForeignAndTerminatingServicesStayUntouched(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"foreign": func(w *world) { w.service.OwnerReferences = nil },
		"terminating": func(w *world) {
			w.service.DeletionTimestamp, w.service.Finalizers = ptr.To(metav1.Now().Rfc3339Copy()), []string{"example.com/cleanup"}
		},
		"ours, but the Listener is not accepted": func(w *world) { w.listener.Spec.Ports[0].Port = 0 },
		"ours, but the class is gone":            func(w *world) { w.class = nil },
		"ours, but the Listener is going": func(w *world) {
			w.listener.DeletionTimestamp, w.listener.Finalizers = ptr.To(metav1.Now()), []string{"foregroundDeletion"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(listenersv1alpha1.ServiceTypeClusterIP).but(change)
			_, service, _, err := w.pass(t, interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				t.Error("something was applied")
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w.service, service, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion")); diff != "" {
				t.Errorf("service (-before +after):\n%s", diff)
			}
		})
	}
}

// A cache that lags behind must not make a foreign Service look like none.
func TestForeignServiceThatTheCacheLacksStaysUntouched(t *testing.T) {
	w := newWorld(listenersv1alpha1.ServiceTypeClusterIP).but(func(w *world) { w.service.OwnerReferences = nil })
	live := fakeclient.New(t, interceptor.Funcs{}, w.objects()...)
	w.service = nil
	cached := fakeclient.New(t, interceptor.Funcs{}, w.objects()...)
	r := newReconciler(w.backends, cached, live, events.NewFakeRecorder(10))
	listener := &listenersv1alpha1.Listener{}
	if err := cached.Get(t.Context(), key, listener); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), listener); err != nil {
		t.Fatal(err)
	}
	if err := cached.Get(t.Context(), key, &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want no Service", err)
	}
}

// failures makes the n-th write fail, counted from 0, status included.
func failures(n int, err error) (interceptor.Funcs, *int) {
	writes := new(int)
	fails := func() bool { *writes++; return *writes == n+1 }
	return interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if fails() {
				return err
			}
			return c.Apply(ctx, o, options...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			if fails() {
				return err
			}
			return c.SubResource(sub).Apply(ctx, o, options...)
		},
	}, writes
}

func TestEveryWriteThatFailsIsMadeUpForByTheNextPass(t *testing.T) {
	fresh := func() *world {
		return newWorld(listenersv1alpha1.ServiceTypeClusterIP).but(func(w *world) { w.service = nil })
	}
	wantListener, wantService, _, err := fresh().pass(t, interceptor.Funcs{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for n := range 2 {
		intercept, writes := failures(n, broken)
		w := fresh()
		c := fakeclient.New(t, intercept, w.objects()...)
		r := newReconciler(w.backends, c, c, events.NewFakeRecorder(10))
		listener, service := &listenersv1alpha1.Listener{}, &corev1.Service{}
		for pass, want := range []error{broken, nil} {
			if err := c.Get(t.Context(), key, listener); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Reconcile(t.Context(), listener); !errors.Is(err, want) {
				t.Errorf("write %d failing, pass %d: got %v, want %v", n, pass, err, want)
			}
		}
		if err := errors.Join(c.Get(t.Context(), key, listener), c.Get(t.Context(), key, service)); err != nil {
			t.Fatal(err)
		}
		ignore := cmp.Options{
			cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "ManagedFields"), cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"),
		}
		if diff := cmp.Diff(wantListener, listener, ignore); diff != "" {
			t.Errorf("write %d failing: listener (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(wantService, service, ignore); diff != "" {
			t.Errorf("write %d failing: service (-want +got):\n%s", n, diff)
		}
		if *writes < 3 {
			t.Errorf("write %d failing: %d writes in all", n, *writes)
		}
	}
}

func TestRejectedServiceIsToldAndTriedAgain(t *testing.T) {
	rejection := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), key.Name, nil)
	rejection.ErrStatus.Message = "provided port is already allocated"
	intercept, _ := failures(0, rejection)
	listener, _, told, err := newWorld(listenersv1alpha1.ServiceTypeClusterIP).but(func(w *world) { w.service = nil }).pass(t, intercept)
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want the rejection, so that the pass is repeated", err)
	}
	accepted := listener.Status.Conditions[0]
	if accepted.Reason != listenersv1alpha1.ReasonServiceRejected || !strings.Contains(accepted.Message, "provided port is already allocated") {
		t.Errorf("got condition %v", accepted)
	}
	if diff := cmp.Diff([]string{"Warning ServiceRejected " + accepted.Message}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestBrieflyUnavailableAPIServerLeavesTheConditions(t *testing.T) {
	intercept, _ := failures(0, apierrors.NewServiceUnavailable("busy"))
	w := newWorld(listenersv1alpha1.ServiceTypeClusterIP)
	before := []metav1.Condition{{
		Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}}
	w.listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 2, Conditions: before}
	listener, _, told, err := w.pass(t, intercept)
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v, want that it is unavailable", err)
	}
	if listener.Status.IngressAddresses == nil || listener.Status.ObservedGeneration != 2 {
		t.Errorf("got status %v", listener.Status)
	}
	if diff := cmp.Diff(before, listener.Status.Conditions); diff != "" || len(told) > 0 {
		t.Errorf("events %v, conditions (-before +after):\n%s", told, diff)
	}
}

func TestSecondPassWritesAndTellsNothing(t *testing.T) {
	for name, w := range map[string]*world{
		"NodePort":  newWorld(listenersv1alpha1.ServiceTypeNodePort),
		"ClusterIP": newWorld(listenersv1alpha1.ServiceTypeClusterIP),
		"NodePort without node ports": newWorld(listenersv1alpha1.ServiceTypeNodePort).but(func(w *world) {
			w.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"type":"ClusterIP"}}`)
			w.service.Spec.Ports[0].NodePort = 0
		}),
	} {
		intercept, writes := failures(-1, nil)
		w = w.with(newNode("a", "10.0.0.1"), newVolume("pv", on("a")))
		c := fakeclient.New(t, intercept, w.objects()...)
		recorder := events.NewFakeRecorder(100)
		r := newReconciler(w.backends, c, c, recorder)
		listener := &listenersv1alpha1.Listener{}
		var counts [][2]int
		for range 3 {
			if err := c.Get(t.Context(), key, listener); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Reconcile(t.Context(), listener); err != nil {
				t.Fatal(err)
			}
			counts = append(counts, [2]int{*writes, len(recorder.Events)})
		}
		if diff := cmp.Diff([][2]int{{2, 2}, {2, 2}, {2, 2}}, counts); diff != "" {
			t.Errorf("%s: writes and events after each pass (-want +got):\n%s", name, diff)
		}
	}
}
