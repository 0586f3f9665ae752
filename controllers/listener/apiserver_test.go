package listener_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// fixture is a namespace, a class, and a running controller.
type fixture struct {
	*apiserver.World
	*process
	class *listenersv1alpha1.ListenerClass
	key   client.ObjectKey
}

// process is a controller that runs until it is stopped.
type process struct {
	end       func() error
	abandoned float64 // the length of the work queues of managers that were stopped
}

// running is the process that runs now, or nil. Tests share it, because with the race detector it needs seconds to
// start. They run one after the other.
var running *process

// settings are those of a process. What is not set is that of the process that tests share.
type settings struct {
	config   *rest.Config
	backends backends.List
}

const (
	nodePort     = listenersv1alpha1.ServiceTypeNodePort
	loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
	clusterIP    = listenersv1alpha1.ServiceTypeClusterIP

	// gracePeriod is shorter than that of production, which unit tests have with a fake clock.
	gracePeriod = time.Second
)

func ofType(serviceType listenersv1alpha1.ServiceType) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: serviceType}
}

// newFixture returns a fixture with a process that other tests may have used before.
func newFixture(t *testing.T, spec listenersv1alpha1.ListenerClassSpec) *fixture {
	t.Helper()
	f := newClass(t, spec)
	if running == nil {
		f.start(settings{})
	}
	f.process = running
	f.Eventually(f.idle).Should(BeTrue()) // with the objects of those tests
	return f
}

// newFixtureWith returns a fixture with a process of its own.
func newFixtureWith(t *testing.T, s settings, spec listenersv1alpha1.ListenerClassSpec) *fixture {
	t.Helper()
	f := newClass(t, spec)
	stopProcess(t)
	f.start(s)
	t.Cleanup(func() { stopProcess(t) })
	return f
}

// newClass returns a fixture without a process.
func newClass(t *testing.T, spec listenersv1alpha1.ListenerClassSpec) *fixture {
	t.Helper()
	f := &fixture{World: apiserver.NewWorld(t), class: &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: spec}}
	f.key = client.ObjectKey{Namespace: f.Namespace, Name: "web"}
	f.Expect(f.Create(t.Context(), f.class)).To(Succeed())
	return f
}

func (f *fixture) start(s settings) {
	f.Helper()
	if s.config == nil {
		s.config = apiserver.Config(f)
	}
	if s.backends == nil {
		s.backends = backends.All()
	}
	nodes := settling.NewNodes(clock.RealClock{})
	nodes.Period = time.Second
	watching, stopWatching := context.WithCancel(context.Background())
	apis, err := platform.Watch(watching, s.config, s.backends.OptionalKinds()...)
	f.Expect(err).NotTo(HaveOccurred())
	f.process = &process{abandoned: metric.Value(f, "workqueue_depth")}
	f.end = apiserver.ShareManager(f, s.config, "operators", func(mgr ctrl.Manager) error {
		f.Expect(s.backends.AddToScheme(mgr.GetScheme())).To(Succeed())
		f.Expect(mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			stopWatching() // an API server that stops waits for its watches
			return nil
		}))).To(Succeed())
		return (&listener.Reconciler{
			Client: mgr.GetClient(), Events: mgr.GetEventRecorder(names.EventReporter), Platform: apis, Backends: s.backends,
			GracePeriod: gracePeriod, Nodes: nodes,
		}).SetupWithManager(mgr)
	})
	running = f.process
}

// stopProcess stops the process that runs, if any, where the test goes on without it.
func stopProcess(t *testing.T) {
	t.Helper()
	if running == nil {
		return
	}
	if err := running.end(); err != nil {
		t.Error("running the manager: ", err)
	}
	running = nil
}

// createListener creates a Listener of the fixture's class, with the explicit null for publishNotReadyAddresses that
// product operators send.
func (f *fixture) createListener(change func(*listenersv1alpha1.Listener)) *listenersv1alpha1.Listener {
	f.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &f.class.Name, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	if change != nil {
		change(l)
	}
	o, err := apply.Unstructured(l) // the Go type omits null
	check.Must(f, err)
	o.SetGroupVersionKind(listenersv1alpha1.GroupVersion.WithKind("Listener"))
	check.Must(f, unstructured.SetNestedField(o.Object, nil, "spec", "publishNotReadyAddresses"))
	check.Must(f, f.Create(f.Context(), o))
	check.Must(f, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, l))
	return l
}

func (f *fixture) listener() *listenersv1alpha1.Listener {
	f.Helper()
	l := &listenersv1alpha1.Listener{}
	f.Expect(f.Get(f.Context(), f.key, l)).To(Succeed())
	return l
}

func (f *fixture) service() *corev1.Service {
	f.Helper()
	s := &corev1.Service{}
	f.Expect(f.Get(f.Context(), f.key, s)).To(Succeed())
	return s
}

// awaited waits until an object of the Listener's namespace exists, and returns it.
func awaited[O client.Object](f *fixture, c client.Reader, name string, o O) O {
	f.Helper()
	key := client.ObjectKey{Namespace: f.key.Namespace, Name: name}
	f.Eventually(func() error { return c.Get(f.Context(), key, o) }).Should(Succeed())
	return o
}

// eventuallyGone waits until an object does not exist.
func (f *fixture) eventuallyGone(c client.Reader, o client.Object) {
	f.Helper()
	f.Eventually(func() bool { return apierrors.IsNotFound(c.Get(f.Context(), client.ObjectKeyFromObject(o), o)) }).Should(BeTrue())
}

// assign waits for the Service, and gives it addresses, as the controller of a load balancer does. The operator may
// write meanwhile.
func (f *fixture) assign(addresses ...corev1.LoadBalancerIngress) {
	f.Helper()
	service := awaited(f, f, f.key.Name, &corev1.Service{})
	before := service.DeepCopy()
	service.Status.LoadBalancer.Ingress = addresses
	f.Expect(f.Status().Patch(f.Context(), service, client.MergeFrom(before))).To(Succeed())
}

func (f *fixture) change(o client.Object, change func()) {
	f.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	f.Expect(f.Patch(f.Context(), o, client.MergeFrom(before))).To(Succeed())
}

// reason returns a function that returns the reason of an up-to-date condition, or "".
func (f *fixture) reason(conditionType string) func() string {
	return func() string {
		l := &listenersv1alpha1.Listener{}
		if err := f.Get(f.Context(), f.key, l); err != nil {
			return ""
		}
		if c := observe.Condition(l, conditionType); c.ObservedGeneration == l.Generation {
			return c.Reason
		}
		return ""
	}
}

// accepted returns the condition Accepted of a Listener, which is empty while there is none.
func accepted(l *listenersv1alpha1.Listener) metav1.Condition {
	return observe.Condition(l, listenersv1alpha1.ListenerAccepted)
}

func (f *fixture) eventually(conditionType, reason string) *listenersv1alpha1.Listener {
	f.Helper()
	f.Eventually(f.reason(conditionType)).Should(Equal(reason))
	return f.listener()
}

func (f *fixture) eventuallyAddresses(want ...string) *listenersv1alpha1.Listener {
	f.Helper()
	f.Eventually(func() []string {
		addresses := []string{}
		if l := f.listener(); l.Status != nil {
			for _, a := range l.Status.IngressAddresses {
				addresses = append(addresses, a.Address)
			}
		}
		return addresses
	}).Should(Equal(want))
	return f.listener()
}

func (f *fixture) createNode(ips ...string) *corev1.Node {
	f.Helper()
	return f.createNodeAs(metav1.ObjectMeta{GenerateName: "node-"}, ips...)
}

func (f *fixture) createNodeAs(meta metav1.ObjectMeta, ips ...string) *corev1.Node {
	f.Helper()
	node := &corev1.Node{ObjectMeta: meta}
	f.Expect(f.Create(f.Context(), node)).To(Succeed())
	for _, ip := range ips {
		node.Status.Addresses = append(node.Status.Addresses, objects.InternalIP(ip))
	}
	f.Expect(f.Status().Update(f.Context(), node)).To(Succeed())
	return node
}

func (f *fixture) createVolume(node string) *corev1.PersistentVolume {
	f.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "pvc-",
			Labels:       map[string]string{names.LabelListenerNamespace: f.key.Namespace, names.LabelListenerName: f.key.Name},
			Annotations:  map[string]string{names.AnnotationNode: node},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: "handle"},
			},
		},
	}
	f.Expect(f.Create(f.Context(), pv)).To(Succeed())
	return pv
}

// createPod creates a Pod on a node that mounts a volume of the Listener, and its PodListeners.
func (f *fixture) createPod(name string, node *corev1.Node, volume *corev1.PersistentVolume) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name, Labels: map[string]string{names.PodMountLabel(f.listener().UID): f.key.Name}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, Containers: []corev1.Container{{Name: "web", Image: "web"}},
			Volumes: []corev1.Volume{objects.ClaimVolume("listener", "listener-"+name)},
		},
	}
	f.Expect(f.Create(f.Context(), pod)).To(Succeed())
	mounts := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, node.Name)
	f.Expect(f.Create(f.Context(), mounts)).To(Succeed())
	f.change(mounts, func() {
		mounts.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{
			Scope: listenersv1alpha1.ListenerScopeNode, ListenerName: f.key.Name, PersistentVolumeName: volume.Name,
		}
	})
	return pod
}

// override gives a Listener an override of its Service, with annotations and a spec.
func override(l *listenersv1alpha1.Listener, annotations, spec string) {
	l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q,"annotations":%s},"spec":%s}`, l.Name, l.Namespace, annotations, spec)}}
}

// listenerEvents returns the events about the Listeners of the namespace. The API server reports a cluster IP whose
// allocation it has just repaired, too.
func (f *fixture) listenerEvents() (about []eventsv1.Event) {
	f.Helper()
	var list eventsv1.EventList
	f.Expect(f.List(f.Context(), &list, client.InNamespace(f.key.Namespace))).To(Succeed())
	for _, e := range list.Items {
		if e.Regarding.Kind == "Listener" {
			f.Expect(e.ReportingController).To(Equal(names.EventReporter))
			about = append(about, e)
		}
	}
	return about
}

// warnings returns the notes of the warnings with a reason.
func (f *fixture) warnings(reason string) (notes []string) {
	f.Helper()
	for _, e := range f.listenerEvents() {
		if e.Reason == reason && e.Type == corev1.EventTypeWarning {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func TestClusterIPListenerBecomesReady(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
	f.eventuallyAddresses("web." + f.key.Namespace + ".svc.cluster.local")
	f.Expect(l.Generation).To(BeEquivalentTo(1))
	f.Expect(l.Finalizers).To(BeEmpty())

	service := f.service()
	f.Expect(service.Spec.PublishNotReadyAddresses).To(BeFalse())
	f.Expect(service.Spec.Ports[0].TargetPort.IntValue()).To(Equal(80))
	for _, entry := range service.ManagedFields {
		f.Expect(entry.Manager).To(Equal(names.FieldManagerService))
	}
	// Another client overwrites the status.
	l.Status = &listenersv1alpha1.ListenerStatus{}
	f.Expect(f.Status().Update(t.Context(), l)).To(Succeed())
	f.eventuallyAddresses("web." + f.key.Namespace + ".svc.cluster.local")
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)

	// That a new Listener gets its addresses is no event.
	l = f.listener()
	f.change(l, func() { l.Spec.ClassName = nil })
	f.Eventually(f.listenerEvents).Should(ConsistOf(HaveField("Reason", listenersv1alpha1.ReasonClassNotSet)))
}

// The API server enforces OwnerReferencesPermissionEnforcement, as on OpenShift.
func TestRolesOfTheOperatorSuffice(t *testing.T) {
	c := apiserver.Client(t)
	for _, o := range operatorRoles(t) {
		check.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), o)))
	}
	cfg := apiserver.Config(t)
	cfg.Impersonate.UserName = "system:serviceaccount:" + names.Operator + ":" + names.Operator
	f := newFixtureWith(t, settings{config: cfg}, ofType(clusterIP))
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
	f.change(l, func() { l.Spec.ClassName = nil }) // which is an event
	f.Eventually(f.listenerEvents).Should(HaveLen(1))
}

// operatorRoles returns the roles that the operator is installed with, and their bindings, outside its own namespace.
func operatorRoles(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile("../../config/rbac/operator.yaml")
	check.Must(t, err)
	var roles []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		if o := parse(t, document); strings.HasPrefix(o.GetKind(), "ClusterRole") {
			roles = append(roles, o)
		}
	}
	return roles
}

func TestListenerBecomesReadyWhenItsClassIsCreated(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	late := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "late-" + f.key.Namespace}, Spec: f.class.Spec}
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.ClassName = &late.Name })
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClassNotFound)
	f.Expect(l.Status.IngressAddresses).To(And(Not(BeNil()), BeEmpty()))

	f.Expect(f.Create(t.Context(), late)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)

	f.Expect(f.Delete(t.Context(), late)).To(Succeed())
	l = f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClassNotFound)
	f.Expect(l.Status.IngressAddresses).To(HaveLen(1))
	f.Expect(f.service().DeletionTimestamp).To(BeNil())
}

func TestForeignServiceIsNotModifiedAndItsDeletionNoticed(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 7}}},
	}
	f.Expect(f.Create(t.Context(), foreign)).To(Succeed())
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonForeignService)
	f.Expect(l.Status.ServiceName).To(BeNil())
	f.Expect(cmp.Diff(foreign, f.service())).To(BeEmpty())

	f.Expect(f.Delete(t.Context(), foreign)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
	f.Expect(f.service().Spec.Ports[0].Port).To(BeEquivalentTo(80))
}

// Server-side apply would keep them.
func TestPortsThatOthersAddToAServiceAreRemoved(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(nil)
	before := awaited(f, f, f.key.Name, &corev1.Service{}).Spec.Ports
	foreign := corev1ac.Service(f.key.Name, f.key.Namespace).WithSpec(corev1ac.ServiceSpec().WithPorts(
		corev1ac.ServicePort().WithName("admin").WithPort(9000).WithProtocol(corev1.ProtocolTCP)))
	f.Expect(f.Apply(t.Context(), foreign, client.FieldOwner("someone"))).To(Succeed())
	f.Eventually(func() []corev1.ServicePort { return f.service().Spec.Ports }).Should(Equal(before))
	f.Eventually(func() []string { return f.warnings("ForeignPortsRemoved") }).Should(ContainElement(HavePrefix("another client had added the ports 9000/TCP")))
}

func TestAddressesOfANodePortListenerFollowItsNodesAndPods(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForPods)
	f.Expect(l.Status.NodePorts).To(HaveKey("http"))
	number := l.Status.NodePorts["http"]

	node := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-1"}, "10.1.0.1")
	volume := f.createVolume(node.Name)
	f.eventuallyAddresses("10.1.0.1")
	node.Status.Addresses[0].Address = "10.1.0.2"
	f.Expect(f.Status().Update(t.Context(), node)).To(Succeed())
	f.eventuallyAddresses("10.1.0.2")

	other := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-2"}, "10.1.0.3")
	pod := f.createPod("web", other, volume)
	f.createVolume(node.Name)
	f.eventuallyAddresses("10.1.0.2", "10.1.0.3")

	// A finished Pod continues to exist, but clients cannot reach a Pod through its node.
	pod.Status.Phase = corev1.PodFailed
	f.Expect(f.Status().Update(t.Context(), pod)).To(Succeed())
	f.eventuallyAddresses("10.1.0.2")
	f.createVolume(other.Name)
	f.eventuallyAddresses("10.1.0.2", "10.1.0.3")

	f.Expect(f.Delete(t.Context(), node)).To(Succeed())
	f.eventuallyAddresses("10.1.0.3")
	f.Expect(f.Delete(t.Context(), other)).To(Succeed())
	l = f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonNodesMissing)
	f.Expect(l.Status.NodePorts["http"]).To(Equal(number))
	f.Expect(f.service().Spec.Ports[0].NodePort).To(Equal(number))
}

func TestServiceIsKeptWhenTheServiceTypeChanges(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType:                  nodePort,
		ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
		ServiceAnnotations:           map[string]string{"example.com/pool": "a"},
	})
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForPods)
	first := f.service()
	f.Expect(first.Spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicyLocal))

	f.change(f.class, func() {
		f.class.Spec.ServiceType = clusterIP
		f.class.Spec.ServiceAnnotations = nil
	})
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
	service := f.service()
	f.Expect(service.UID).To(Equal(first.UID))
	f.Expect(service.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
	f.Expect(service.Spec.Ports[0].NodePort).To(BeZero())
	f.Expect(service.Annotations).To(BeEmpty())
	f.Expect(f.listener().Status.NodePorts).To(BeNil())

	f.change(f.class, func() {
		f.class.Spec.ServiceType = loadBalancer
		f.class.Spec.LoadBalancerClass = ptr.To("example.com/lb")
	})
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	service = f.service()
	f.Expect(service.UID).To(Equal(first.UID))
	f.Expect(service.Spec.LoadBalancerClass).To(HaveValue(Equal("example.com/lb")))
	f.assign(corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	f.eventuallyAddresses("lb.example.com")

	// The field is immutable while the type does not change. The rejection is reported, and the class resolves it.
	f.change(f.class, func() { f.class.Spec.LoadBalancerClass = ptr.To("example.com/other") })
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("loadBalancerClass"))
	f.eventuallyAddresses("lb.example.com")
	f.change(f.class, func() { f.class.Spec.LoadBalancerClass = ptr.To("example.com/lb") })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)

	f.change(f.class, func() { f.class.Spec.ServiceType = nodePort })
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForPods)
	f.Expect(f.service().UID).To(Equal(first.UID))
	f.Expect(f.listener().Generation).To(BeEquivalentTo(1))
}

func TestServiceFollowsLabelsAndOverrides(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType:      clusterIP,
		ServiceOverrides: runtime.RawExtension{Raw: []byte(`{"spec":{"sessionAffinity":"ClientIP","externalIPs":["192.0.2.1"]}}`)},
	})
	l := f.createListener(func(l *listenersv1alpha1.Listener) { override(l, `{"a":"b"}`, `{}`) })
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
	service := f.service()
	f.Expect(service.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
	f.Expect(service.Spec.ExternalIPs).To(Equal([]string{"192.0.2.1"}))
	f.Expect(service.Annotations).To(Equal(map[string]string{"a": "b"}))

	f.change(l, func() { override(l, `{}`, `{"ipFamilyPolicy":"Twofold"}`) })
	rejected := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.Expect(rejected.Status.Conditions[0].Message).To(ContainSubstring("Twofold"))

	f.change(l, func() { l.Spec.ObjectOverrides, l.Labels = nil, map[string]string{"team": "blue"} })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.service().Annotations).To(BeEmpty())
	f.Expect(f.service().Labels).To(HaveKeyWithValue("team", "blue"))
	f.change(l, func() { l.Labels["team"] = "red" })
	f.Eventually(func() map[string]string { return f.service().Labels }).Should(HaveKeyWithValue("team", "red"))
}

func TestUnknownFieldsInOverridesOfAClassAreIgnoredWithAWarning(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.warnings(listenersv1alpha1.ReasonInvalidOverrides)).To(BeEmpty())
	f.change(f.class, func() {
		f.class.Spec.ServiceOverrides.Raw = []byte(`{"metadata":{"finalizers":["example.com/cleanup"]},"spec":{"newField":1,"selector":{"app":"web"},"sessionAffinity":"ClientIP"}}`)
	})
	f.Eventually(func() corev1.ServiceAffinity { return f.service().Spec.SessionAffinity }).Should(Equal(corev1.ServiceAffinityClientIP))
	f.Expect(f.service().Spec.Selector).To(Equal(map[string]string{"app": "web"}))
	f.Expect(f.service().Finalizers).To(Equal([]string{"example.com/cleanup"}))
	f.Eventually(func() []string { return f.warnings(listenersv1alpha1.ReasonInvalidOverrides) }).Should(ConsistOf(ContainSubstring(`"spec.newField"`)))
	f.Expect(accepted(f.listener())).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring(`"spec.newField"`))))

	f.change(f.class, func() { f.class.Spec.ServiceOverrides.Raw = []byte(`{}`) })
	f.Eventually(func() []string { return f.service().Finalizers }).Should(BeEmpty())
	f.Eventually(func() string { return accepted(f.listener()).Message }).ShouldNot(ContainSubstring("newField"))
}

func TestHostNameFollowsTheClusterDomain(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	f.createListener(nil)
	prefix := "web." + f.key.Namespace + ".svc."
	f.eventuallyAddresses(prefix + "cluster.local")
	configuration := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	configuration.Spec.ClusterDomain = "one.example"
	f.Expect(f.Create(t.Context(), configuration)).To(Succeed())
	f.eventuallyAddresses(prefix + "one.example")
	f.change(configuration, func() { configuration.Spec.ClusterDomain = "two.example" })
	f.eventuallyAddresses(prefix + "two.example")
	f.Expect(f.Delete(t.Context(), configuration)).To(Succeed())
	f.eventuallyAddresses(prefix + "cluster.local")
}

// Stackable's listener operator applied Service and status with the same field managers, and with other fields.
func TestServiceAndStatusOfStackablesOperatorAreTakenOver(t *testing.T) {
	stopProcess(t)
	f := newClass(t, ofType(nodePort))
	l := f.createListener(nil)
	service := parse(t, `
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {example.com/stale: "1"}
  ownerReferences: [{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, name: web, uid: `+string(l.UID)+`, controller: true, blockOwnerDeletion: true}]
spec:
  type: NodePort
  publishNotReadyAddresses: true
  selector: {stale: "1"}
  ports: [{name: http, port: 80, protocol: TCP}, {name: stale, port: 81, protocol: TCP}]
`)
	service.SetNamespace(f.Namespace)
	f.Expect(f.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(service), client.FieldOwner(names.FieldManagerService), client.ForceOwnership)).To(Succeed())
	status := parse(t, `
apiVersion: listeners.stackable.tech/v1alpha1
kind: Listener
metadata: {name: web}
status:
  serviceName: web
  ingressAddresses: [{address: 192.0.2.9, addressType: IP, ports: {http: 1}}]
  nodePorts: {http: 1, stale: 2}
`)
	status.SetNamespace(f.Namespace)
	f.Expect(f.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(names.FieldManagerListenerStatus), client.ForceOwnership)).To(Succeed())
	before := f.service()

	f.start(settings{})
	got := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForPods)
	after := f.service()
	f.Expect(after.UID).To(Equal(before.UID))
	f.Expect(after.Spec.Ports).To(Equal(before.Spec.Ports[:1])) // with its node port
	f.Expect(after.Spec.PublishNotReadyAddresses).To(BeFalse())
	f.Expect(after.Annotations).To(BeEmpty())
	f.Expect(after.Spec.Selector).To(Equal(map[string]string{names.PodMountLabel(l.UID): "web"}))
	// Known limitation: addresses of the previous status that no reservation confirms are not kept.
	f.Expect(got.Status.IngressAddresses).NotTo(BeNil())
	f.Expect(got.Status.NodePorts).To(Equal(map[string]int32{"http": before.Spec.Ports[0].NodePort}))
	f.Expect(got.Generation).To(BeEquivalentTo(1))
	for _, entry := range after.ManagedFields {
		f.Expect(entry.Manager).To(Equal(names.FieldManagerService))
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	check.Must(t, yaml.Unmarshal([]byte(text), &o.Object))
	return o
}

// counter records the write requests of a client.
type counter struct {
	next   http.RoundTripper
	mu     sync.Mutex
	writes []string
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events") {
		c.mu.Lock()
		c.writes = append(c.writes, request.Method+" "+request.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

func (c *counter) recorded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

// reconciliations returns the number of reconciliations of all managers of this test binary.
func reconciliations(t *testing.T) float64 {
	return metric.Value(t, "controller_runtime_reconcile_total")
}

// idle reports whether the controller has no work left. The metrics still contain the queues of managers that were
// stopped, with their length at that time.
func (f *fixture) idle() bool {
	return metric.Value(f.T, "controller_runtime_active_workers") == 0 && metric.Value(f.T, "workqueue_depth") <= f.abandoned
}

func TestSteadyStateWritesNothing(t *testing.T) {
	cfg, count := apiserver.Config(t), &counter{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
	f := newFixtureWith(t, settings{config: cfg}, ofType(nodePort))
	node := f.createNode("10.2.0.1")
	f.createVolume(node.Name)
	f.createListener(nil)
	f.eventuallyAddresses("10.2.0.1")

	before := reconciliations(t) // the cache has to contain the first writes
	f.createVolume(node.Name)
	f.Eventually(func() float64 { return reconciliations(t) }).Should(BeNumerically(">", before))

	servicePath := "PATCH /api/v1/namespaces/" + f.key.Namespace + "/services/web"
	for _, step := range []struct {
		name  string
		cause func()
		want  []string
	}{
		{"a volume on a node that has a reservation", func() { f.createVolume(node.Name) }, nil},
		{"a field of the class that does not change the Service", func() {
			f.change(f.class, func() { f.class.Spec.MaxPorts = ptr.To[int32](32) })
		}, nil},
		{"an ignored address of the node", func() {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "x"})
			f.Expect(f.Status().Update(t.Context(), node)).To(Succeed())
		}, nil},
		{"a change of the Service in another field, which is applied once", func() {
			service := f.service()
			f.change(service, func() { service.Annotations = map[string]string{"example.com/theirs": "x"} })
		}, []string{servicePath}},
		{"another volume on that node", func() { f.createVolume(node.Name) }, nil},
		{"a change of the Service in a desired field, which is repaired", func() {
			service := f.service()
			f.change(service, func() { service.Spec.Selector = map[string]string{"app": "theirs"} })
		}, []string{servicePath}},
	} {
		f.Eventually(f.idle).Should(BeTrue())
		version, writes, before := f.listener().ResourceVersion, len(count.recorded()), reconciliations(t)
		step.cause()
		f.Eventually(func() float64 { return reconciliations(t) }).Should(BeNumerically(">", before), step.name)
		f.Eventually(func() int { return len(count.recorded()) - writes }).Should(BeNumerically(">=", len(step.want)), step.name)
		f.Eventually(f.idle).Should(BeTrue())
		if diff := cmp.Diff(step.want, count.recorded()[writes:], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after %s: writes (-want +got):\n%s", step.name, diff)
		}
		f.Expect(f.listener().ResourceVersion).To(Equal(version), step.name)
	}
	f.Expect(f.service().Spec.Selector).To(Equal(map[string]string{names.PodMountLabel(f.listener().UID): "web"}))
}

// After a restart the operator does not know what it applied: it sends at most one request for each Service, whose
// managed fields its cache has not summarized, and changes nothing.
func TestRestartChangesNothing(t *testing.T) {
	for name, class := range map[string]listenersv1alpha1.ListenerClassSpec{"ClusterIP": ofType(clusterIP), "target ports": sameTarget()} {
		t.Run(name, func(t *testing.T) {
			first := newFixture(t, class)
			first.createListener(nil)
			first.Eventually(first.reason(listenersv1alpha1.ListenerReady)).ShouldNot(BeEmpty())
			first.eventuallyNodePortsUnowned()
			first.Eventually(first.idle).Should(BeTrue())
			listener, service := first.listener().ResourceVersion, first.service().ResourceVersion
			stopProcess(t)

			cfg, count := apiserver.Config(t), &counter{}
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
			before := reconciliations(t)
			second := newFixtureWith(t, settings{config: cfg}, class)
			second.key = first.key
			second.Eventually(func() float64 { return reconciliations(t) }).Should(BeNumerically(">", before))
			second.Eventually(second.idle).Should(BeTrue())
			writes := slices.DeleteFunc(count.recorded(), func(w string) bool { return !strings.Contains(w, first.key.Namespace) })
			if len(writes) > 0 || class.NodePorts == nil {
				second.Expect(writes).To(Equal([]string{"PATCH /api/v1/namespaces/" + first.key.Namespace + "/services/web"}))
			}
			second.Expect([]string{second.listener().ResourceVersion, second.service().ResourceVersion}).To(Equal([]string{listener, service}))
		})
	}
}
