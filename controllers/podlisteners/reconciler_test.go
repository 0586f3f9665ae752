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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/podlisteners"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const podUID = types.UID("0b0b0b0b-1111-2222-3333-444444444444")

var (
	objectKey = types.NamespacedName{Namespace: "shop", Name: "pod-" + string(podUID)}
	portMap   = map[string]int32{"http": 31234}
	nodeAddr  = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: portMap}}
	// bothAddr are the addresses of the node after bothFamilies.
	bothAddr = []listenersv1alpha1.IngressAddress{
		{Address: "2001:db8::1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: portMap}, nodeAddr[0],
	}
)

// world is the shared one, with the PodListeners of the Pod.
type world struct {
	*objects.World
	// existing is the PodListeners of the Pod. There is none by default.
	existing *listenersv1alpha1.PodListeners
}

// newWorld returns a Pod that was bound to node-1 and mounts the Listener web, whose class has node ports, by name.
func newWorld() *world {
	w := &world{World: objects.NewWorld()}
	w.Listener.Name, w.Listener.UID, w.Listener.Generation = "web", "aaaa-bbbb", 3
	w.Listener.Spec.Ports, w.Listener.Status.ObservedGeneration, w.Listener.Status.NodePorts = nil, 3, portMap
	w.Pod.UID = podUID
	w.Claim.Labels, w.Claim.Annotations = nil, nil
	w.Claim.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: w.Volume.Name}
	w.Volume.Labels, w.Volume.Spec.CSI.VolumeAttributes = nil, map[string]string{names.AnnotationListenerName: "web"}
	return w
}

// publishedBefore gives the Pod a PodListeners with these entries.
func (w *world) publishedBefore(entries map[string]listenersv1alpha1.PodListener) {
	w.existing = newObject()
	w.existing.Spec.Listeners = entries
}

// newObject returns the empty PodListeners of the Pod.
func newObject() *listenersv1alpha1.PodListeners {
	object := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: objectKey.Namespace, Name: "web-0"}, podUID, "node-1")
	object.UID = "object-uid"
	return object
}

// bothFamilies gives the Service both IP families, IPv6 first, and the node an address of each.
func (w *world) bothFamilies() {
	w.Listener.Status.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	w.Node.Status.Addresses = append(w.Node.Status.Addresses, objects.InternalIP("2001:db8::1"))
}

// hostPort makes the class one with host ports, and gives the Pod one, or none if it is 0.
func (w *world) hostPort(number int32) {
	w.Class.Spec = listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, HostPort: &listenersv1alpha1.HostPortExposure{},
	}
	w.Listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}
	w.Listener.Status.NodePorts = nil
	w.Pod.Spec.Containers[0].Ports[0].HostPort = number
}

// advertise makes the class one that advertises addresses, with these targets in the status of the Listener.
func (w *world) advertise(targets ...listenersv1alpha1.Target) {
	w.Class.Spec.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: "edge.example"}
	w.Listener.Status.Targets = targets
}

// targetOf returns a target that is advertised with a port.
func targetOf(address string, ports map[string]int32, number int32) listenersv1alpha1.Target {
	return listenersv1alpha1.Target{Address: address, AddressType: "IP", Ports: ports, Advertised: advertisedAt(number)[0]}
}

func advertisedAt(number int32) []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{{Address: "edge.example", AddressType: "Hostname", Ports: map[string]int32{"http": number}}}
}

// classBased makes the claim a class-based one, whose Listener does not exist.
func (w *world) classBased() {
	w.Volume.Spec.CSI.VolumeAttributes = map[string]string{names.AnnotationListenerClass: "public"}
	w.Claim.Labels = map[string]string{"app": "web"}
	w.Listener = nil
}

// newReconciler returns a Reconciler that reads what the cache has of the objects of c.
func newReconciler(c client.WithWatch, recorder events.EventRecorder) *podlisteners.Reconciler {
	return &podlisteners.Reconciler{
		Client: fakeclient.Cached(c, "operators"), APIReader: c, Events: recorder, Backends: backends.All(),
		Applier: apply.New(c, names.FieldManagerVolume), Clock: clock.RealClock{}, Nodes: settling.NewNodes(clock.RealClock{}),
	}
}

// run reconciles once and returns the client, the events and the error.
func (w *world) run(t *testing.T, intercept interceptor.Funcs) (client.Client, chan string, error) {
	t.Helper()
	c := fakeclient.New(t, intercept, w.Objects(w.existing)...)
	recorder := events.NewFakeRecorder(100)
	r := newReconciler(c, recorder)
	if w.Pod != nil {
		r.Receive(t.Context(), w.Pod)
	}
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey})
	return c, recorder.Events, err
}

func (w *world) mustRun(t *testing.T) (client.Client, chan string) {
	t.Helper()
	c, recorded, err := w.run(t, interceptor.Funcs{})
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return c, recorded
}

// published returns the spec of the PodListeners without its summary, or nil if it does not exist.
func published(t *testing.T, c client.Client) *listenersv1alpha1.PodListenersSpec {
	t.Helper()
	var got listenersv1alpha1.PodListeners
	switch err := c.Get(t.Context(), objectKey, &got); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatalf("reading PodListeners: %v", err)
	}
	got.Spec.Summary = "" // TestSummaryListsAllVolumes
	return &got.Spec
}

func TestSummaryListsAllVolumes(t *testing.T) {
	w := newWorld()
	w.publishedBefore(map[string]listenersv1alpha1.PodListener{
		"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
		"metrics":  {Scope: "Cluster"},
	})
	w.existing.Spec.Summary = "outdated"
	w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume("metrics", "not-bound"))
	c, _ := w.mustRun(t)
	var got listenersv1alpha1.PodListeners
	if err := c.Get(t.Context(), objectKey, &got); err != nil {
		t.Fatal(err)
	}
	if want := "listener=192.0.2.1:31234, metrics=<pending>"; got.Spec.Summary != want {
		t.Errorf("got %q, want %q", got.Spec.Summary, want)
	}
}

// withoutStart ignores the addresses that a Pod started with, which TestAddressesAtTheStartOfAPodAreRecorded is about.
var withoutStart = cmpopts.IgnoreFields(listenersv1alpha1.PodListenersSpec{}, "StartAddresses", "RestartOnChange")

func TestPodGetsTheAddressOfItsNode(t *testing.T) {
	c, recorded := newWorld().mustRun(t)
	want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{
		"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
	}}
	if diff := cmp.Diff(want, published(t, c), withoutStart); diff != "" {
		t.Errorf("PodListeners (-want +got):\n%s", diff)
	}
	var pod corev1.Pod
	var pv corev1.PersistentVolume
	if err := errors.Join(
		c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-0"}, &pod),
		c.Get(t.Context(), types.NamespacedName{Name: "pvc-claim-uid"}, &pv),
	); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"listener.stackable.tech/mnt.aaaabbbb": "web"}, pod.Labels); diff != "" {
		t.Errorf("labels of the Pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"listeners.stackable.tech/listener-namespace": "shop", "listeners.stackable.tech/listener-name": "web",
	}, pv.Labels); diff != "" {
		t.Errorf("labels of the volume (-want +got):\n%s", diff)
	}
	if got := pv.Annotations[names.AnnotationNode]; got != "node-1" {
		t.Errorf("the volume's recorded node is %q, want node-1", got)
	}
	if len(recorded) > 0 {
		t.Errorf("unexpected event: %s", <-recorded)
	}
}

func TestEntriesOfPodListeners(t *testing.T) {
	lb := []listenersv1alpha1.IngressAddress{{Address: "lb.example", AddressType: "Hostname", Ports: map[string]int32{"http": 8080}}}
	old := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Cluster", IngressAddresses: lb, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	none := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	for name, tc := range map[string]struct {
		change func(*world)
		want   map[string]listenersv1alpha1.PodListener
	}{
		"all addresses of a Listener without node ports": {
			func(w *world) {
				w.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
				w.Listener.Status.NodePorts, w.Listener.Status.IngressAddresses = nil, lb
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Cluster", IngressAddresses: lb, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the name of a Listener that does not exist": {
			func(w *world) { w.Listener = nil },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the node and the host ports of this Pod, and not those of other Pods": {
			func(w *world) { w.hostPort(80); w.Listener.Status.IngressAddresses = lb },
			map[string]listenersv1alpha1.PodListener{"listener": {
				Scope:                "Node",
				IngressAddresses:     []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": 80}}},
				PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
			}},
		},
		"the ports of a Pod in the network of its node": {
			func(w *world) { w.hostPort(0); w.Pod.Spec.HostNetwork = true },
			map[string]listenersv1alpha1.PodListener{"listener": {
				Scope:                "Node",
				IngressAddresses:     []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": 8080}}},
				PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
			}},
		},
		"what is advertised in place of the address of this node": {
			func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1), targetOf("192.0.2.2", portMap, 2)) },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: advertisedAt(1), PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"what is advertised in place of the host ports of this Pod": {
			func(w *world) {
				w.hostPort(80)
				w.advertise(targetOf("192.0.2.1", map[string]int32{"http": 81}, 1), targetOf("192.0.2.1", map[string]int32{"http": 80}, 2))
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: advertisedAt(2), PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"what is advertised while the class does not exist": {
			func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1)); w.Class = nil },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: advertisedAt(1), PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"what is advertised, until the Listener has the addresses by a class that advertises none": {
			func(w *world) { w.advertise(targetOf("192.0.2.1", portMap, 1)); w.Class.Spec.Advertise = nil },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: advertisedAt(1), PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"no address of the node if none is advertised for it": {
			func(w *world) { w.advertise(targetOf("192.0.2.2", portMap, 2)) },
			map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}},
		},
		"the previous addresses while none are advertised for the node": {
			func(w *world) { w.advertise(); w.publishedBefore(old); w.Listener.Status.IngressAddresses = lb },
			map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: lb, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}},
		},
		"no address of other Pods for a Pod without host ports": {
			func(w *world) { w.hostPort(0); w.Listener.Status.IngressAddresses = lb },
			map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}},
		},
		"node ports, until a Pod of a class that changed has host ports": {
			func(w *world) { w.hostPort(0); w.Listener.Status.NodePorts = portMap },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the previous addresses while the status of the Listener is outdated": {
			func(w *world) {
				w.Listener.Generation++
				w.publishedBefore(old)
				w.Listener.Status.IngressAddresses = lb
			},
			old,
		},
		"the previous addresses while the class does not exist": {
			func(w *world) { w.Class = nil; w.publishedBefore(old); w.Listener.Status.IngressAddresses = lb },
			old,
		},
		"no address that the Listener has no more, while its class does not exist": {
			func(w *world) { w.Class = nil; w.publishedBefore(old) },
			none,
		},
		"no address of a Listener that was deleted": {
			func(w *world) { w.Listener = nil; w.publishedBefore(old) },
			none,
		},
		"no address of a Listener that is being deleted, whose status does not change any more": {
			func(w *world) {
				w.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
				w.Listener.Status.NodePorts, w.Listener.Status.IngressAddresses = nil, lb
				w.Listener.DeletionTimestamp, w.Listener.Finalizers = ptr.To(metav1.Now()), []string{"example.com/tenant"}
				w.publishedBefore(old)
			},
			none,
		},
		"no address of an earlier Listener of the name": {
			func(w *world) { w.Listener.Status = nil; w.publishedBefore(old) },
			none,
		},
		"the new address of the node while the class of a running Pod does not exist": {
			func(w *world) {
				w.Class = nil
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {
					Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
				}})
				w.Listener.Status.IngressAddresses, w.Node.Status.Addresses[0].Address = nodeAddr, "192.0.2.7"
			},
			map[string]listenersv1alpha1.PodListener{"listener": {
				Scope: "Node", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.7", AddressType: "IP", Ports: portMap}},
				PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
			}},
		},
		"the addresses in the status for a new Pod while the class does not exist": {
			func(w *world) {
				w.Class, w.Listener.Status.NodePorts, w.Listener.Status.IngressAddresses = nil, nil, lb
			},
			old,
		},
		"the address of the node for a new Pod while the class does not exist": {
			func(w *world) { w.Class = nil },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the addresses of the node in each family of the Service while the class does not exist": {
			func(w *world) {
				w.Class = nil
				w.bothFamilies()
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: bothAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the host name of the node while the class does not exist and other addresses are host names": {
			func(w *world) {
				w.Class, w.Listener.Status.IngressAddresses = nil, []listenersv1alpha1.IngressAddress{{Address: "node-2.example", AddressType: "Hostname", Ports: portMap}}
				w.Node.Status.Addresses = append(w.Node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-1.example"})
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {
					Scope: "Node", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "node-1.example", AddressType: "Hostname", Ports: portMap}},
					PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
				},
			},
		},
		"the address of the node that the status has while the class does not exist": {
			func(w *world) {
				w.Class, w.Listener.Status.IngressAddresses = nil, []listenersv1alpha1.IngressAddress{{Address: "node-1.example", AddressType: "Hostname", Ports: portMap}}
				w.Node.Status.Addresses = append(w.Node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "node-1.example"})
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {
					Scope: "Node", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "node-1.example", AddressType: "Hostname", Ports: portMap}},
					PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
				},
			},
		},
		"the address of the node that the class chooses": {
			func(w *world) {
				w.Class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{Types: []listenersv1alpha1.NodeAddressType{"ExternalDNS", "InternalIP"}}
				w.Node.Status.Addresses = append(w.Node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "node-1.example"})
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {
					Scope: "Node", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "node-1.example", AddressType: "Hostname", Ports: portMap}},
					PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
				},
			},
		},
		"the addresses of the node in the order of the Service's families": {
			func(w *world) {
				w.Class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
				w.bothFamilies()
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: bothAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the address that the node advertises": {
			func(w *world) {
				w.Node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100.1"}
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {
					Scope: "Node", IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "198.51.100.1", AddressType: "IP", Ports: portMap}},
					PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
				},
			},
		},
		"no address of a node that advertises an invalid one": {
			func(w *world) {
				w.Node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100"}
			},
			map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}},
		},
		"the previous addresses while the node advertises an invalid one": {
			func(w *world) {
				w.Node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100"}
				w.Listener.Status.IngressAddresses = nodeAddr
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{
					"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
				})
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the previous addresses while the Node does not exist": {
			func(w *world) { w.Node = nil; w.publishedBefore(old); w.Listener.Status.IngressAddresses = lb },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: lb, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the addresses that the Pod was given while its claim does not exist": {
			func(w *world) { w.Claim = nil; w.publishedBefore(old); w.Listener.Status.IngressAddresses = lb },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: lb, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"no address of a new Pod whose claim does not exist": {
			func(w *world) { w.Claim = nil; w.publishedBefore(none) },
			none,
		},
		"no entry for a volume that the Pod does not have": {
			func(w *world) {
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{"other": old["listener"]})
			},
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
		"the node that is missing in an object of Stackable's operator": {
			func(w *world) { w.publishedBefore(old); w.existing.Spec.NodeName = "" },
			map[string]listenersv1alpha1.PodListener{
				"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			c, _ := w.mustRun(t)
			want := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: tc.want}
			if diff := cmp.Diff(want, published(t, c), withoutStart); diff != "" {
				t.Errorf("PodListeners (-want +got):\n%s", diff)
			}
		})
	}
}

// The addresses that a Pod started with decide whether it is reported and evicted: an unknown start must never look
// like a change, and a change from before the class restarted Pods must not restart one.
func TestAddressesAtTheStartOfAPodAreRecorded(t *testing.T) {
	earlier := []listenersv1alpha1.IngressAddress{{Address: "192.0.2.9", AddressType: "IP", Ports: portMap}}
	before := func(addresses, start []listenersv1alpha1.IngressAddress, restart bool) func(*world) {
		return func(w *world) {
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: addresses}})
			w.existing.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": start, "removed": earlier}
			if restart {
				w.existing.Spec.RestartOnChange = []string{"listener", "removed"}
			}
		}
	}
	both := func(changes ...func(*world)) func(*world) {
		return func(w *world) {
			for _, change := range changes {
				change(w)
			}
		}
	}
	restarts := func(w *world) { w.Class.Spec.OnAddressChange = listenersv1alpha1.OnAddressChangeRestart }
	for name, tc := range map[string]struct {
		change             func(*world)
		want               []listenersv1alpha1.IngressAddress
		outdated, restarts bool
	}{
		"the first ones":                              {change: restarts, want: nodeAddr},
		"the first ones, by default":                  {change: func(*world) {}, want: nodeAddr},
		"none before there are any":                   {change: both(restarts, func(w *world) { w.Listener.Status.ObservedGeneration = 0 })},
		"the first ones after a wait":                 {change: both(restarts, before(nil, nil, false)), want: nodeAddr},
		"the same after a change":                     {change: both(restarts, before(nodeAddr, earlier, true)), want: earlier, outdated: true, restarts: true},
		"the same after a change, by default":         {change: before(nodeAddr, earlier, false), want: earlier, outdated: true},
		"the same after a change and back":            {change: both(restarts, before(earlier, nodeAddr, true)), want: nodeAddr},
		"the present ones of a Pod that runs":         {change: both(restarts, before(earlier, nil, false)), want: nodeAddr},
		"no restart for a change before the class":    {change: both(restarts, before(nodeAddr, earlier, false)), want: earlier, outdated: true},
		"no restart any more when the class rewrites": {change: before(nodeAddr, earlier, true), want: earlier, outdated: true},
		"the same while there is no class":            {change: both(before(earlier, earlier, true), func(w *world) { w.Class = nil }), want: earlier, outdated: true, restarts: true},
		"the same while there are no addresses":       {change: both(restarts, before(earlier, earlier, true), func(w *world) { w.Node = nil }), want: earlier},
		"the same while the Listener does not exist":  {change: both(restarts, before(earlier, earlier, true), func(w *world) { w.Listener = nil }), want: earlier},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			c, _ := w.mustRun(t)
			spec := published(t, c)
			want := map[string][]listenersv1alpha1.IngressAddress{"listener": tc.want}
			if tc.want == nil {
				want = nil
			}
			if diff := cmp.Diff(want, spec.StartAddresses); diff != "" {
				t.Errorf("addresses at the start (-want +got):\n%s", diff)
			}
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
			w.Listener.Status.Conditions = []metav1.Condition{{
				Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: tc.reason, Message: "through the previous exposure",
			}}
			if tc.age > 0 {
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {
					Scope: "Node", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web", IngressAddresses: tc.has,
				}})
				w.existing.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
			}
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
			recorder := events.NewFakeRecorder(10)
			r := newReconciler(c, recorder)
			result, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod))
			if err != nil {
				t.Fatal(err)
			}
			spec := published(t, c)
			if got := spec.Listeners["listener"].IngressAddresses; !cmp.Equal(got, tc.want) || len(spec.StartAddresses["listener"]) != len(tc.want) {
				t.Errorf("addresses %v, at the start %v; want %v", got, spec.StartAddresses, tc.want)
			}
			if waits := len(recorder.Events) == 1; waits != tc.waits || tc.waits && (result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Minute-tc.age) {
				t.Errorf("%d events, looks again after %s", len(recorder.Events), result.RequeueAfter)
			}
		})
	}
}

// The Listener has the addresses of its previous exposure until its first Pod with a host port runs.
func TestAPodWithAHostPortDoesNotWaitForItsListener(t *testing.T) {
	w := newWorld()
	w.hostPort(8080)
	w.Listener.Status.IngressAddresses = nodeAddr
	w.Listener.Status.Conditions = []metav1.Condition{{
		Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonPreviousExposure,
	}}
	c, _ := w.mustRun(t)
	if got := published(t, c).Listeners["listener"].IngressAddresses; len(got) != 1 || got[0].Ports["http"] != 8080 {
		t.Errorf("addresses %v", got)
	}
}

func TestPodWithoutBoundListenerVolumesHasNoPodListeners(t *testing.T) {
	for name, change := range map[string]func(*world){
		"without claims":           func(w *world) { w.Pod.Spec.Volumes = nil },
		"claim that is not bound":  func(w *world) { w.Claim.Spec.VolumeName = "" },
		"volume of another driver": func(w *world) { w.Volume.Spec.CSI.Driver = "other.example" },
		"volume of another claim":  func(w *world) { w.Volume.Spec.ClaimRef.UID = "another" },
		"Pod not bound to a node":  func(w *world) { w.Pod.Spec.NodeName = "" },
		"finished Pod":             func(w *world) { w.Pod.Status.Phase = corev1.PodSucceeded },
		"Pod that is being deleted": func(w *world) {
			w.Pod.DeletionTimestamp, w.Pod.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		},
		"ephemeral claim of another": func(w *world) {
			w.Pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			w.Claim.Name, w.Volume.Spec.ClaimRef.Name = "web-0-listener", "web-0-listener"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			change(w)
			if _, _, err := w.run(t, fakeclient.FailWrite(0, errors.New("unexpected write"))); err != nil {
				t.Error(err)
			}
		})
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
			c := fakeclient.New(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					writes++
					return c.Create(ctx, o, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
					if _, ok := o.(*listenersv1alpha1.PodListeners); ok {
						writes++
					}
					return c.Patch(ctx, o, patch, options...)
				},
			}, w.Objects(w.existing)...)
			recorder := events.NewFakeRecorder(10)
			r := newReconciler(c, recorder)
			reconcileOnce := func() time.Duration {
				t.Helper()
				result, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod))
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			if wait := reconcileOnce(); wait <= 0 || wait > 5*time.Second {
				t.Errorf("waits %s", wait)
			}
			var pod corev1.Pod
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), &pod); err != nil || pod.Labels[names.PodMountLabel(w.Listener.UID)] != "web" {
				t.Errorf("the Pod has the labels %v (%v)", pod.Labels, err)
			}
			if writes > 0 || len(recorder.Events) > 0 {
				t.Errorf("%d writes, %d events before the addresses are known", writes, len(recorder.Events))
			}
			var listener listenersv1alpha1.Listener
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Listener), &listener); err != nil {
				t.Fatal(err)
			}
			listener.Status = exposed
			listener.Status.ObservedGeneration = listener.Generation
			if err := c.Status().Update(t.Context(), &listener); err != nil {
				t.Fatal(err)
			}
			if wait := reconcileOnce() + reconcileOnce(); wait != 0 {
				t.Errorf("waits %s", wait)
			}
			if got := published(t, c).Listeners["listener"].IngressAddresses; !cmp.Equal(got, nodeAddr) || writes != 1 {
				t.Errorf("addresses %v after %d writes", got, writes)
			}
		})
	}
}

// The node agent waits longer for an address than for an object that does not exist.
func TestPodListenersIsWrittenWhileAListenerTakesLongToBeExposed(t *testing.T) {
	w := newWorld()
	w.Listener.CreationTimestamp = metav1.NewTime(time.Now().Add(-5 * time.Second))
	w.Listener.Status = nil
	c, _ := w.mustRun(t)
	want := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	if got := published(t, c); got == nil || !cmp.Equal(got.Listeners, want) {
		t.Errorf("PodListeners %+v", got)
	}
}

func TestSomeFailuresToCreatePodListenersAreNoErrors(t *testing.T) {
	resource := schema.GroupResource{Group: listenersv1alpha1.GroupVersion.Group, Resource: "podlisteners"}
	terminating := apierrors.NewForbidden(resource, objectKey.Name, errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		failure error
		want    bool // an error
	}{
		"namespace that is being deleted":     {terminating, false},
		"object that is not in the cache yet": {apierrors.NewAlreadyExists(resource, objectKey.Name), false},
		"permission that the operator lacks":  {apierrors.NewForbidden(resource, objectKey.Name, errors.New("no permission")), true},
		"API server that is not available":    {errors.New("the API server is unavailable"), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newWorld().run(t, interceptor.Funcs{Create: func(
				context.Context, client.WithWatch, client.Object, ...client.CreateOption,
			) error {
				return tc.failure
			}})
			if tc.want != errors.Is(err, tc.failure) || !tc.want && err != nil {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// The users of a namespace see events, and not the log of the operator.
func TestARejectionByThePolicyOfAnAdministratorIsReported(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "web-0", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		failure  error
		reported bool
	}{
		"by a webhook or by permissions": {apierrors.NewForbidden(pods, "web-0", errors.New("no labels here")), true},
		"by a policy":                    {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-0", field.ErrorList{field.Forbidden(nil, "no labels here")}), true},
		"by the end of the namespace":    {terminating, false},
		"by a newer version":             {apierrors.NewConflict(pods, "web-0", errors.New("no labels here")), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, recorded, err := newWorld().run(t, interceptor.Funcs{Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption,
			) error {
				if _, isPod := o.(*corev1.Pod); isPod {
					return tc.failure
				}
				return c.Patch(ctx, o, patch, options...)
			}})
			if !errors.Is(err, tc.failure) {
				t.Fatalf("error is %v", err)
			}
			event := ""
			select {
			case event = <-recorded:
			default:
			}
			if reported := strings.HasPrefix(event, "Warning RequestRejected ") && strings.Contains(event, "no labels here"); reported != tc.reported || !reported && event != "" {
				t.Errorf("event is %q", event)
			}
		})
	}
}

func TestPodListenersThatDoesNotMatchIsReplacedOrDeleted(t *testing.T) {
	right := &listenersv1alpha1.PodListenersSpec{NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{
		"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
	}}
	forged := map[string]listenersv1alpha1.PodListener{"listener": {
		Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
		IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: "evil.example", AddressType: "Hostname", Ports: portMap}},
	}}
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
		"with a finalizer, of a Pod that does not exist": {func(w *world) {
			w.existing.Finalizers = []string{"example.com/x"}
			w.Pod = nil
		}, nil},
		"with a finalizer, and deleted": {func(w *world) {
			w.existing.Finalizers, w.existing.DeletionTimestamp = []string{"example.com/x"}, ptr.To(metav1.Now())
		}, right},
		"with a second owner": {func(w *world) {
			w.existing.OwnerReferences = append(w.existing.OwnerReferences, metav1.OwnerReference{Kind: "Node", UID: "x"})
		}, right},
		"of a Pod that does not exist": {func(w *world) { w.Pod = nil }, nil},
		"of a Pod of another uid":      {func(w *world) { w.Pod.UID = "another" }, nil},
		"of a Pod without claims":      {func(w *world) { w.Pod.Spec.Volumes = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.existing = newObject()
			tc.change(w)
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
			r := newReconciler(c, events.NewFakeRecorder(10))
			if w.Pod != nil {
				r.Receive(t.Context(), w.Pod)
			}
			for range 2 { // the event of the deletion requests the object again
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, published(t, c), withoutStart); diff != "" {
				t.Errorf("PodListeners (-want +got):\n%s", diff)
			}
			var got listenersv1alpha1.PodListeners
			if err := c.Get(t.Context(), objectKey, &got); client.IgnoreNotFound(err) != nil || len(got.Labels)+len(got.Finalizers) > 0 {
				t.Errorf("labels %v and finalizers %v are left, error %v", got.Labels, got.Finalizers, err)
			}
		})
	}
}

// Requests of PodListeners that were deleted have no object that names the Pod.
func TestDeletedPodListenersAreCreatedAgainWhileTheirPodExists(t *testing.T) {
	w := newWorld()
	c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
	r := newReconciler(c, events.NewFakeRecorder(10))
	request := r.Receive(t.Context(), w.Pod)
	reconcileAfter := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	reconcileAfter(nil)
	reconcileAfter(nil) // now the cache has had the object
	reconcileAfter(c.Delete(t.Context(), newObject()))
	if published(t, c) == nil {
		t.Error("the PodListeners of a Pod were not created again")
	}
	// A Pod of the same name is another Pod.
	second := w.Pod.DeepCopy()
	second.UID, second.ResourceVersion = "second", ""
	if err := errors.Join(c.Delete(t.Context(), w.Pod), c.Create(t.Context(), second)); err != nil {
		t.Fatal(err)
	}
	reconcileAfter(nil)
	if published(t, c) != nil {
		t.Error("the PodListeners of a deleted Pod exist")
	}
	request = r.Receive(t.Context(), second)
	reconcileAfter(nil)
	var created listenersv1alpha1.PodListeners
	if err := c.Get(t.Context(), request.NamespacedName, &created); err != nil {
		t.Errorf("the PodListeners of the new Pod: %v", err)
	}
}

func TestListenerOfAClassBasedClaimIsApplied(t *testing.T) {
	w := newWorld()
	w.classBased()
	c, _ := w.mustRun(t)
	var got listenersv1alpha1.Listener
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "listener-web-0"}, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{
		{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-web-0", UID: "claim-uid"},
		{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-claim-uid", UID: "pv-uid"},
	}, got.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	want := listenersv1alpha1.ListenerSpec{
		ClassName:                ptr.To("public"),
		Ports:                    []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}},
		PublishNotReadyAddresses: ptr.To(true),
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// The status is that of the ports or the class of the earlier Pod until the Listener is exposed again.
func TestAPodWithOtherPortsDoesNotStartWithTheAddressesOfTheEarlierOne(t *testing.T) {
	w := newWorld()
	listener := w.Listener
	w.classBased()
	listener.Name, w.Listener = w.Claim.Name, listener
	listener.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.Claim.Name, UID: w.Claim.UID}, {APIVersion: "v1", Kind: "PersistentVolume", Name: w.Volume.Name, UID: w.Volume.UID},
	}
	listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "earlier", Port: 9092, Protocol: ptr.To(corev1.ProtocolTCP)}}
	listener.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	c := fakeclient.New(t, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if err := c.Apply(ctx, o, options...); err != nil {
			return err
		}
		if applied, ok := o.(interface{ GetKind() string }); ok && applied.GetKind() == "Listener" {
			o.(interface{ SetGeneration(int64) }).SetGeneration(4) // as the API server does when the spec changes
		}
		return nil
	}}, w.Objects(w.existing)...)
	r := newReconciler(c, events.NewFakeRecorder(10))
	if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
		t.Fatal(err)
	}
	if got := published(t, c); got != nil && len(got.Listeners["listener"].IngressAddresses) > 0 {
		t.Errorf("the Pod starts with %+v", got.Listeners)
	}
}

func TestListenerOfAClassBasedClaimIsCreatedWhenThePodIsBound(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   int
	}{
		"bound":                   {func(*world) {}, 1},
		"not bound":               {func(w *world) { w.Pod.Spec.NodeName = "" }, 0},
		"claim not bound":         {func(w *world) { w.Claim.Spec.VolumeName = "" }, 0},
		"no volume":               {func(w *world) { w.Volume = nil }, 0},
		"volume of another claim": {func(w *world) { w.Volume.Spec.ClaimRef.UID = "another" }, 0},
		"being deleted": {func(w *world) {
			w.Pod.DeletionTimestamp, w.Pod.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		}, 0},
		"rejected": {func(w *world) { w.Pod.Status.Phase = corev1.PodFailed }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.classBased()
			tc.change(w)
			c, _ := w.mustRun(t)
			var listeners listenersv1alpha1.ListenerList
			if err := c.List(t.Context(), &listeners); err != nil {
				t.Fatal(err)
			}
			if len(listeners.Items) != tc.want {
				t.Errorf("Listeners %+v, want %d", listeners.Items, tc.want)
			}
			var pod corev1.Pod
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), &pod); err != nil || len(pod.Labels) != tc.want {
				t.Errorf("the Pod has the labels %v (%v), want %d", pod.Labels, err, tc.want)
			}
		})
	}
}

// A quota refuses the Listener of one volume only.
func TestOtherVolumesOfAPodWhoseListenerAQuotaForbidsGetTheirAddresses(t *testing.T) {
	w := newWorld()
	own, volume := w.Claim.DeepCopy(), w.Volume.DeepCopy()
	own.Name, own.UID, own.Spec.VolumeName = "own", "own-uid", "pvc-own"
	volume.Name, volume.UID, volume.Spec.ClaimRef.UID = "pvc-own", "pv-own-uid", "own-uid"
	volume.Spec.CSI.VolumeAttributes = map[string]string{names.AnnotationListenerClass: "public"}
	w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume("own", "own"))
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "listeners"}, "own", errors.New("exceeded quota: addresses"))
	c := fakeclient.New(t, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if desired, ok := o.(interface{ GetKind() string }); ok && desired.GetKind() == "Listener" {
			return quota
		}
		return c.Apply(ctx, o, options...)
	}}, append(w.Objects(w.existing), own, volume)...)
	r := newReconciler(c, events.NewFakeRecorder(10))
	r.Receive(t.Context(), w.Pod)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey}); !errors.Is(err, quota) {
		t.Errorf("error is %v, want that of the quota, so that it is tried again", err)
	}
	spec := published(t, c)
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
			w := newWorld()
			w.classBased()
			w.Claim.Annotations = map[string]string{names.AnnotationPorts: tc.annotation, names.AnnotationProvisioner: names.Driver}
			w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, corev1.Container{Ports: tc.ports})
			c, recorded := w.mustRun(t)
			listener := &listenersv1alpha1.Listener{}
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "listener-web-0"}, listener); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range listener.Spec.Ports {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			close(recorded)
			var texts []string
			for e := range recorded {
				if !strings.Contains(e, listenersv1alpha1.ReasonWaitingForAddress) {
					texts = append(texts, e)
				}
			}
			if len(texts) != len(tc.events) || len(texts) == 1 && !strings.HasPrefix(texts[0], tc.events[0]) {
				t.Errorf("events %q, want %q", texts, tc.events)
			}
		})
	}
}

func TestPodsThatShareAClaimDoNotOverwriteEachOthersPorts(t *testing.T) {
	w := newWorld()
	w.classBased()
	second := w.Pod.DeepCopy()
	second.Name, second.UID = "web-1", "second"
	second.Spec.Containers[0].Ports[0].ContainerPort = 9090
	applied := 0
	c := fakeclient.New(t, interceptor.Funcs{Apply: func(
		ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption,
	) error {
		if object, ok := o.(interface{ GetKind() string }); ok && object.GetKind() == "Listener" {
			applied++
		}
		return c.Apply(ctx, o, options...)
	}}, append(w.Objects(w.existing), second)...)
	r := newReconciler(c, events.NewFakeRecorder(100))
	for range 5 {
		for _, pod := range []*corev1.Pod{w.Pod, second} {
			if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), pod)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if applied != 2 {
		t.Errorf("the Listener was applied %d times, want once for each of two mounts", applied)
	}
	var got listenersv1alpha1.Listener
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Claim), &got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Ports[0].Port != 9090 {
		t.Errorf("the Listener has port %d, want that of the last Pod that mounted the claim", got.Spec.Ports[0].Port)
	}
}

// The ports stay those of the Pod that mounted the claim last, and until the status follows, the addresses those that
// work.
func TestListenerHasTheClassThatItsClaimNamesNow(t *testing.T) {
	const command = "to use another class, change the claim: kubectl annotate pvc listener-web-0 --namespace shop listeners.stackable.tech/listener-class=CLASS --overwrite"
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
		"as before": {
			annotations: byClass("public"), class: other, of: "public", want: "public",
		},
		"the claim names another class": {
			annotations: byClass("other"), class: other, of: "public", want: "other",
			event: `Normal ClassOfClaim spec.className was "public", and is "other" now, as claim listener-web-0 says; ` + command,
		},
		"the Listener was changed": {
			annotations: byClass("public"), class: other, of: "other", want: "public",
			event: `Normal ClassOfClaim spec.className was "other", and is "public" now, as claim listener-web-0 says; ` + command,
		},
		"the Listener was changed to no class": {
			annotations: byClass("public"), class: other, of: "", want: "public",
			event: `Normal ClassOfClaim spec.className was "", and is "public" now, as claim listener-web-0 says; ` + command,
		},
		"the Listener was changed before the Pod started again": {
			annotations: byClass("public"), class: other, of: "other", remounts: true, want: "public",
			event: `Normal ClassOfClaim spec.className was "other", and is "public" now, as claim listener-web-0 says; ` + command,
		},
		"the annotation was removed": {
			class: other, of: "public", want: "public",
		},
		"a class that does not exist": {
			annotations: byClass("othr"), class: other, of: "public", want: "public",
			event: `Warning ClassNotFound ListenerClass "othr" does not exist, so Listener listener-web-0 keeps class public; name another class in the annotation listeners.stackable.tech/listener-class`,
		},
		"a class that does not exist when the Pod starts again": {
			annotations: byClass("othr"), class: other, of: "public", remounts: true, want: "public",
			event: `Warning ClassNotFound ListenerClass "othr" does not exist, so Listener listener-web-0 keeps class public; name another class in the annotation listeners.stackable.tech/listener-class`,
		},
		"a class that does not allow the namespace": {
			annotations: byClass("other"), class: private, of: "public", want: "public",
			event: `Warning NamespaceNotAllowed ListenerClass other does not allow namespace shop, so Listener listener-web-0 keeps class public; name another class in the annotation listeners.stackable.tech/listener-class`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			listener := w.Listener
			w.classBased()
			w.Claim.Annotations, listener.Name, w.Listener = tc.annotations, w.Claim.Name, listener
			listener.Spec.ClassName, listener.Annotations = &tc.of, map[string]string{names.AnnotationClaim: w.Claim.Name}
			listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}}
			listener.Status.IngressAddresses = nodeAddr
			listener.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.Claim.Name, UID: w.Claim.UID}, {APIVersion: "v1", Kind: "PersistentVolume", Name: w.Volume.Name, UID: w.Volume.UID},
			}
			if !tc.remounts {
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr}})
				w.Pod.Spec.Containers[0].Ports[0].ContainerPort = 9090
			}
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing, tc.class)...)
			recorder := events.NewFakeRecorder(10)
			r := newReconciler(c, recorder)
			for range 2 {
				if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
					t.Fatal(err)
				}
			}
			var got listenersv1alpha1.Listener
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(listener), &got); err != nil {
				t.Fatal(err)
			}
			if got.Class() != tc.want || got.Spec.Ports[0].Port != 8080 || got.UID != listener.UID {
				t.Errorf("the Listener has class %q and port %d, want %q and 8080", got.Class(), got.Spec.Ports[0].Port, tc.want)
			}
			if entry := published(t, c).Listeners["listener"]; !cmp.Equal(entry.IngressAddresses, nodeAddr) {
				t.Errorf("the Pod has the addresses %v", entry.IngressAddresses)
			}
			event := ""
			if len(recorder.Events) > 0 {
				event = <-recorder.Events
			}
			if event != tc.event || len(recorder.Events) > 0 {
				t.Errorf("event %q, want %q; %d others", event, tc.event, len(recorder.Events))
			}
		})
	}
}

func byClass(name string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: name}
}

func TestListenerOfAUserWithTheNameOfAClaimIsNotChanged(t *testing.T) {
	w := newWorld()
	existing := w.Listener
	w.classBased()
	existing.Name = "listener-web-0"
	w.Listener = existing
	c, recorded := w.mustRun(t)
	var got listenersv1alpha1.Listener
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(existing), &got); err != nil {
		t.Fatal(err)
	}
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
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node"}})
		}, "node-9"},
		// It may be the one that the volume was released from.
		"node that is lost": {func(w *world) { w.Node = nil }, ""},
		"node that is lost, after the volume was replaced": {func(w *world) {
			w.Node = nil
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr}})
		}, ""},
		"Pod that is being deleted, after the volume was replaced": {func(w *world) {
			w.Pod.DeletionTimestamp, w.Pod.Finalizers = ptr.To(metav1.Now()), []string{"a.example/b"}
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr}})
		}, ""},
		"node that is lost, mounted on another node before": {func(w *world) {
			w.Node = nil
			w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"}
		}, "node-9"},
		"ephemeral, which only this Pod mounts": {func(w *world) {
			w.Pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			w.Claim.Name, w.Volume.Spec.ClaimRef.Name = "web-0-listener", "web-0-listener"
			w.Claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: podUID, Controller: ptr.To(true)}}
		}, ""},
		"pinned": {func(w *world) {
			w.Volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
			}}}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			c, _ := w.mustRun(t)
			var pv corev1.PersistentVolume
			if err := c.Get(t.Context(), types.NamespacedName{Name: "pvc-claim-uid"}, &pv); err != nil {
				t.Fatal(err)
			}
			if got := pv.Annotations[names.AnnotationNode]; got != tc.want {
				t.Errorf("recorded node %q, want %q", got, tc.want)
			}
		})
	}
}

func TestVolumeOfAPinnedClassIsPinnedBeforeAnAddressIsPublished(t *testing.T) {
	withAddress := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string // the nodes to which the volume is pinned
	}{
		"first mount":     {func(*world) {}, []string{"node-1"}},
		"unpinned so far": {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationNode: "node-9"} }, []string{"node-1"}},
		"class unknown at the first reconcile": {func(w *world) {
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}})
		}, []string{"node-1"}},
		"pinned":                          {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-1") }, []string{"node-1"}},
		"pinned to another node":          {func(w *world) { w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-9") }, []string{"node-9"}},
		"with an address already":         {func(w *world) { w.publishedBefore(withAddress) }, nil},
		"class that is not pinned":        {func(w *world) { w.Class.Spec.PinnedNodePorts = false }, nil},
		"class that is no NodePort class": {func(w *world) { w.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer }, nil},
		"class that does not exist":       {func(w *world) { w.Class = nil }, nil},
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
			c, _, err := w.run(t, interceptor.Funcs{Create: func(
				ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption,
			) error {
				var pv corev1.PersistentVolume
				if err := c.Get(ctx, types.NamespacedName{Name: "pvc-claim-uid"}, &pv); err != nil {
					return err
				}
				pinnedAtCreation = pv.Spec.NodeAffinity != nil
				return c.Create(ctx, o, options...)
			}})
			if err != nil {
				t.Fatal(err)
			}
			var pv corev1.PersistentVolume
			if err := c.Get(t.Context(), types.NamespacedName{Name: "pvc-claim-uid"}, &pv); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, claim.PinnedNodes(&pv)); diff != "" {
				t.Errorf("pinned nodes (-want +got):\n%s", diff)
			}
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
	var pv corev1.PersistentVolume
	if err := c.Get(t.Context(), types.NamespacedName{Name: "pvc-claim-uid"}, &pv); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(affinity, pv.Spec.NodeAffinity); diff != "" || pv.Annotations[names.AnnotationNode] != "node-1" {
		t.Errorf("annotations %v; node affinity (-want +got):\n%s", pv.Annotations, diff)
	}
	if diff := cmp.Diff(nodeAddr, published(t, c).Listeners["listener"].IngressAddresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// A Listener that Stackable's listener operator created is owned by its volume only, and would be deleted with it.
func TestClaimBecomesOwnerOfItsListener(t *testing.T) {
	w := newWorld()
	w.classBased()
	w.Listener = &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Namespace: "shop", UID: "aaaa-bbbb", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-claim-uid", UID: "pv-uid"},
		}},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName: ptr.To("public"), Ports: []listenersv1alpha1.ListenerPort{{Name: "of-another-pod", Port: 9000}},
		},
	}
	w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr}}) // no new mount
	c, _ := w.mustRun(t)
	var l listenersv1alpha1.Listener
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "listener-web-0"}, &l); err != nil {
		t.Fatal(err)
	}
	if !claim.HasOwner(&l, "claim-uid") || !claim.HasOwner(&l, "pv-uid") || len(l.Spec.Ports) != 1 || l.Spec.Ports[0].Name != "of-another-pod" {
		t.Errorf("owners %v, ports %v", l.OwnerReferences, l.Spec.Ports)
	}
}

// Two Pods on two nodes share a claim: the volume is pinned to the node of the first one.
func TestPodOnAnotherNodeThanThatOfItsPinnedVolumeGetsNoAddress(t *testing.T) {
	w := newWorld()
	w.Class.Spec.PinnedNodePorts = true
	w.Volume.Spec.NodeAffinity = claim.NodeAffinity("node-9")
	c, recorded := w.mustRun(t)
	if got := published(t, c).Listeners["listener"].IngressAddresses; len(got) > 0 {
		t.Errorf("addresses %v", got)
	}
	const want = `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: PersistentVolume pvc-claim-uid is pinned to node node-9, ` +
		`where another Pod has mounted it first, but this Pod is on node node-1; delete the Pod, so that it is scheduled again`
	select {
	case got := <-recorded:
		if got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	default:
		t.Error("no event")
	}
}

func TestPodListenersOfAPodThatIsDeletedBeforeItStartedIsDeleted(t *testing.T) {
	waiting := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Cluster", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	filled := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
	for name, tc := range map[string]struct {
		phase   corev1.PodPhase
		entries map[string]listenersv1alpha1.PodListener
		deleted bool
	}{
		"while a volume waits":            {corev1.PodPending, waiting, true},
		"without entries":                 {corev1.PodPending, nil, true},
		"when all volumes have addresses": {corev1.PodPending, filled, false},
		"when the Pod runs":               {corev1.PodRunning, waiting, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Pod.DeletionTimestamp, w.Pod.Finalizers, w.Pod.Status.Phase = ptr.To(metav1.Now()), []string{"test/keep"}, tc.phase
			w.publishedBefore(tc.entries)
			before := metric.Value(t, "listener_operator_withdrawn_podlisteners_total")
			c, _ := w.mustRun(t)
			if got := published(t, c) == nil; got != tc.deleted {
				t.Errorf("deleted: %v, want %v", got, tc.deleted)
			}
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
		"no Listener":  {func(w *world) { w.Listener = nil }, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: it does not exist; the mount continues when it is created`},
		"no class":     {func(w *world) { w.Class, w.Listener.Status.NodePorts = nil, nil }, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: ListenerClass "public" does not exist`},
		"no className": {func(w *world) { w.Listener.Spec.ClassName, w.Listener.Status.NodePorts = nil, nil }, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: it has no spec.className`},
		"load balancer pending": {func(w *world) {
			w.Listener.Status.NodePorts = nil
			w.Listener.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Message: "no load balancer for Service web"}}
		}, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: no load balancer for Service web`},
		"no host port": {func(w *world) { w.hostPort(0) }, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: ` +
			`Pod shop/web-0 declares no hostPort for "http" (8080/TCP); set hostPort in the ports of its containers, or hostNetwork: true`},
		"advertised address of another Listener": {func(w *world) {
			w.advertise()
			w.Listener.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "False", Reason: "AddressTaken", Message: "a port is at edge.example:1"}}
		}, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: a port is at edge.example:1`},
		"message that is too long for an event": {func(w *world) {
			w.Listener.Status.NodePorts = nil
			w.Listener.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "False", Message: strings.Repeat("a", 5000)}}
		}, `Warning WaitingForAddress Volume "listener" waits for an address of Listener shop/web: ` + strings.Repeat("a", 1024-61-3) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			_, recorded := w.mustRun(t)
			select {
			case got := <-recorded:
				if got != tc.want {
					t.Errorf("event %q, want %q", got, tc.want)
				}
			default:
				t.Error("no event")
			}
		})
	}
}

// A Listener advertises an address for a node when it knows of a Pod there. So a new Pod is published without one, and
// without a warning.
func TestAPodIsKnownBeforeAnAddressIsAdvertisedForIt(t *testing.T) {
	for name, change := range map[string]func(*world){"node ports": func(*world) {}, "host ports": func(w *world) { w.hostPort(80) }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			change(w)
			w.advertise()
			w.Listener.CreationTimestamp = metav1.Now()
			w.Listener.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "WaitingForPods", Message: "no Pod"}}
			c, recorded := w.mustRun(t)
			want := map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"}}
			if diff := cmp.Diff(want, published(t, c).Listeners); diff != "" {
				t.Errorf("listeners (-want +got):\n%s", diff)
			}
			if len(recorded) > 0 {
				t.Errorf("unexpected event: %s", <-recorded)
			}
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
	c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
	var got recordedEvents
	r := newReconciler(c, &got)
	reconcileAfter := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
			t.Fatal(err)
		}
	}
	status := func(reason string, addresses ...listenersv1alpha1.IngressAddress) {
		t.Helper()
		for i := range 2 {
			listener := &listenersv1alpha1.Listener{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Listener), listener); err != nil {
				t.Fatal(err)
			}
			listener.Status = &listenersv1alpha1.ListenerStatus{
				ObservedGeneration: listener.Generation, IngressAddresses: addresses, ServiceName: ptr.To(fmt.Sprint("written-", i)),
				Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: reason, Message: "of " + reason}},
			}
			reconcileAfter(c.Status().Update(t.Context(), listener))
		}
	}
	const note = `Volume "listener" waits for an address of Listener shop/web: of `
	expect := func(when string, actions ...string) {
		t.Helper()
		var want recordedEvents
		for _, action := range actions {
			want = append(want, "Mount"+action+": "+note+action)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events %s (-want +got):\n%s", when, diff)
		}
		got = nil
	}
	status(listenersv1alpha1.ReasonWaitingForRouter)
	status(listenersv1alpha1.ReasonRouteNotAdmitted)
	expect("for two reasons", listenersv1alpha1.ReasonWaitingForRouter, listenersv1alpha1.ReasonRouteNotAdmitted)
	status("", nodeAddr...)
	status(listenersv1alpha1.ReasonRouteNotAdmitted)
	expect("after an address was removed", listenersv1alpha1.ReasonRouteNotAdmitted)
	reconcileAfter(c.Delete(t.Context(), newObject())) // a new one is created
	expect("for a new object")
	status("")
	got = nil
	unknown := &listenersv1alpha1.Listener{}
	reconcileAfter(c.Get(t.Context(), client.ObjectKeyFromObject(w.Listener), unknown))
	known := unknown.Status
	unknown.Status = nil
	reconcileAfter(c.Status().Update(t.Context(), unknown))
	unknown.Status = known
	reconcileAfter(c.Status().Update(t.Context(), unknown))
	expect("after the status was not known for a moment")
}

// Kubernetes deletes events after an hour.
func TestEventIsRepeatedWhileItsCauseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Class, w.Listener.Status.NodePorts = nil, nil
		c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
		var got recordedEvents
		r := newReconciler(c, &got)
		for range 4 {
			result, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod))
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != 30*time.Minute {
				t.Errorf("requeued after %s", result.RequeueAfter)
			}
			time.Sleep(15 * time.Minute) // another object changes
		}
		if len(got) != 2 {
			t.Errorf("%d events in 45 minutes: %q", len(got), got)
		}
	})
}

func TestSilentMistakesGetAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string
	}{
		"a claim that named a Listener names a class": {func(w *world) {
			w.Claim.Annotations = map[string]string{names.AnnotationListenerClass: "other"}
		}, "Mount: the annotations were changed after PersistentVolume pvc-claim-uid was provisioned, which has no effect: the volume still uses " +
			"listeners.stackable.tech/listener-name: web; to use another Listener, delete the claim and create it again"},
		"the Listener that a Pod mounts is deleted": {func(w *world) {
			w.Listener, w.Pod.Status.Phase = nil, corev1.PodRunning
			w.publishedBefore(map[string]listenersv1alpha1.PodListener{"listener": {Scope: "Node", IngressAddresses: nodeAddr}})
		}, `Mount: Listener shop/web was deleted, and its Service with it; the files of volume "listener" keep the last addresses, which do not work any more; create the Listener again`},
		"two containers share the name of a port": {func(w *world) {
			w.classBased()
			w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9090}}})
		}, `Mount: Volume "listener": several containers have a port of the same name, and only one is exposed: http is 9090/TCP, not 8080/TCP; ` +
			"rename one of them, so that both are exposed"},
		"nothing is wrong": {func(w *world) {
			w.Claim.Annotations = map[string]string{names.AnnotationListenerName: "web"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
			var got recordedEvents
			r := newReconciler(c, &got)
			for range 2 {
				if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
					t.Fatal(err)
				}
			}
			var want recordedEvents
			if tc.want != "" {
				want = recordedEvents{tc.want}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextReconcileRecoversFromAnyFailedWrite(t *testing.T) {
	broken := errors.New("the API server is unavailable")
	for n := range 4 {
		w := newWorld()
		w.classBased()
		// The Listener exists, so that one reconcile writes objects of all kinds: Listener, PersistentVolume, Pod and
		// PodListeners.
		w.Listener = &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Namespace: "shop", UID: "aaaa-bbbb", Generation: 1,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-0", UID: "gone"}}},
			Spec:   listenersv1alpha1.ListenerSpec{ClassName: ptr.To("public")},
			Status: &listenersv1alpha1.ListenerStatus{ObservedGeneration: 1, NodePorts: portMap},
		}
		c := fakeclient.New(t, fakeclient.FailWrite(n, broken), w.Objects(w.existing)...)
		r := newReconciler(c, events.NewFakeRecorder(10))
		_, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod))
		if !errors.Is(err, broken) {
			t.Errorf("write %d: the error is not returned: %v", n, err)
		}
		if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
			t.Errorf("write %d: the second reconcile failed: %v", n, err)
		}
		if got := published(t, c).Listeners["listener"].IngressAddresses; !cmp.Equal(got, nodeAddr) {
			t.Errorf("write %d: after the second reconcile the addresses are %v", n, got)
		}
	}
}

// Labels stand for a Listener whose name is too long for one.
func TestAPodMountsAListenerWithAnyName(t *testing.T) {
	long := strings.Repeat("a", 70)
	for name, label := range map[string]string{"7days-data": "7days-data", long: names.Service(long)} {
		w := newWorld()
		w.classBased()
		w.Claim.Name, w.Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, w.Volume.Spec.ClaimRef.Name = name, name, name
		c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
		r := newReconciler(c, events.NewFakeRecorder(10))
		reconcileOnce := func() {
			t.Helper()
			if _, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod)); err != nil {
				t.Fatal(err)
			}
		}
		reconcileOnce()
		listener, pod, pv := &listenersv1alpha1.Listener{}, &corev1.Pod{}, &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, listener); err != nil {
			t.Fatal(err)
		}
		listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: listener.Generation, IngressAddresses: nodeAddr, NodePorts: portMap}
		if err := c.Status().Update(t.Context(), listener); err != nil {
			t.Fatal(err)
		}
		reconcileOnce()
		if entry := published(t, c).Listeners["listener"]; entry.ListenerName != name || !cmp.Equal(entry.IngressAddresses, nodeAddr) {
			t.Errorf("%s: published %+v", name, entry)
		}
		if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), pod), c.Get(t.Context(), client.ObjectKeyFromObject(w.Volume), pv)); err != nil {
			t.Fatal(err)
		}
		if ofPod, ofVolume := pod.Labels[names.PodMountLabel(listener.UID)], pv.Labels[names.LabelListenerName]; ofPod != label || ofVolume != label {
			t.Errorf("%s: the Pod has label %q, the volume %q, want %q", name, ofPod, ofVolume, label)
		}
	}
}

func TestVolumeOfAListenerThatCannotExistIsReportedAndNotRetried(t *testing.T) {
	for _, name := range []string{"x%2f", "X", strings.Repeat("x", 254)} {
		w := newWorld()
		w.Volume.Spec.CSI.VolumeAttributes = map[string]string{names.AnnotationListenerName: name}
		_, recorded, err := w.run(t, fakeclient.FailWrite(0, errors.New("unexpected write")))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(recorded) != 1 {
			t.Fatalf("%s: %d events", name, len(recorded))
		}
		if event := <-recorded; !strings.HasPrefix(event, "Warning InvalidName ") {
			t.Errorf("%s: event %q", name, event)
		}
	}
}
