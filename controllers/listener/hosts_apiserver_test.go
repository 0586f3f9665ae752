package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// namedClass returns the spec of a class that publishes names.
func namedClass(template listenersv1alpha1.HostTemplate) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: loadBalancer, Hostname: &listenersv1alpha1.Hostname{Template: template},
	}
}

// The later Listener gets the host when the first one does not have it any more.
func TestAHostIsFreeWhenItsListenerIsDeleted(t *testing.T) {
	f := newFixture(t, namedClass("{listener}.{namespace}.example.com"))
	spec := ingressClass("some")
	spec.Ingress.HostTemplate = "{namespace}.{listener}.example.com"
	other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: spec}
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	first := client.ObjectKey{Namespace: f.key.Namespace, Name: apiserver.Namespace(t)}
	f.key = first
	l := f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)

	f.key = client.ObjectKey{Namespace: first.Name, Name: first.Namespace}
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.ClassName = &other.Name })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidHost)
	f.Expect(f.Delete(t.Context(), l)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.listener().Status.WaitingFor).To(BeNil())
}

// A Listener that waits for a host gets it when the class of the first one changes, but not while that publishes it.
func TestAHostThatAClassNoLongerGivesIsFree(t *testing.T) {
	for name, tc := range map[string]struct{ published, otherHost bool }{
		"not published": {},
		"published, until there is another address":    {published: true},
		"published, until the Ingress has other hosts": {published: true, otherHost: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ingressClass("some"))
			spec := ingressClass("some")
			spec.Ingress.HostTemplate = "{namespace}.{listener}.example.com"
			other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: spec}
			f.Expect(f.Create(t.Context(), other)).To(Succeed())
			first := client.ObjectKey{Namespace: f.key.Namespace, Name: apiserver.Namespace(t)}
			second := client.ObjectKey{Namespace: first.Name, Name: first.Namespace}
			f.key = first
			f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = first.Name })
			f.Eventually(f.reason(listenersv1alpha1.ListenerAccepted)).Should(Equal(listenersv1alpha1.ReasonAccepted))
			if tc.published {
				f.take(f.ingress(first.Name+"-http", ""), "192.0.2.1")
				f.eventuallyAddresses(first.Name + "." + first.Namespace + ".example.com")
			}
			f.key = second
			f.createListener(func(l *listenersv1alpha1.Listener) { l.Name, l.Spec.ClassName = second.Name, &other.Name })
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidHost)
			f.change(f.class, func() {
				if f.class.Spec.Ingress.HostTemplate = "{listener}.{namespace}.example.org"; !tc.otherHost {
					f.class.Spec.Ingress, f.class.Spec.ServiceType = nil, nodePort
				}
			})
			if tc.published && !tc.otherHost {
				f.key = first
				f.Eventually(func() corev1.ServiceType { return f.service().Spec.Type }).Should(Equal(corev1.ServiceTypeNodePort))
				f.Eventually(f.idle).Should(BeTrue())
				f.key = second
				f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidHost)
				f.key = first
				f.createVolume(f.createNode("192.0.2.2").Name)
				f.eventuallyAddresses("192.0.2.2")
				f.key = second
			}
			f.Eventually(f.reason(listenersv1alpha1.ListenerAccepted)).Should(Equal(listenersv1alpha1.ReasonAccepted))
		})
	}
}
