package main

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// mover is a Pod with a claim, the operator, and what Kubernetes' own controllers do.
type mover struct {
	*model
	*WithT
	claim string
}

func newMover(t *testing.T, classes map[string]listenersv1alpha1.ListenerClassSpec) *mover {
	t.Helper()
	m := newModel(t).moving(t, "claim-0")
	m.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.namespace + "-node-0"}})
	for name, spec := range classes {
		m.create(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: m.named(name)}, Spec: spec})
	}
	m.restart()
	return m
}

// moving returns a Pod that has a claim, for a test.
func (m *model) moving(t *testing.T, claim string) *mover {
	t.Helper()
	own := *m
	own.T = t
	moving := &mover{&own, NewWithT(t), claim}
	moving.SetDefaultEventuallyTimeout(apiserver.Timeout)
	moving.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	return moving
}

// named returns the name of a class.
func (m *mover) named(class string) string { return m.namespace + "-" + class }

// start creates the claim with its Pod, whose uid it returns.
func (m *mover) start(class string) types.UID {
	m.Helper()
	claim := claimOf(m.namespace, m.claim)
	claim.Annotations[names.AnnotationListenerClass] = m.named(class)
	m.Expect(m.Create(m.Context(), claim)).To(Succeed())
	pod := m.mounting(m.claim)
	m.Expect(m.Create(m.Context(), pod)).To(Succeed())
	return pod.UID
}

// stop deletes the claim and its Pod, as a user does who moves the Pod.
func (m *mover) stop() {
	m.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: m.meta(m.claim)}
	m.delete(claim)
	m.delete(&corev1.Pod{ObjectMeta: m.meta(m.claim)})
	m.Eventually(func() error { return m.Get(m.Context(), client.ObjectKeyFromObject(claim), claim) }).ShouldNot(Succeed())
}

func (m *mover) service() *corev1.Service {
	service := &corev1.Service{}
	m.Eventually(func() error {
		return m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.claim}, service)
	}).Should(Succeed())
	return service
}

// assign gives the Service an address, as the controller of a load balancer does.
func (m *mover) assign(address string) {
	m.Helper()
	service := m.service()
	m.setStatus(service, func() { service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}} })
}

// setStatus changes the status of an object that exists, as its controller does while the operator writes the rest.
func (m *mover) setStatus(o client.Object, change func()) {
	m.Helper()
	m.Expect(m.Get(m.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	before := o.DeepCopyObject().(client.Object)
	change()
	m.Expect(m.Status().Patch(m.Context(), o, client.MergeFrom(before))).To(Succeed())
}

// addresses returns the addresses that a Pod started with and has now, as host:port.
func (m *mover) addresses(pod types.UID) (start, now []string) {
	published := m.published(pod)
	text := func(addresses []listenersv1alpha1.IngressAddress) (all []string) {
		for _, a := range addresses {
			all = append(all, fmt.Sprintf("%s:%d", a.Address, a.Ports["http"]))
		}
		return all
	}
	return text(published.StartAddresses["listener"]), text(published.Listeners["listener"].IngressAddresses)
}

func (m *mover) eventually(pod types.UID, want string) {
	m.Helper()
	m.Eventually(func() []string { _, now := m.addresses(pod); return now }).Should(Equal([]string{want}))
}

// ownAddress has a load balancer for each Listener.
var ownAddress = listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer}

// sharedAddress has all Listeners share a load balancer, with this port alone. No two tests may have the same.
func sharedAddress(port int) listenersv1alpha1.ListenerClassSpec {
	spec := ownAddress
	spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: fmt.Sprintf("%[1]d-%[1]d", port)}}
	return spec
}

// A user deletes the claim and the Pod of a replica, and the claim that replaces it names another class. Listener and
// Service are new, so the Pod never gets the address of the earlier one.
func TestAClaimOfAnotherClassHasAnotherListener(t *testing.T) {
	m := newMover(t, map[string]listenersv1alpha1.ListenerClassSpec{"own": ownAddress, "shared": sharedAddress(19000)})
	first := m.start("own")
	m.assign("192.0.2.101")
	m.eventually(first, "192.0.2.101:80")
	before := m.service().UID
	m.stop()
	second := m.start("shared")
	m.Eventually(func() types.UID { return m.service().UID }).ShouldNot(Equal(before))
	m.assign("192.0.2.102")
	m.eventually(second, "192.0.2.102:19000")
	start, now := m.addresses(second)
	m.Expect(start).To(Equal(now))
}

// A Pod that runs keeps the previous address until the new one is known, which is the only one that the other Pod ever
// gets.
func TestAPodThatStartsWhileItsListenerMovesGetsTheNewAddress(t *testing.T) {
	m := newMover(t, map[string]listenersv1alpha1.ListenerClassSpec{
		"ports": {ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		"hosts": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{
			ClassName: "test", HostTemplate: "{listener}.{namespace}.example.com", Path: "/",
		}},
	})
	m.createListener("ports")
	first := m.mount("pod-1")
	previous := fmt.Sprintf("192.0.2.0:%d", m.service().Spec.Ports[0].NodePort)
	m.eventually(first, previous)
	m.move("hosts")
	m.eventuallyReady(listenersv1alpha1.ReasonPreviousExposure)
	second := m.mount("pod-2")
	m.Eventually(func() error {
		return m.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: listenersv1alpha1.PodListenersName(second)}, &listenersv1alpha1.PodListeners{})
	}).Should(Succeed())
	start, now := m.addresses(second)
	m.Expect(append(start, now...)).To(BeEmpty())
	_, now = m.addresses(first)
	m.Expect(now).To(Equal([]string{previous}))

	ingress := &networkingv1.Ingress{ObjectMeta: m.meta(m.claim + "-http")}
	m.Eventually(func() error { return m.Get(t.Context(), client.ObjectKeyFromObject(ingress), ingress) }).Should(Succeed())
	m.setStatus(ingress, func() {
		ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.103"}}
	})
	host := m.claim + "." + m.namespace + ".example.com:80"
	m.eventually(first, host)
	m.eventually(second, host)
	start, _ = m.addresses(second)
	m.Expect(start).To(Equal([]string{host}))
	ready := m.eventuallyReady(listenersv1alpha1.ReasonPodsOutdated)
	m.Expect(ready.Message).To(HaveSuffix(": pod-1"))
}

// The Service follows the previous class, and says nothing about whether its load balancer is going to change the
// address.
func TestAPodThatStartsBeforeALoadBalancerMovesIsReported(t *testing.T) {
	m := newMover(t, map[string]listenersv1alpha1.ListenerClassSpec{"own": ownAddress, "shared": sharedAddress(19001)})
	m.createListener("own")
	first := m.mount("pod-1")
	m.assign("192.0.2.101")
	m.eventually(first, "192.0.2.101:80")
	m.move("shared")
	m.eventually(first, "192.0.2.101:19001")
	second := m.mount("pod-2")
	m.eventually(second, "192.0.2.101:19001")
	m.assign("192.0.2.102")
	m.eventually(second, "192.0.2.102:19001")
	m.Eventually(func() string { return m.eventuallyReady(listenersv1alpha1.ReasonPodsOutdated).Message }).Should(HaveSuffix(": pod-1,pod-2"))
}

// createListener creates a Listener, which Pods mount by name.
func (m *mover) createListener(class string) {
	m.Helper()
	m.claim = "web"
	m.Expect(m.Create(m.Context(), &listenersv1alpha1.Listener{ObjectMeta: m.meta(m.claim), Spec: listenersv1alpha1.ListenerSpec{
		ClassName: ptr.To(m.named(class)), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
	}})).To(Succeed())
}

// mount creates a Pod that mounts the Listener, and returns its uid.
func (m *mover) mount(name string) types.UID {
	m.Helper()
	claim := claimOf(m.namespace, name)
	claim.Annotations[names.AnnotationListenerName] = m.claim
	m.Expect(m.Create(m.Context(), claim)).To(Succeed())
	pod := m.mounting(name)
	m.Expect(m.Create(m.Context(), pod)).To(Succeed())
	return pod.UID
}

// move makes the Listener one of another class.
func (m *mover) move(class string) {
	m.Helper()
	listener := &listenersv1alpha1.Listener{ObjectMeta: m.meta(m.claim)}
	patch := fmt.Appendf(nil, `{"spec":{"className":%q}}`, m.named(class))
	m.Expect(m.Patch(m.Context(), listener, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// eventuallyReady waits until the Listener is ready for a reason, and returns the condition.
func (m *mover) eventuallyReady(reason string) (ready metav1.Condition) {
	m.Helper()
	m.Eventually(func() string {
		listener := m.readListener(m.claim)
		if listener.Status == nil {
			return ""
		}
		ready = ptr.Deref(meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerReady), metav1.Condition{})
		return ready.Reason
	}).Should(Equal(reason))
	return ready
}
