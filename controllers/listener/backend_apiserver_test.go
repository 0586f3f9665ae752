package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// The list of backends is all that an additional backend changes: its kind is registered, discovered, watched and
// cleaned up as those of the operator's own backends are.
func TestAdditionalBackendIsDiscoveredWatchedAndCleanedUp(t *testing.T) {
	f := newFixtureWith(t, settings{backends: listener.BackendsWithTunnel()}, listenersv1alpha1.ListenerClassSpec{
		ServiceType: clusterIP, ServiceAnnotations: map[string]string{listener.TunnelAnnotation: "true"},
	})
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNotServed)

	scheme := runtime.NewScheme()
	f.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	f.Expect(listener.BackendsWithTunnel().AddToScheme(scheme)).To(Succeed())
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(c.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "tunnels.tunnels.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "tunnels.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "tunnels", Kind: "Tunnel"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
			}}},
		},
	})).To(Succeed())
	f.eventuallyAddresses("web.example.com")

	tunnel := &listener.Tunnel{}
	f.Expect(c.Get(t.Context(), f.key, tunnel)).To(Succeed())
	f.Expect(c.Delete(t.Context(), tunnel)).To(Succeed())
	f.Eventually(func() bool {
		again := &listener.Tunnel{}
		return c.Get(t.Context(), f.key, again) == nil && again.UID != tunnel.UID
	}).Should(BeTrue(), "a deleted Tunnel is created again")

	// The class changes to the plain Service.
	f.change(f.class, func() { f.class.Spec.ServiceAnnotations = map[string]string{} })
	f.eventuallyAddresses("web." + f.key.Namespace + ".svc.cluster.local")
	f.Eventually(func() error { return c.Get(t.Context(), f.key, tunnel) }).Should(MatchError(ContainSubstring("not found")))
}
