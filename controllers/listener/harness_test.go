package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const (
	nodePort     = listenersv1alpha1.ServiceTypeNodePort
	loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
	clusterIP    = listenersv1alpha1.ServiceTypeClusterIP
)

var routeKind = routev1.GroupVersion.WithKind("Route")

// state is the state of the cluster before a test. Objects that are nil do not exist.
type state struct {
	listener      *listenersv1alpha1.Listener
	class         *listenersv1alpha1.ListenerClass
	service       *corev1.Service
	configuration *operatorv1alpha1.ListenerOperator
	others        []client.Object
	backends      backends.List
}

var key = client.ObjectKey{Namespace: "shop", Name: "web"}

// newState returns a Listener, its class with the service type, and the Service of an earlier reconciliation.
func newState(serviceType listenersv1alpha1.ServiceType) *state {
	s := &state{
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
				Namespace: key.Namespace, Name: key.Name, UID: "service-uid", OwnerReferences: ofListener(),
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceType(serviceType), ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
				Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		},
	}
	if serviceType == nodePort {
		s.service.Spec.Ports[0].NodePort = 30080
	}
	return s
}

// ofListener are the owners of an object that the Listener controls.
func ofListener() []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "listeners.stackable.tech/v1alpha1", Kind: "Listener", Name: key.Name, UID: "listener-uid", Controller: ptr.To(true),
	}}
}

func (s *state) with(objects ...client.Object) *state {
	s.others = append(s.others, objects...)
	return s
}

func (s *state) change(change func(s *state)) *state {
	change(s)
	return s
}

func (s *state) objects() []client.Object {
	objects := append([]client.Object{s.listener}, s.others...)
	if s.class != nil {
		objects = append(objects, s.class)
	}
	if s.service != nil {
		objects = append(objects, s.service)
	}
	if s.configuration != nil {
		objects = append(objects, s.configuration)
	}
	return objects
}

func newNode(name, ip string) *corev1.Node {
	return objects.Node(name, objects.InternalIP(ip))
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

func lastMountedOn(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Annotations[names.AnnotationNode] = node }
}

func pinnedTo(nodes ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: nodes}},
		}}}}
	}
}

// boundTo binds the volume to a claim, and makes the change.
func boundTo(claim string, change func(*corev1.PersistentVolume)) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: key.Namespace, Name: claim, UID: types.UID(claim)}
		change(pv)
	}
}

// newClaim returns a claim. If pod is not empty, it is an ephemeral claim of that Pod.
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
		Spec:       corev1.PodSpec{Volumes: []corev1.Volume{objects.ClaimVolume("listener", "pvc-"+uid)}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// newLabelledPod returns a Pod on a node that uses a claim, with the label of a Pod that mounts the Listener.
func newLabelledPod(uid, node, claim string, phase corev1.PodPhase) *corev1.Pod {
	pod := newPod(uid, phase)
	pod.Labels = map[string]string{names.PodMountLabel("listener-uid"): key.Name}
	pod.Spec.NodeName, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = node, claim
	return pod
}

// newHostPortPod returns a Pod on a node, whose port 80 is this port of the node, or no port if it is 0.
func newHostPortPod(uid, node string, hostPort int32) *corev1.Pod {
	pod := newPod(uid, corev1.PodRunning)
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: hostPort}}}}
	return pod
}

// withHostPorts lets the class publish host ports.
func withHostPorts(s *state) { s.class.Spec.HostPort = &listenersv1alpha1.HostPortExposure{} }

// withPods lets the class publish addresses of Pods.
func withPods(s *state) { s.class.Spec.Pod = &listenersv1alpha1.PodExposure{} }

// withHeadlessService gives the Listener the Service of a class with addresses of Pods.
func withHeadlessService(s *state) {
	s.service.Spec.ClusterIP, s.service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
}

// withClusterIP lets the class have a range with one cluster IP.
func withClusterIP(s *state) {
	s.class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{"10.97.0.4/32"}}
}

func newMount(pod, node, volume string) *listenersv1alpha1.PodListeners {
	return &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: "pod-" + pod,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-" + pod, UID: types.UID(pod)}},
		},
		Spec: listenersv1alpha1.PodListenersSpec{NodeName: node, Listeners: map[string]listenersv1alpha1.PodListener{
			"listener": {Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: volume, ListenerName: key.Name},
		}},
	}
}

// servedKind is the view of a kind that the cluster serves.
type servedKind struct {
	client.Reader
	version string
}

func (k servedKind) Version() string { return k.version }

// unservedKind is the view of a kind that the cluster does not serve.
type unservedKind struct{ client.Reader }

func (unservedKind) Version() string { return "" }

func (unservedKind) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return &meta.NoKindMatchError{GroupKind: routeKind.GroupKind()}
}

// unresponsiveKind is the view of a kind whose API does not respond.
type unresponsiveKind struct{ unservedKind }

func (unresponsiveKind) Version() string { return "v1" }

func (unresponsiveKind) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the API did not respond")
}

// observePorts makes the allocated ports of the existing objects known to the Reconciler, as its watches do.
func observePorts(t *testing.T, r *Reconciler) {
	t.Helper()
	var services corev1.ServiceList
	check.Must(t, r.Client.List(t.Context(), &services))
	for i := range services.Items {
		r.held.ServiceHandler().Create(t.Context(), event.CreateEvent{Object: &services.Items[i]}, nil)
	}
}

func ipAddress(address string, port int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": port}}
}

// newRouteState returns a Listener with two ports, its class with spec.route, the Service of an earlier reconciliation,
// and the Routes.
func newRouteState(routes ...client.Object) *state {
	return newState(clusterIP).change(func(s *state) {
		s.class.Spec.Route = &listenersv1alpha1.RouteExposure{}
		s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "admin", Port: 81}, {Name: "http", Port: 80}}
		s.service.Spec.Ports = []corev1.ServicePort{{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 81}, {Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	}).with(routes...)
}

// withNode adds a node with a reservation.
func withNode(s *state) { s.with(newNode("a", "10.0.0.1"), newVolume("pv", lastMountedOn("a"))) }

// withNodePortService gives the Service the type NodePort, from before a change of the class, and a node with a
// reservation.
func withNodePortService(s *state) {
	s.service.Spec.Type = corev1.ServiceTypeNodePort
	for i := range s.service.Spec.Ports {
		s.service.Spec.Ports[i].NodePort = 30000 + s.service.Spec.Ports[i].Port
	}
	withNode(s)
}

// withPublished makes hosts the addresses in the status of the Listener, each with the port.
func withPublished(hosts map[string]string) func(*state) {
	return func(s *state) {
		s.listener.Status = &listenersv1alpha1.ListenerStatus{}
		for _, host := range slices.Sorted(maps.Keys(hosts)) {
			s.listener.Status.IngressAddresses = append(s.listener.Status.IngressAddresses, listenersv1alpha1.IngressAddress{
				Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{hosts[host]: 443},
			})
		}
	}
}

// ownRoute returns the Route of a port that the Listener controls.
func ownRoute(port string, ingresses ...routev1.RouteIngress) *routev1.Route {
	return &routev1.Route{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name + "-" + port, UID: types.UID("uid-of-" + port), OwnerReferences: ofListener(),
		},
		Spec: routev1.RouteSpec{
			Port: &routev1.RoutePort{}, To: routev1.RouteTargetReference{Kind: "Service", Name: key.Name}, TLS: &routev1.TLSConfig{Termination: "passthrough"},
		},
		Status: routev1.RouteStatus{Ingress: ingresses},
	}
}

func admittedAs(host string) routev1.RouteIngress {
	return routev1.RouteIngress{RouterName: "default", Host: host, Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue,
	}}}
}

func rejectedAs(reason, message string) routev1.RouteIngress {
	return routev1.RouteIngress{RouterName: "default", Host: "web.example.com", Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}}}
}

// terminating marks an object as being deleted, with a finalizer that is not removed.
func terminating[T client.Object](o T) T {
	o.SetDeletionTimestamp(ptr.To(metav1.Now().Rfc3339Copy()))
	o.SetFinalizers([]string{"example.com/cleanup"})
	return o
}

// observation is the state after reconciliations.
type observation struct {
	listener *listenersv1alpha1.Listener
	service  *corev1.Service // nil if it does not exist
	routes   map[string]*routev1.Route
	events   []string
	err      error // of the last reconciliation
}

func (o observation) addresses() []string {
	addresses := []string{}
	for _, a := range o.listener.Status.IngressAddresses {
		addresses = append(addresses, a.Address+fmt.Sprint(a.Ports))
	}
	return addresses
}

func (o observation) condition(conditionType string) metav1.Condition {
	return observe.Condition(o.listener, conditionType)
}

// newClient returns a fake client with the objects.
func (s *state) newClient(t *testing.T) client.WithWatch {
	t.Helper()
	status := s.listener.Status
	s.listener.Status = nil
	fake := fakeclient.NewWithBackends(t, s.backends, interceptor.Funcs{}, s.objects()...)
	if status != nil { // applied as the controller does, so that it owns the fields
		_, err := apply.New(fake, names.FieldManagerListenerStatus).ApplyStatus(t.Context(), s.listener, status, "")
		check.Must(t, err)
	}
	return fake
}

// reconcile reconciles n times without a grace period. change, which may be nil, modifies the Reconciler before.
func (s *state) reconcile(t *testing.T, n int, intercept interceptor.Funcs, change func(*Reconciler)) observation {
	t.Helper()
	o := s.operator(t, intercept)
	o.writer.GracePeriod = 0
	if change != nil {
		change(o.Reconciler)
	}
	var err error
	for range n {
		_, err = o.try(key)
	}
	observed := observation{listener: o.listener(), service: find[corev1.Service](o, key.Name), routes: map[string]*routev1.Route{}, err: err}
	var routes routev1.RouteList
	check.Must(t, o.api.List(t.Context(), &routes))
	for i := range routes.Items {
		observed.routes[routes.Items[i].Name] = &routes.Items[i]
	}
	observed.events = o.events()
	return observed
}

// countWrites records what is applied and deleted, and makes the n-th one, counted from 0, fail with err.
func countWrites(n int, err error) (interceptor.Funcs, *[]string) {
	writes := &[]string{}
	return fakeclient.EachWrite(func(verb string, o any, send func() error) error {
		what := verb
		switch verb {
		case "apply":
			what += " " + kindOf(o)
		case "delete":
			what += " " + o.(client.Object).GetName()
		case fakeclient.ApplyStatus:
		default:
			return send()
		}
		if *writes = append(*writes, what); len(*writes) == n+1 {
			return err
		}
		return send()
	}), writes
}

// kindOf returns the kind of what is applied, or "" of what is not.
func kindOf(applied any) string {
	if o, ok := applied.(interface{ GetKind() string }); ok {
		return o.GetKind()
	}
	return ""
}

// wantCondition checks the reason of a condition, and that its message contains all words.
func wantCondition(t *testing.T, got metav1.Condition, reason string, words ...string) {
	t.Helper()
	if got.Reason != reason || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(got.Message, w) }) {
		t.Errorf("condition %s: %s: %s; want %s: %q", got.Type, got.Reason, got.Message, reason, words)
	}
}

// expectWaiting checks that a Listener waits for one of a range if a refusal with this reason says so.
func expectWaiting(t *testing.T, got *listenersv1alpha1.WaitingFor, kind listenersv1alpha1.WaitingKind, reason string) {
	t.Helper()
	limited := reason == listenersv1alpha1.ReasonPortLimitReached
	waits := limited || reason == listenersv1alpha1.ReasonNodePortsExhausted || reason == listenersv1alpha1.ReasonSharedPortsExhausted
	want := listenersv1alpha1.WaitingFor{Kind: kind, NamespaceLimit: limited, Since: ptr.Deref(got, listenersv1alpha1.WaitingFor{}).Since}
	if waits != (got != nil) || waits && *got != want {
		t.Errorf("%s: waits for %+v", reason, got)
	}
}

// idleLater is a period after which it is reported that no Pod mounts the Listener. Tests of other periods ignore it.
const idleLater = 24 * time.Hour

// operator is a Reconciler on a fake API server with the objects of a state. Its clock is fake, and its periods are
// those of production, except idleLater.
type operator struct {
	*Reconciler
	t        *testing.T
	backends backends.List
	api      client.WithWatch // of the test
	client   client.WithWatch // of the Reconciler
	recorder *events.FakeRecorder
	now      *clocktesting.FakePassiveClock
	writes   *[]string // of the Reconciler, as far as they reach the API server
}

func (s *state) operator(t *testing.T, intercept interceptor.Funcs) *operator {
	t.Helper()
	counting, writes := countWrites(-1, nil)
	o := &operator{
		t: t, backends: s.backends, api: s.newClient(t), recorder: events.NewFakeRecorder(1000),
		now: clocktesting.NewFakePassiveClock(time.Now()), writes: writes,
	}
	o.client = interceptor.NewClient(interceptor.NewClient(o.api, counting), intercept)
	o.restart()
	o.settler.Idle = idleLater
	return o
}

// newReconciler returns a Reconciler for a cluster that serves all kinds of the backends.
func newReconciler(list backends.List, c client.WithWatch, recorder events.EventRecorder) *Reconciler {
	r := &Reconciler{Client: fakeclient.Cached(c, "operators"), Events: recorder, Backends: list}
	r.initialize(clock.RealClock{})
	for _, backend := range list {
		for _, kind := range backend.Kinds() {
			r.reader.Kinds.Readers[kind.GroupVersionKind] = servedKind{c, kind.Version}
		}
	}
	return r
}

// restart starts the operator again, which then knows only what the API server has.
func (o *operator) restart() {
	before := o.Reconciler
	o.Reconciler = newReconciler(o.backends, o.client, o.recorder)
	o.settler.Nodes, o.settler.Started = settling.NewNodes(o.now), sync.OnceValue(o.now.Now)
	o.settler.Clock = o.now
	if before != nil {
		o.settler.Idle = before.settler.Idle
	}
}

// try reconciles a Listener as the API server has it, and returns the requested requeue.
func (o *operator) try(listener client.ObjectKey) (time.Duration, error) {
	o.t.Helper()
	l := &listenersv1alpha1.Listener{}
	check.Must(o.t, o.api.Get(o.t.Context(), listener, l))
	result, err := o.Reconcile(o.t.Context(), l)
	if result.RequeueAfter > idleLater/2 {
		result.RequeueAfter = 0
	}
	return result.RequeueAfter, err
}

// reconcile reconciles a Listener without an error, and returns how it is then.
func (o *operator) reconcile(name string) *listenersv1alpha1.Listener {
	o.t.Helper()
	_, err := o.try(client.ObjectKey{Namespace: key.Namespace, Name: name})
	check.Must(o.t, err)
	return get[listenersv1alpha1.Listener](o, name)
}

// reconcileAfter advances the clock, reconciles, and returns the requested requeue and the writes.
func (o *operator) reconcileAfter(d time.Duration) (requeueAfter time.Duration, writes []string) {
	o.t.Helper()
	o.now.SetTime(o.now.Now().Add(d))
	before := len(*o.writes)
	requeueAfter, err := o.try(key)
	check.Must(o.t, err)
	return requeueAfter, (*o.writes)[before:]
}

func (o *operator) listener() *listenersv1alpha1.Listener {
	o.t.Helper()
	return get[listenersv1alpha1.Listener](o, key.Name)
}

// find returns an object of the Listener's namespace, or of none, or nil.
func find[T any, O interface {
	*T
	client.Object
}](o *operator, name string) O {
	o.t.Helper()
	object, namespaced := O(new(T)), client.ObjectKey{Namespace: key.Namespace, Name: name}
	switch any(object).(type) {
	case *corev1.Node, *corev1.PersistentVolume, *listenersv1alpha1.ListenerClass:
		namespaced.Namespace = ""
	}
	found, err := lookup.Get(o.t.Context(), o.api, namespaced, object)
	check.Must(o.t, err)
	return found
}

// get is find for an object that exists.
func get[T any, O interface {
	*T
	client.Object
}](o *operator, name string) O {
	o.t.Helper()
	object := find[T, O](o, name)
	if object == nil {
		o.t.Fatalf("%T %s does not exist", object, name)
	}
	return object
}

// change changes an object, and lets the watches of Nodes and classes see it.
func change[T any, O interface {
	*T
	client.Object
}](o *operator, name string, change func(O)) {
	o.t.Helper()
	object := get[T, O](o, name)
	o.observe(object)
	change(object)
	changed := object.DeepCopyObject().(client.Object) // the response to the first update has the previous status
	check.Must(o.t, o.api.Update(o.t.Context(), object))
	changed.SetResourceVersion(object.GetResourceVersion())
	switch any(object).(type) {
	case *corev1.Service, *corev1.Node, *networkingv1.Ingress:
		check.Must(o.t, o.api.Status().Update(o.t.Context(), changed))
	}
	o.observe(changed)
}

func (o *operator) observe(object client.Object) {
	switch object := object.(type) {
	case *corev1.Node:
		o.nodeToListeners(o.t.Context(), object)
	case *listenersv1alpha1.ListenerClass:
		o.classToListeners(o.t.Context(), object)
	}
}

func (o *operator) create(objects ...client.Object) {
	o.t.Helper()
	o.each(objects, func(ctx context.Context, object client.Object) error { return o.api.Create(ctx, object) })
}

func (o *operator) delete(objects ...client.Object) {
	o.t.Helper()
	o.each(objects, func(ctx context.Context, object client.Object) error { return o.api.Delete(ctx, object) })
}

func (o *operator) each(objects []client.Object, do func(context.Context, client.Object) error) {
	o.t.Helper()
	for _, object := range objects {
		check.Must(o.t, do(o.t.Context(), object))
	}
}

// wantRequeue checks the requeue that a reconciliation after d requests.
func (o *operator) wantRequeue(d, requeueAfter time.Duration) {
	o.t.Helper()
	if got, _ := o.reconcileAfter(d); got != requeueAfter {
		o.t.Errorf("got a requeue after %s, want %s", got, requeueAfter)
	}
}

// events returns the events since the last call.
func (o *operator) events() (all []string) {
	for len(o.recorder.Events) > 0 {
		all = append(all, <-o.recorder.Events)
	}
	return all
}
