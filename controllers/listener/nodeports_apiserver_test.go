package listener_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// eventuallyNodePorts waits until the status has as many node ports, which are those of the Service, and returns them.
func (f *fixture) eventuallyNodePorts(count int) map[string]int32 {
	f.Helper()
	var numbers map[string]int32
	f.Eventually(func(g Gomega) {
		service := &corev1.Service{}
		g.Expect(f.Get(f.Context(), f.key, service)).To(Succeed())
		g.Expect(service.DeletionTimestamp).To(BeNil())
		numbers = map[string]int32{}
		for _, p := range service.Spec.Ports {
			numbers[p.Name] = p.NodePort
		}
		l := f.listener()
		g.Expect(l.Status).NotTo(BeNil())
		g.Expect(l.Status.NodePorts).To(And(Equal(numbers), HaveLen(count)))
		g.Expect(l.Status.LastNodePorts).To(BeEmpty())
	}).Should(Succeed())
	return numbers
}

// deleteService deletes the Service and waits until another one exists.
func (f *fixture) deleteService() {
	f.Helper()
	deleted := f.service()
	f.Expect(f.Delete(f.Context(), deleted)).To(Succeed())
	f.Eventually(func() types.UID {
		service := &corev1.Service{}
		if err := f.Get(f.Context(), f.key, service); err != nil {
			return deleted.UID
		}
		return service.UID
	}).ShouldNot(Equal(deleted.UID))
}

// eventuallyNodePortsUnowned waits until no manager owns a node port of the Service.
func (f *fixture) eventuallyNodePortsUnowned() {
	f.Helper()
	f.Eventually(func() string {
		var fields strings.Builder
		for _, entry := range f.service().ManagedFields {
			fmt.Fprintf(&fields, "%s %s\n", entry.Manager, entry.FieldsV1)
		}
		return fields.String()
	}).ShouldNot(ContainSubstring("nodePort"))
}

// nodePortEvents returns the notes of the events about changed node ports.
func (f *fixture) nodePortEvents() []string {
	f.Helper()
	var list eventsv1.EventList
	f.Expect(f.List(f.Context(), &list, client.InNamespace(f.key.Namespace))).To(Succeed())
	var notes []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == listenersv1alpha1.ReasonNodePortsChanged {
			f.Expect(e.Type).To(Equal(corev1.EventTypeWarning))
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// occupy creates another Service with this node port.
func (f *fixture) occupy(number int32) *corev1.Service {
	f.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, GenerateName: "other-"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: number}}},
	}
	f.Eventually(func() error { return f.Create(f.Context(), service) }).Should(Succeed())
	return service
}

// severalPorts gives the Listener ports of several protocols, two of them with the same number.
func severalPorts(l *listenersv1alpha1.Listener) {
	l.Spec.Ports = []listenersv1alpha1.ListenerPort{
		{Name: "dns-tcp", Port: 53}, {Name: "dns-udp", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: "http", Port: 80},
	}
}

func TestDeletedServiceGetsItsNodePortsAgain(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	node := f.createNode("10.3.0.1")
	f.createVolume(node.Name)
	f.eventuallyAddresses("10.3.0.1")
	version := f.listener().ResourceVersion
	for range 20 { // the API server deallocates node ports after it deletes the Service
		f.deleteService()
		f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		f.eventuallyNodePortsUnowned()
	}
	f.Eventually(f.idle).Should(BeTrue())
	f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
	f.Expect(f.listener().ResourceVersion).To(Equal(version)) // nothing was written in between
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

func TestTerminatingServiceGetsItsNodePortsAgain(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(nil)
	before := f.eventuallyNodePorts(1)
	first := f.service()
	f.change(first, func() { first.Finalizers = []string{"example.com/cleanup"} })
	f.Expect(f.Delete(t.Context(), first)).To(Succeed())
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonServiceTerminating)
	f.Expect(l.Status.NodePorts).To(Equal(before))
	first = f.service()
	f.change(first, func() { first.Finalizers = nil })
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForPods)
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(before))
	f.Expect(f.service().UID).NotTo(Equal(first.UID))
}

func TestServiceGetsItsNodePortsAgainAfterOtherServiceTypes(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	for _, change := range []func(){
		func() { f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeClusterIP },
		func() {
			f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
			f.class.Spec.LoadBalancerAllocateNodePorts = ptr.To(false)
		},
		func() { f.class.Spec.LoadBalancerAllocateNodePorts = nil }, // Kubernetes allocates some, which have to be the same
	} {
		f.change(f.class, change)
		f.Eventually(func() map[string]int32 { return f.listener().Status.LastNodePorts }).Should(Equal(before))
		f.Expect(f.listener().Status.NodePorts).To(BeNil())
		if f.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeClusterIP {
			f.deleteService() // also this Service does not end what the Listener remembers
		}
	}
	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.LoadBalancerAllocateNodePorts = listenersv1alpha1.ServiceTypeNodePort, nil
	})
	f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
	f.eventuallyNodePortsUnowned()
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

func TestADeletedLoadBalancerGetsItsNodePortsAgain(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
	})
	f.createListener(nil)
	numbers := func() []int32 {
		return []int32{f.service().Spec.Ports[0].NodePort, f.service().Spec.HealthCheckNodePort}
	}
	f.Eventually(func() map[string]int32 {
		return ptr.Deref(f.listener().Status, listenersv1alpha1.ListenerStatus{}).LastNodePorts
	}).Should(HaveLen(2))
	before := numbers()
	for range 5 {
		f.deleteService()
		f.Expect(numbers()).To(Equal(before))
		f.eventuallyNodePortsUnowned()
	}

	// The port of the health check has become that of another Service.
	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.ServiceExternalTrafficPolicy = listenersv1alpha1.ServiceTypeClusterIP, nil
	})
	f.Eventually(func() corev1.ServiceType { return f.service().Spec.Type }).Should(Equal(corev1.ServiceTypeClusterIP))
	f.occupy(before[1])
	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.ServiceExternalTrafficPolicy = listenersv1alpha1.ServiceTypeLoadBalancer, ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	})
	f.Eventually(numbers).Should(HaveExactElements(before[0], And(Not(BeZero()), Not(Equal(before[1])))))
}

func TestNodePortsOfOtherServicesAreNotTaken(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(func(l *listenersv1alpha1.Listener) {
		l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "admin", Port: 81}, {Name: "http", Port: 80}}
	})
	before := f.eventuallyNodePorts(2)
	f.change(f.class, func() { f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeClusterIP })
	f.Eventually(func() map[string]int32 { return f.listener().Status.LastNodePorts }).Should(Equal(before))
	other := f.occupy(before["http"])
	f.change(f.class, func() { f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort })
	after := f.eventuallyNodePorts(2)
	f.Expect(after["admin"]).To(Equal(before["admin"]))
	f.Expect(after["http"]).NotTo(Equal(before["http"]))
	f.Eventually(f.nodePortEvents).Should(ConsistOf(ContainSubstring("http: %d instead of %d (Invalid value: %d: provided port is already allocated)",
		after["http"], before["http"], before["http"])))
	f.Expect(f.Get(t.Context(), client.ObjectKeyFromObject(other), other)).To(Succeed())
	f.Expect(other.Spec.Ports[0].NodePort).To(Equal(before["http"]))

	// The new one counts from now on, although the other one is free again.
	f.Expect(f.Delete(t.Context(), other)).To(Succeed())
	f.deleteService()
	f.Expect(f.eventuallyNodePorts(2)).To(Equal(after))
	f.Expect(f.nodePortEvents()).To(HaveLen(1))
}

// The API server deallocates the node ports of a Service only after it has deleted the Service. Here a number stays
// allocated because it is the port of another Service's health check.
func TestNodePortsAreAwaitedWhileNoServicePortHasThem(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	f.createListener(nil)
	before := f.eventuallyNodePorts(1)
	f.change(f.class, func() { f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeClusterIP })
	f.Eventually(func() map[string]int32 { return f.listener().Status.LastNodePorts }).Should(Equal(before))
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "other"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			HealthCheckNodePort: before["http"], AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	version, reconciled := f.listener().ResourceVersion, reconciliations(t)
	f.change(f.class, func() { f.class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort })
	f.Eventually(func() float64 { return reconciliations(t) }).Should(BeNumerically(">=", reconciled+2))
	f.Expect(f.listener().ResourceVersion).To(Equal(version))
	f.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))

	f.Expect(f.Delete(t.Context(), other)).To(Succeed())
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(before))
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

func TestNodePortsOutsideTheRangeAreReplaced(t *testing.T) {
	stopProcess(t)
	f := newClass(t, listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
	l := f.createListener(nil)
	l.Status = &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 20000}, IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	f.Expect(f.Status().Update(t.Context(), l)).To(Succeed())
	f.start(settings{})
	after := f.eventuallyNodePorts(1)
	f.Expect(after["http"]).To(BeNumerically(">=", 30000))
	f.Eventually(f.nodePortEvents).Should(ConsistOf(ContainSubstring("http: %d instead of 20000 (Invalid value: 20000: provided port is not in the valid range", after["http"])))
}

func TestNodePortsOfOverridesTakePrecedence(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType:       listenersv1alpha1.ServiceTypeNodePort,
		ListenerOverrides: &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.ports.nodePort"}},
	})
	l := f.createListener(nil)
	before := f.eventuallyNodePorts(1)["http"]
	reserved := f.occupy(0) // a number that is free, because it is released here
	number := reserved.Spec.Ports[0].NodePort
	f.Expect(f.Delete(t.Context(), reserved)).To(Succeed())
	f.change(l, func() {
		l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":{"ports":[{"port":80,"nodePort":%d}]}}`, l.Name, l.Namespace, number)}}
	})
	f.Eventually(func() int32 { return f.eventuallyNodePorts(1)["http"] }).Should(Equal(number))
	f.deleteService()
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": number}))

	// Without the override the Service keeps its number, also when it is deleted.
	f.change(l, func() { l.Spec.ObjectOverrides = nil })
	f.eventuallyNodePortsUnowned()
	f.deleteService()
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": number}))
	f.Expect(before).NotTo(Equal(number))
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

// While the operator does not run, its status is all that remembers the node ports.
func TestServiceDeletedWithoutAnOperatorGetsItsNodePortsAgain(t *testing.T) {
	spec := listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}
	first := newFixture(t, spec)
	first.createListener(nil)
	before := first.eventuallyNodePorts(1)
	stopProcess(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: first.key.Namespace, Name: first.key.Name}}
	first.Expect(first.Delete(t.Context(), service)).To(Succeed())

	second := newFixture(t, spec)
	second.key = first.key
	second.Expect(second.eventuallyNodePorts(1)).To(Equal(before))
}

// ending lets a process end at its n-th write in a namespace, counted from 0: no later write is sent. That write is
// either not sent, or its response is lost. Events are always sent, because a manager does not stop while it retries.
type ending struct {
	next      http.RoundTripper
	namespace string
	n         int
	sent      bool
	mu        sync.Mutex
	writes    int
	finished  bool
}

var errEnded = errors.New("the process has ended")

func (e *ending) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "/events") {
		return e.next.RoundTrip(request)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return nil, errEnded
	}
	if strings.Contains(request.URL.Path, "/"+e.namespace+"/") {
		e.finished = e.writes == e.n
		e.writes++
	}
	if e.finished && !e.sent {
		return nil, errEnded
	}
	response, err := e.next.RoundTrip(request)
	if e.finished && err == nil {
		return nil, errors.Join(errEnded, response.Body.Close())
	}
	return response, err
}

func (e *ending) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finished
}

// The operator may end between any two of its writes.
func TestNodePortsOutliveTheProcess(t *testing.T) {
	spec := listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}
	first := newFixture(t, spec)
	first.createListener(severalPorts)
	class, key, before := first.class, first.key, first.eventuallyNodePorts(3)
	stopProcess(t)
	setType := func(serviceType listenersv1alpha1.ServiceType) func(*testing.T) {
		return func(t *testing.T) {
			f := &fixture{World: apiserver.NewWorld(t)}
			f.change(class, func() { class.Spec.ServiceType = serviceType })
		}
	}
	deleteService := func(t *testing.T) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := apiserver.Client(t).Delete(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		for _, sent := range []bool{false, true} {
			for _, step := range []struct {
				name   string
				change func(*testing.T)
				last   bool // the node ports are remembered, but not allocated
			}{
				{name: "Service deleted", change: deleteService},
				{name: "class becomes ClusterIP", change: setType(listenersv1alpha1.ServiceTypeClusterIP), last: true},
				{name: "class becomes NodePort", change: setType(listenersv1alpha1.ServiceTypeNodePort)},
			} {
				t.Run(fmt.Sprintf("%s, write %d, sent %t", step.name, n, sent), func(t *testing.T) {
					step.change(t)
					t.Run("process that ends", func(t *testing.T) {
						cfg, e := apiserver.Config(t), &ending{namespace: key.Namespace, n: n, sent: sent}
						cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { e.next = next; return e })
						f := newFixtureWith(t, settings{config: cfg}, spec)
						f.Eventually(e.hasEnded).Should(BeTrue())
					})
					t.Run("next process", func(t *testing.T) {
						f := newFixture(t, spec)
						defer stopProcess(t)
						f.key = key
						if !step.last {
							f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
							return
						}
						f.Eventually(func(g Gomega) {
							g.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
							status := f.listener().Status
							g.Expect(status.NodePorts).To(BeEmpty())
							g.Expect(status.LastNodePorts).To(Equal(before))
						}).Should(Succeed())
					})
				})
			}
		}
	}
}
