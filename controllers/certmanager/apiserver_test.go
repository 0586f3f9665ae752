package certmanager_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/certmanager"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// world has an operator, and Listeners whose addresses the test writes.
type world struct {
	*apiserver.World
	class string
}

// newWorld starts an operator. Its class has an issuer.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: apiserver.NewWorld(t)}
	apis, err := platform.Watch(t.Context(), apiserver.Config(t))
	w.Expect(err).NotTo(HaveOccurred())
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return (&certmanager.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(names.EventReporter),
			Applier: apply.New(mgr.GetClient(), names.FieldManagerOperator), Platform: apis, Clock: clock.RealClock{},
		}).SetupWithManager(mgr)
	})
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "with-issuer-"},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType:  listenersv1alpha1.ServiceTypeNodePort,
			Certificates: &listenersv1alpha1.Certificates{IssuerRef: listenersv1alpha1.CertificateIssuer{Name: "company"}},
		},
	}
	w.Expect(w.Create(t.Context(), class)).To(Succeed())
	w.class = class.Name
	return w
}

// listener creates a Listener with a label and addresses.
func (w *world) listener(name, label string, addresses ...string) *listenersv1alpha1.Listener {
	w.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{names.LabelCertificate: label}},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(w.class)},
	}
	w.Expect(w.Create(w.Context(), l)).To(Succeed())
	w.publish(l, addresses...)
	return l
}

func (w *world) publish(l *listenersv1alpha1.Listener, addresses ...string) {
	w.Helper()
	before := l.DeepCopy()
	l.Status = &listenersv1alpha1.ListenerStatus{}
	for _, a := range addresses {
		l.Status.IngressAddresses = append(l.Status.IngressAddresses, listenersv1alpha1.IngressAddress{
			Address: a, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80},
		})
	}
	w.Expect(w.Status().Patch(w.Context(), l, client.MergeFrom(before))).To(Succeed())
}

// certificate returns the addresses in a Certificate, or nil if it does not exist.
func (w *world) certificate(name string) func() []string {
	return func() []string {
		c := &unstructured.Unstructured{}
		c.SetGroupVersionKind(names.KindCertificate)
		if w.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, c) != nil {
			return nil
		}
		ips, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "ipAddresses")
		return ips
	}
}

// warnings returns what events say of a Listener.
func (w *world) warnings(listener string) func() []string {
	return func() (notes []string) {
		var all eventsv1.EventList
		w.Expect(w.List(w.Context(), &all, client.InNamespace(w.Namespace))).To(Succeed())
		for _, e := range all.Items {
			if e.Regarding.Name == listener && e.Reason == listenersv1alpha1.ReasonNotInCertificate {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}
}

func TestCertificatesFollowTheAddressesOfListeners(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.Certificates)
	defer crds.Remove(t, apiserver.Client(t), crds.Certificates)
	w := newWorld(t)
	first := w.listener("web-0", "web", "192.0.2.1")
	w.Eventually(w.certificate("web-listener-tls")).Should(Equal([]string{"192.0.2.1"}))
	second := w.listener("web-1", "web", "192.0.2.2")
	w.Eventually(w.certificate("web-listener-tls")).Should(Equal([]string{"192.0.2.1", "192.0.2.2"}))

	c := &unstructured.Unstructured{}
	c.SetGroupVersionKind(names.KindCertificate)
	w.Expect(w.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "web-listener-tls"}, c)).To(Succeed())
	w.Expect(c.Object["spec"]).To(Equal(map[string]any{ //nolint:gosec // no credentials
		"secretName": "web-listener-tls", "ipAddresses": []any{"192.0.2.1", "192.0.2.2"}, "dnsNames": []any{}, "usages": []any{"digital signature", "server auth"},
		"issuerRef":               map[string]any{"group": "cert-manager.io", "kind": "Issuer", "name": "company"},
		"privateKey":              map[string]any{"algorithm": "ECDSA", "size": int64(256), "encoding": "PKCS8", "rotationPolicy": "Always"},
		"additionalOutputFormats": []any{map[string]any{"type": "CombinedPEM"}},
	}))

	// An address changes, a Listener moves to another certificate, and one is deleted.
	w.publish(first, "192.0.2.3")
	w.Eventually(w.certificate("web-listener-tls")).Should(Equal([]string{"192.0.2.2", "192.0.2.3"}))
	before := second.DeepCopy()
	second.Labels[names.LabelCertificate] = "other"
	w.Expect(w.Patch(t.Context(), second, client.MergeFrom(before))).To(Succeed())
	w.Eventually(w.certificate("web-listener-tls")).Should(Equal([]string{"192.0.2.3"}))
	w.Eventually(w.certificate("other-listener-tls")).Should(Equal([]string{"192.0.2.2"}))

	// A Listener without an address keeps nothing of the former one, which others may have now.
	w.publish(first)
	w.Eventually(w.certificate("web-listener-tls")).Should(BeNil())
	w.publish(first, "192.0.2.4")
	w.Eventually(w.certificate("web-listener-tls")).Should(Equal([]string{"192.0.2.4"}))
	w.Expect(w.Delete(t.Context(), first)).To(Succeed())
	w.Eventually(w.certificate("web-listener-tls")).Should(BeNil())

	// By hand, and by the class.
	w.Expect(w.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "other-listener-tls"}, c)).To(Succeed())
	w.Expect(w.Delete(t.Context(), c)).To(Succeed())
	w.Eventually(w.certificate("other-listener-tls")).Should(Equal([]string{"192.0.2.2"}))
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: w.class}}
	w.Expect(w.Patch(t.Context(), class, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"certificates":{"issuerRef":{"name":"new"}}}}`)))).To(Succeed())
	w.Eventually(func() string {
		_ = w.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "other-listener-tls"}, c)
		name, _, _ := unstructured.NestedString(c.Object, "spec", "issuerRef", "name")
		return name
	}).Should(Equal("new"))
}

func TestAListenerThatIsInNoCertificateSaysWhy(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.Certificates)
	defer crds.Remove(t, apiserver.Client(t), crds.Certificates)
	w := newWorld(t)
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": w.Namespace, "name": "foreign-listener-tls"},
		"spec":     map[string]any{"secretName": "x", "issuerRef": map[string]any{"name": "x"}},
	}}
	foreign.SetGroupVersionKind(names.KindCertificate)
	w.Expect(w.Create(t.Context(), foreign)).To(Succeed())
	blocked := w.listener("blocked", "foreign", "192.0.2.1")
	w.Eventually(w.warnings("blocked")).Should(ContainElement("Listener blocked is in no certificate: Certificate foreign-listener-tls was not created by the " +
		"listener operator: delete or rename it, or change the value of the label"))
	w.listener("invalid", "Not_A_Name", "192.0.2.1")
	w.Eventually(w.warnings("invalid")).Should(ContainElement(ContainSubstring("there can be no Certificate named Not_A_Name-listener-tls")))

	// What is in the way goes.
	w.Expect(w.certificate("foreign-listener-tls")()).To(BeEmpty())
	w.Expect(w.Delete(t.Context(), foreign)).To(Succeed())
	w.Eventually(w.certificate("foreign-listener-tls")).Should(Equal([]string{"192.0.2.1"}))
	w.Expect(w.Delete(t.Context(), blocked)).To(Succeed())
	w.Eventually(w.certificate("foreign-listener-tls")).Should(BeNil())
}

func TestCertManagerThatIsInstalledLater(t *testing.T) {
	w := newWorld(t)
	w.listener("early", "early", "192.0.2.1")
	w.Eventually(w.warnings("early")).Should(ContainElement(ContainSubstring("install cert-manager, or remove the label")))
	crds.Install(t, w.Client, crds.Certificates)
	defer crds.Remove(t, apiserver.Client(t), crds.Certificates)
	w.Eventually(w.certificate("early-listener-tls")).Should(Equal([]string{"192.0.2.1"}))
}
