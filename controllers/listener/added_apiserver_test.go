package listener_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/backends/testdata/tunnel"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// tunnelClass returns a class whose hosts are by a template.
func tunnelClass(template string) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP, ServiceAnnotations: map[string]string{tunnel.Annotation: template},
	}}
}

// The operator exposes Listeners by a backend, follows its objects, and leaves those of others alone, without knowing
// the backend. controllers/confinement has what a stolen token may write by such a backend, and the plugin what its
// commands show.
func TestABackendThatIsAddedIsWhole(t *testing.T) {
	all := slices.Concat(backends.List{tunnel.Backend()}, backends.All())
	f := newFixtureWith(t, settings{backends: all}, tunnelClass("{listener}.http.{namespace}.example.com").Spec)
	f.Expect(all.AddToScheme(f.Scheme())).To(Succeed())
	existing := func(name string) *tunnel.Tunnel { return awaited(f, f, name, &tunnel.Tunnel{}) }
	serve := func(found *tunnel.Tunnel, status tunnel.Status) {
		found.Status = status
		f.Expect(f.Status().Update(t.Context(), found)).To(Succeed())
	}
	host := "web.http." + f.Namespace + ".example.com"

	// It exposes, as soon as the cluster serves the kind.
	l := f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNotServed)
	_, err := envtest.InstallCRDs(apiserver.Config(t), envtest.CRDInstallOptions{
		Paths: []string{"../../internal/exposure/backends/testdata/tunnel/crd.yaml"}, ErrorIfPathMissing: true,
	})
	f.Expect(err).NotTo(HaveOccurred())
	f.eventually(listenersv1alpha1.ListenerReady, reasons.WaitingFor("Tunnel"))
	own := existing("web-http")
	f.Expect(own.Spec).To(Equal(tunnel.Spec{Host: host, ServiceName: "web"}))
	f.Expect(metav1.IsControlledBy(own, l)).To(BeTrue())
	serve(own, tunnel.Status{Port: 8443})
	l = f.eventuallyAddresses(host)
	f.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": 8443}))

	// It follows what the controller reports, and puts back what others change or delete.
	serve(existing("web-http"), tunnel.Status{Host: "edge.example.com", Port: 8443})
	f.eventuallyAddresses("edge.example.com")
	serve(existing("web-http"), tunnel.Status{Port: 8443})
	f.eventuallyAddresses(host)
	own = existing("web-http")
	f.change(own, func() { own.Spec.Host = "other.example.com" })
	f.Eventually(func() string { return existing("web-http").Spec.Host }).Should(Equal(host))
	f.Expect(f.Delete(t.Context(), own)).To(Succeed())
	f.Eventually(func() bool { return existing("web-http").UID != own.UID }).Should(BeTrue())

	// A host belongs to the Listener that had it first.
	first := f.class
	f.class, f.key.Name = tunnelClass("{port}.{listener}.{namespace}.example.com"), "http"
	f.Expect(f.Create(t.Context(), f.class)).To(Succeed())
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Spec.Ports[0].Name = "web" })
	l = f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidHost)
	f.Expect(l.Status.WaitingFor.Value).To(Equal(host))

	// It leaves alone what belongs to others.
	f.key.Name = "foreign"
	theirs := &tunnel.Tunnel{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "foreign-http"}, Spec: tunnel.Spec{Host: "theirs.example.com"}}
	f.Expect(f.Create(t.Context(), theirs)).To(Succeed())
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, reasons.Foreign("Tunnel"))
	f.Expect(existing("foreign-http").ResourceVersion).To(Equal(theirs.ResourceVersion))
	f.Expect(f.Delete(t.Context(), theirs)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerReady, reasons.WaitingFor("Tunnel"))

	// It removes what the class no longer asks for.
	f.class, f.key.Name = first, "web"
	f.change(f.class, func() { f.class.Spec.ServiceAnnotations = nil })
	f.eventuallyAddresses("web." + f.Namespace + ".svc.cluster.local")
	f.eventuallyGone(f, own)
}
