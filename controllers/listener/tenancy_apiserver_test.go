package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// noService fails the test if there is a Service with the Listener's name.
func (f *fixture) noService() {
	f.Helper()
	f.Eventually(f.idle).Should(BeTrue())
	f.Expect(client.IgnoreNotFound(f.Get(f.Context(), f.key, &corev1.Service{}))).To(Succeed())
	f.Expect(f.Get(f.Context(), f.key, &corev1.Service{})).NotTo(Succeed())
}

// accepted returns the status and the message of the condition Accepted.
func (f *fixture) accepted() (metav1.ConditionStatus, string) {
	f.Helper()
	if status := f.listener().Status; status != nil {
		if c := meta.FindStatusCondition(status.Conditions, listenersv1alpha1.ListenerAccepted); c != nil {
			return c.Status, c.Message
		}
	}
	return "", ""
}

func TestListenerInANamespaceThatTheClassDoesNotAllowGetsNoService(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort,
		AllowedNamespaces: &listenersv1alpha1.AllowedNamespaces{
			Names: []string{"other"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"exposure": "public"}},
		},
	})
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNamespaceNotAllowed)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("does not allow namespace " + f.key.Namespace + "; name another class"))
	f.Expect(l.Status.IngressAddresses).To(And(Not(BeNil()), BeEmpty()))
	f.Eventually(func() []string { return f.warnings(listenersv1alpha1.ReasonNamespaceNotAllowed) }).Should(HaveLen(1))
	f.noService()

	// An administrator labels the namespace.
	namespace := &corev1.Namespace{}
	f.Expect(f.Get(t.Context(), client.ObjectKey{Name: f.key.Namespace}, namespace)).To(Succeed())
	f.change(namespace, func() { namespace.Labels = map[string]string{"exposure": "public"} })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeNodePort))
	f.Expect(f.listener().Status.KeptClassName).To(BeEmpty())
}

func TestListenersKeepAClassThatNoLongerAllowsTheirNamespace(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	l := f.createListener(nil)
	addresses := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned).Status.IngressAddresses
	f.change(f.class, func() {
		f.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"other"}}
	})
	f.Eventually(func() string { _, m := f.accepted(); return m }).Should(ContainSubstring("the class no longer allows namespace " + f.key.Namespace))
	f.Eventually(func() []string { return f.warnings(listenersv1alpha1.ReasonNamespaceNotAllowed) }).Should(HaveLen(1))
	status, _ := f.accepted()
	f.Expect(status).To(Equal(metav1.ConditionTrue))
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(addresses))
	f.Expect(f.listener().Status.KeptClassName).To(Equal(f.class.Name))

	// It still follows its spec and its class, and gets its Service again.
	f.change(l, func() { l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "https", Port: 443}) })
	f.Eventually(func() int { return len(f.service().Spec.Ports) }).Should(Equal(2))
	first := f.service()
	f.Expect(f.Delete(t.Context(), first)).To(Succeed())
	f.Eventually(func() error { return f.Get(t.Context(), f.key, &corev1.Service{}) }).Should(Succeed())
	f.Expect(f.service().UID).NotTo(Equal(first.UID))

	// Another class is another matter, also one with the same restriction.
	other := f.class.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{GenerateName: "class-"}
	other.Spec.ServiceType = loadBalancer
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	before := f.listener().Status.IngressAddresses
	f.change(l, func() { l.Spec.ClassName = &other.Name })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNamespaceNotAllowed)
	f.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(before))
	f.Expect(f.listener().Status.KeptClassName).To(BeEmpty())

	// Once it has left the class, it cannot return.
	f.change(l, func() { l.Spec.ClassName = &f.class.Name })
	f.Eventually(func() string { _, m := f.accepted(); return m }).Should(ContainSubstring("ListenerClass " + f.class.Name + " does not allow namespace"))
	f.change(f.class, func() { f.class.Spec.AllowedNamespaces = nil })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
}

func TestListenerWithTooManyPortsIsNotAccepted(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, MaxPorts: new(int32(2))})
	ports := []listenersv1alpha1.ListenerPort{{Name: "a", Port: 1}, {Name: "b", Port: 2}, {Name: "c", Port: 3}}
	l := f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.Ports = ports })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidPorts)
	_, message := f.accepted()
	f.Expect(message).To(ContainSubstring("the Listener has 3 ports, and ListenerClass " + f.class.Name + " allows 2"))
	f.noService()
	f.change(l, func() { l.Spec.Ports = ports[:2] })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.change(l, func() { l.Spec.Ports = ports })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidPorts)
	f.Expect(f.service().Spec.Ports).To(HaveLen(2))
}
