package podlisteners_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/podlisteners"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const podUID = types.UID("0b0b0b0b-1111-2222-3333-444444444444")

var (
	objectKey = types.NamespacedName{Namespace: "shop", Name: "pod-" + string(podUID)}
	portMap   = map[string]int32{"http": 31234}
	nodeAddr  = at("192.0.2.1")
	// bothAddr are the addresses of the node after bothFamilies.
	bothAddr = append(at("2001:db8::1"), nodeAddr...)
	// statefulSet controls Pods.
	statefulSet = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set", Controller: ptr.To(true)}
)

// at returns the address of a node, with the node ports of the Listener.
func at(ip string) []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{{Address: ip, AddressType: listenersv1alpha1.AddressTypeIP, Ports: portMap}}
}

// host returns a host name, with the node ports of the Listener.
func host(name string) []listenersv1alpha1.IngressAddress {
	return []listenersv1alpha1.IngressAddress{{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: portMap}}
}

// ofNode returns the entry of the claim's volume with addresses that lead to the Pod alone.
func ofNode(addresses ...listenersv1alpha1.IngressAddress) listenersv1alpha1.PodListener {
	return listenersv1alpha1.PodListener{
		Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: addresses, PersistentVolumeName: "pvc-claim-uid", ListenerName: "web",
	}
}

// ofCluster returns the entry of the claim's volume with addresses that lead to all Pods.
func ofCluster(addresses ...listenersv1alpha1.IngressAddress) listenersv1alpha1.PodListener {
	entry := ofNode(addresses...)
	entry.Scope = listenersv1alpha1.ListenerScopeCluster
	return entry
}

// owner returns an owner of a core kind.
func owner(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid}
}

// keeper returns a controller as the owner of what it does not control.
func keeper(controller metav1.OwnerReference) metav1.OwnerReference {
	controller.Controller = nil
	return controller
}

// world is the shared one, with the PodListeners of the Pod.
type world struct {
	*objects.World
	// existing is the PodListeners of the Pod. There is none by default.
	existing *listenersv1alpha1.PodListeners
}

// newWorld returns, with these changes, a Pod that was bound to node-1 and mounts the Listener web by name. Its class
// has node ports.
func newWorld(changes ...func(*world)) *world {
	w := &world{World: objects.NewWorld()}
	w.Listener.Name, w.Listener.UID, w.Listener.Generation = "web", "aaaa-bbbb", 3
	w.Listener.Spec.Ports, w.Listener.Status.ObservedGeneration, w.Listener.Status.NodePorts = nil, 3, portMap
	w.Pod.UID = podUID
	w.Claim.Labels, w.Claim.Annotations = nil, nil
	w.Claim.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: w.Volume.Name}
	w.Volume.Labels, w.Volume.Spec.CSI.VolumeAttributes = nil, map[string]string{names.AnnotationListenerName: "web"}
	for _, change := range changes {
		change(w)
	}
	return w
}

// newObject returns the empty PodListeners of the Pod.
func newObject() *listenersv1alpha1.PodListeners {
	object := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: objectKey.Namespace, Name: "web-0"}, podUID, "node-1")
	object.UID = "object-uid"
	return object
}

// publishedBefore gives the Pod a PodListeners with this entry of its volume.
func (w *world) publishedBefore(entry listenersv1alpha1.PodListener) {
	w.existing = newObject()
	w.existing.Spec.Listeners = map[string]listenersv1alpha1.PodListener{"listener": entry}
}

// mounted gives the Pod a PodListeners with the address of its node.
func (w *world) mounted() {
	w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: nodeAddr})
}

// bothFamilies gives the Service both IP families, IPv6 first, and the node an address of each.
func (w *world) bothFamilies() {
	w.Listener.Status.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	w.addNodeAddress(corev1.NodeInternalIP, "2001:db8::1")
}

func (w *world) addNodeAddress(kind corev1.NodeAddressType, address string) {
	w.Node.Status.Addresses = append(w.Node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
}

// hostPort lets the class publish host ports, and gives the Pod one, or none if it is 0.
func (w *world) hostPort(number int32) {
	w.Class.Spec = listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, HostPort: &listenersv1alpha1.HostPortExposure{},
	}
	w.Listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}
	w.Listener.Status.NodePorts = nil
	w.Pod.Spec.Containers[0].Ports[0].HostPort = number
}

// loadBalancer gives the class load balancers, and the Listener these addresses of its own.
func (w *world) loadBalancer(addresses ...listenersv1alpha1.IngressAddress) {
	w.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
	w.Listener.Status.NodePorts, w.Listener.Status.IngressAddresses = nil, addresses
}

// advertise lets the class advertise addresses, with these targets in the status of the Listener.
func (w *world) advertise(targets ...listenersv1alpha1.Target) {
	w.Class.Spec.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: "edge.example"}
	w.Listener.Status.Targets = targets
}

// targetOf returns a target that is advertised with a port.
func targetOf(address string, ports map[string]int32, number int32) listenersv1alpha1.Target {
	return listenersv1alpha1.Target{Address: address, AddressType: "IP", Ports: ports, Advertised: advertisedAt(number)}
}

func advertisedAt(number int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: "edge.example", AddressType: "Hostname", Ports: map[string]int32{"http": number}}
}

// condition gives the Listener a condition.
func (w *world) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	w.Listener.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: message}}
}

// deleted marks an object as being deleted.
func deleted(o client.Object) {
	o.SetDeletionTimestamp(ptr.To(metav1.Now()))
	o.SetFinalizers([]string{"test/keep"})
}

// classBased makes the claim a class-based one, whose Listener does not exist.
func (w *world) classBased() {
	w.Volume.Spec.CSI.VolumeAttributes = byClass("public")
	w.Claim.Labels = map[string]string{"app": "web"}
	w.Listener = nil
}

// withOwnListener lets the claim name a class, and own its Listener.
func (w *world) withOwnListener() {
	listener := w.Listener
	w.classBased()
	w.Listener, listener.Name = listener, w.Claim.Name
	listener.OwnerReferences = []metav1.OwnerReference{
		owner("PersistentVolumeClaim", w.Claim.Name, w.Claim.UID), owner("PersistentVolume", w.Volume.Name, w.Volume.UID),
	}
}

// ephemeral makes the claim one of an ephemeral volume.
func (w *world) ephemeral() {
	w.Pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	w.Claim.Name, w.Volume.Spec.ClaimRef.Name = "web-0-listener", "web-0-listener"
}

// addClaim gives the Pod a second volume, with a claim own, and returns the objects of that.
func (w *world) addClaim(attributes map[string]string) []client.Object {
	pvc, pv := w.Claim.DeepCopy(), w.Volume.DeepCopy()
	pvc.Name, pvc.UID, pvc.Spec.VolumeName = "own", "own-uid", "pvc-own"
	pv.Name, pv.UID, pv.Spec.ClaimRef = "pvc-own", "pv-own-uid", &corev1.ObjectReference{Namespace: "shop", Name: "own", UID: "own-uid"}
	pv.Spec.CSI.VolumeAttributes = attributes
	w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, objects.ClaimVolume("own", "own"))
	return []client.Object{pvc, pv}
}

func byClass(name string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: name}
}

func byName(name string) map[string]string {
	return map[string]string{names.AnnotationListenerName: name}
}

// newReconciler returns a Reconciler that reads what the cache has of the objects of c.
func newReconciler(c client.WithWatch, recorder events.EventRecorder) *podlisteners.Reconciler {
	return &podlisteners.Reconciler{
		Client: fakeclient.Cached(c, "operators"), APIReader: c, Events: recorder, Backends: backends.All(),
		Applier: apply.New(c, names.FieldManagerVolume), Clock: clock.RealClock{}, Nodes: settling.NewNodes(clock.RealClock{}),
	}
}

// controller reconciles the Pod of a world.
type controller struct {
	*testing.T
	*podlisteners.Reconciler
	client   client.WithWatch
	recorded chan string
}

// start returns a controller of the objects of a world, and others, which has received the Pod.
func (w *world) start(t *testing.T, intercept interceptor.Funcs, others ...client.Object) *controller {
	t.Helper()
	recorder := events.NewFakeRecorder(100)
	c := &controller{T: t, client: fakeclient.New(t, intercept, w.Objects(append(others, w.existing)...)...), recorded: recorder.Events}
	c.Reconciler = newReconciler(c.client, recorder)
	if w.Pod != nil {
		c.Receive(t.Context(), w.Pod)
	}
	return c
}

// try reconciles the Pod once.
func (c *controller) try() (reconcile.Result, error) {
	return c.Reconcile(c.Context(), reconcile.Request{NamespacedName: objectKey})
}

// reconcile reconciles the Pod once after a change, which must have succeeded.
func (c *controller) reconcile(changes ...error) reconcile.Result {
	c.Helper()
	for _, err := range changes {
		c.must(err)
	}
	result, err := c.try()
	c.must(err)
	return result
}

func (c *controller) must(err error) {
	c.Helper()
	check.Must(c, err)
}

// run reconciles once and returns the client, the events and the error.
func (w *world) run(t *testing.T, intercept interceptor.Funcs) (client.Client, chan string, error) {
	t.Helper()
	c := w.start(t, intercept)
	_, err := c.try()
	return c.client, c.recorded, err
}

// mustRun reconciles once, with other objects, and returns the client and the events.
func (w *world) mustRun(t *testing.T, others ...client.Object) (client.Client, chan string) {
	t.Helper()
	c := w.start(t, interceptor.Funcs{}, others...)
	c.reconcile()
	return c.client, c.recorded
}

// stored returns what an object is now, which must exist.
func stored[T client.Object](t *testing.T, c client.Client, o T) T {
	t.Helper()
	got := reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), got))
	return got
}

// published returns the spec of the PodListeners without its summary, or nil if it does not exist.
func published(t *testing.T, c client.Client) *listenersv1alpha1.PodListenersSpec {
	t.Helper()
	got, err := lookup.Get(t.Context(), c, objectKey, &listenersv1alpha1.PodListeners{})
	check.Must(t, err)
	if got == nil {
		return nil
	}
	got.Spec.Summary = "" // TestSummaryListsAllVolumes
	return &got.Spec
}

// listenerNamed returns the Listener with a name, or nil.
func listenerNamed(t *testing.T, c client.Client, name string) *listenersv1alpha1.Listener {
	t.Helper()
	key := types.NamespacedName{Namespace: "shop", Name: name}
	listener, err := lookup.Get(t.Context(), c, key, &listenersv1alpha1.Listener{})
	check.Must(t, err)
	return listener
}

// expectNoEvents checks that no event was recorded.
func expectNoEvents(t *testing.T, recorded chan string) {
	t.Helper()
	if all := drain(recorded); len(all) > 0 {
		t.Errorf("events %q", all)
	}
}

// drain returns the events that were recorded.
func drain(recorded chan string) (all []string) {
	for len(recorded) > 0 {
		all = append(all, <-recorded)
	}
	return all
}

// before calls a function before each write of an object. Of one that is applied, it gets the applied fields. The write
// fails with the error that the function returns.
func before(do func(verb string, o any) error) interceptor.Funcs {
	return fakeclient.EachWrite(func(verb string, o any, send func() error) error {
		if err := do(verb, o); err != nil {
			return err
		}
		return send()
	})
}

// isListener reports whether what is applied is a Listener.
func isListener(applied any) bool {
	o, ok := applied.(interface{ GetKind() string })
	return ok && o.GetKind() == "Listener"
}
