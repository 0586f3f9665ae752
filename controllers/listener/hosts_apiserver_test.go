package listener_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// A Listener that waits for a host gets it when the first one is deleted, or when its class changes, but not while that
// publishes it.
func TestAHostThatAClassNoLongerGivesIsFree(t *testing.T) {
	for name, tc := range map[string]struct{ deleted, published, otherHost bool }{
		"not published": {},
		"deleted":       {deleted: true},
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
			l := f.createListener(nil)
			f.Eventually(f.reason(listenersv1alpha1.ListenerAccepted)).Should(Equal(listenersv1alpha1.ReasonAccepted))
			if tc.published {
				f.take(f.ingress(first.Name+"-http", ""), "192.0.2.1")
				f.eventuallyAddresses(first.Name + "." + first.Namespace + ".example.com")
			}
			f.key = second
			f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.ClassName = &other.Name })
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidHost)
			if tc.deleted {
				f.Expect(f.Delete(t.Context(), l)).To(Succeed())
				f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
				f.Expect(f.listener().Status.WaitingFor).To(BeNil())
				return
			}
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

// The name of a replica is its first address, and in the annotations of external-dns, as soon as the load balancer has
// an address. It stays while the Pod is replaced, and the author of a Listener cannot choose it.
func TestAListenerIsPublishedByName(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: loadBalancer, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		Hostname:                   &listenersv1alpha1.Hostname{Template: "{podName}.{namespace}.example.com"},
		ServiceAnnotations:         map[string]string{"example.com/ttl": "60"},
		ServiceAnnotationTemplates: map[string]listenersv1alpha1.AnnotationTemplate{"example.com/replica": "{podIndex} of {listener}"},
	})
	host := "kafka-2." + f.key.Namespace + ".example.com"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "kafka-2"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "kafka", Image: "kafka"}},
			Volumes:    []corev1.Volume{objects.ClaimVolume("listener", f.key.Name)},
		},
	}
	f.createListener(func(l *listenersv1alpha1.Listener) {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: l.Name, UID: "claim-uid"}}
		l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": %q, "annotations": {%q: "another.example.com", %q: "another.example.com", "example.com/ttl": "10"}}}`,
			f.key.Namespace, names.AnnotationHostname, names.AnnotationHostname022)}}
	})
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNoSinglePod)
	f.Expect(f.Get(t.Context(), f.key, &corev1.Service{})).NotTo(Succeed())

	f.Expect(f.Create(t.Context(), pod)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	f.Expect(f.service().Annotations).To(Equal(map[string]string{
		names.AnnotationHostname: host, names.AnnotationHostname022: host, names.AnnotationPod: "kafka-2", "example.com/ttl": "10", "example.com/replica": "2 of web",
	}))
	f.assign(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	l := f.eventuallyAddresses(host, "192.0.2.1")
	f.Expect(l.Status.IngressAddresses[0]).To(Equal(listenersv1alpha1.IngressAddress{
		Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80},
	}))

	// The name does not change while the Pod is replaced.
	f.Expect(f.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
	f.change(f.class, func() { f.class.Spec.ServiceAnnotations["example.com/seen"] = "true" })
	f.Eventually(func() map[string]string { return f.service().Annotations }).Should(HaveKeyWithValue("example.com/seen", "true"))
	f.Expect(f.service().Annotations).To(HaveKeyWithValue(names.AnnotationHostname, host))
	f.eventuallyAddresses(host, "192.0.2.1")

	f.change(f.class, func() { f.class.Spec.Hostname, f.class.Spec.ServiceAnnotationTemplates = nil, nil })
	f.eventuallyAddresses("192.0.2.1")
	f.Expect(f.service().Annotations).NotTo(HaveKey("example.com/replica"))
	f.Expect(f.service().Annotations).NotTo(HaveKey(names.AnnotationPod))
}
