package listener_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
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
	return f.warnings(listenersv1alpha1.ReasonNodePortsChanged)
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
	f := newFixture(t, ofType(nodePort))
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

func TestServiceGetsItsNodePortsAgainAfterOtherServiceTypes(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	for _, change := range []func(){
		func() { f.class.Spec.ServiceType = clusterIP },
		func() {
			f.class.Spec.ServiceType = loadBalancer
			f.class.Spec.LoadBalancerAllocateNodePorts = ptr.To(false)
		},
		func() { f.class.Spec.LoadBalancerAllocateNodePorts = nil }, // Kubernetes allocates some, which have to be the same
	} {
		f.change(f.class, change)
		f.Eventually(func() map[string]int32 { return f.listener().Status.LastNodePorts }).Should(Equal(before))
		f.Expect(f.listener().Status.NodePorts).To(BeNil())
		if f.class.Spec.ServiceType == clusterIP {
			f.deleteService() // also this Service does not end what the Listener remembers
		}
	}
	f.change(f.class, func() { f.class.Spec.ServiceType, f.class.Spec.LoadBalancerAllocateNodePorts = nodePort, nil })
	f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
	f.eventuallyNodePortsUnowned()
	f.Expect(f.nodePortEvents()).To(BeEmpty())
}

func TestADeletedLoadBalancerGetsItsNodePortsAgain(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: loadBalancer, ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
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
	f.change(f.class, func() { f.class.Spec.ServiceType, f.class.Spec.ServiceExternalTrafficPolicy = clusterIP, nil })
	f.Eventually(func() corev1.ServiceType { return f.service().Spec.Type }).Should(Equal(corev1.ServiceTypeClusterIP))
	f.occupy(before[1])
	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.ServiceExternalTrafficPolicy = loadBalancer, ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	})
	f.Eventually(numbers).Should(HaveExactElements(before[0], And(Not(BeZero()), Not(Equal(before[1])))))
}

func TestNodePortsOfOtherServicesAreNotTaken(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(func(l *listenersv1alpha1.Listener) {
		l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "admin", Port: 81}, {Name: "http", Port: 80}}
	})
	before := f.eventuallyNodePorts(2)
	forged := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: "web"}}
	forged.Spec.Type, forged.Spec.Ports = corev1.ServiceTypeNodePort, f.service().Spec.Ports[:1]
	f.Expect(f.Create(t.Context(), forged)).To(Satisfy(apierrors.IsInvalid), "Kubernetes allocates no number twice")
	f.change(f.class, func() { f.class.Spec.ServiceType = clusterIP })
	f.Eventually(func() map[string]int32 { return f.listener().Status.LastNodePorts }).Should(Equal(before))
	other := f.occupy(before["http"])
	f.change(f.class, func() { f.class.Spec.ServiceType = nodePort })
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

func TestNodePortsOfOverridesTakePrecedence(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType:       nodePort,
		ListenerOverrides: &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.ports.nodePort"}},
	})
	l := f.createListener(nil)
	before := f.eventuallyNodePorts(1)["http"]
	reserved := f.occupy(0) // a number that is free, because it is released here
	number := reserved.Spec.Ports[0].NodePort
	f.Expect(f.Delete(t.Context(), reserved)).To(Succeed())
	f.change(l, func() { override(l, `{}`, fmt.Sprintf(`{"ports":[{"port":80,"nodePort":%d}]}`, number)) })
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

// sameTarget returns the spec of a class whose node ports lead to the container ports of the same numbers.
func sameTarget() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame},
	}
}

// targets returns the target ports of the Service, by port name.
func (f *fixture) targets() map[string]intstr.IntOrString {
	f.Helper()
	targets := map[string]intstr.IntOrString{}
	for _, p := range f.service().Spec.Ports {
		targets[p.Name] = p.TargetPort
	}
	return targets
}

// numbers returns target ports with these numbers.
func numbers(ports map[string]int32) map[string]intstr.IntOrString {
	targets := map[string]intstr.IntOrString{}
	for name, number := range ports {
		targets[name] = intstr.FromInt32(number)
	}
	return targets
}

func TestNodePortsLeadToTheSameContainerPorts(t *testing.T) {
	f := newFixture(t, sameTarget())
	node := f.createNode("10.3.1.1")
	f.createVolume(node.Name)
	f.createListener(severalPorts)
	before := f.eventuallyNodePorts(3)
	f.Expect(before["dns-tcp"]).To(Equal(before["dns-udp"])) // one number, in both protocols
	f.Expect(f.targets()).To(Equal(numbers(before)))
	f.Expect(f.eventuallyAddresses("10.3.1.1").Status.IngressAddresses[0].Ports).To(Equal(before))
	f.eventuallyNodePortsUnowned()
	for range 5 {
		f.deleteService()
		f.Expect(f.eventuallyNodePorts(3)).To(Equal(before))
		f.Eventually(f.targets).Should(Equal(numbers(before)))
		f.eventuallyNodePortsUnowned()
	}

	service := f.service()
	f.change(service, func() { service.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })
	f.Eventually(f.targets).Should(Equal(numbers(before)))

	// Another client changes the node port of the Service, and the Listener gets another number and another port.
	reserved := f.occupy(0)
	free := reserved.Spec.Ports[0].NodePort
	f.Expect(f.Delete(t.Context(), reserved)).To(Succeed())
	f.Eventually(func() error {
		service := f.service()
		service.Spec.Ports[slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "http" })].NodePort = free
		return f.Update(t.Context(), service)
	}).Should(Succeed())
	f.Eventually(func() int32 { return f.listener().Status.NodePorts["http"] }).Should(Equal(free))
	f.Expect(f.targets()["http"]).To(Equal(intstr.FromInt32(free)))
	f.Eventually(f.nodePortEvents).Should(ConsistOf(ContainSubstring("programs have to listen on: http: %d instead of %d", free, before["http"])))

	l := f.listener()
	f.change(l, func() {
		l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}, {Name: "new", Port: 81}}
	})
	f.Eventually(func() map[string]int32 { return f.listener().Status.NodePorts }).Should(And(HaveKeyWithValue("http", free), HaveKey("new"), HaveLen(2)))
	f.Expect(f.targets()).To(Equal(numbers(f.listener().Status.NodePorts)))
}

// left returns what the metrics say about the ports that are left in a range of a class, or -1 if they say nothing.
func (f *fixture) left(class, kind string) int {
	f.Helper()
	if left, ok := metric.Series(f, "listener_operator_port_range_left")[class+" "+kind]; ok {
		return int(left)
	}
	return -1
}

// The Pods of a Job exist until the Job is deleted, and would hold their node ports.
func TestAJobHasMorePodsThanItsClassHasNodePorts(t *testing.T) {
	const first, size, pods = 30000, 8, 20 // Kubernetes allocates such low numbers last
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: fmt.Sprintf("%d-%d", first, first+size-1)},
	})
	running := map[client.ObjectKey]*corev1.Pod{}
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: fmt.Sprintf("job-%d", i)},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "job", Image: "job"}}, RestartPolicy: corev1.RestartPolicyNever,
				Volumes: []corev1.Volume{objects.EphemeralVolume("listener", nil)},
			},
		}
		f.Expect(f.Create(t.Context(), pod)).To(Succeed())
		pvc := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name + "-listener",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}},
			},
			Spec: objects.ClaimSpec(""),
		}
		f.Expect(f.Create(t.Context(), pvc)).To(Succeed())
		f.key.Name = pvc.Name
		f.createListener(func(l *listenersv1alpha1.Listener) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: pvc.Name, UID: pvc.UID}}
		})
		running[f.key] = pod
	}
	f.Eventually(func() int { // Pods finish as soon as they have had their port
		for key, pod := range running {
			l := &listenersv1alpha1.Listener{}
			f.Expect(f.Get(t.Context(), key, l)).To(Succeed())
			if l.Status != nil && l.Status.NodePorts["http"] != 0 {
				pod.Status.Phase = corev1.PodSucceeded
				f.Expect(f.Status().Update(t.Context(), pod)).To(Succeed())
				delete(running, key)
			}
		}
		f.collectGarbage(f.key.Namespace)
		return len(running)
	}).Should(BeZero())
	f.Eventually(func(g Gomega) {
		f.collectGarbage(f.key.Namespace)
		var listeners listenersv1alpha1.ListenerList
		var services corev1.ServiceList
		g.Expect(f.List(t.Context(), &listeners, client.InNamespace(f.key.Namespace))).To(Succeed())
		g.Expect(f.List(t.Context(), &services, client.InNamespace(f.key.Namespace))).To(Succeed())
		g.Expect(len(listeners.Items) + len(services.Items)).To(BeZero())
	}).Should(Succeed())
}
