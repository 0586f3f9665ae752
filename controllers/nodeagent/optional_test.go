package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// TestOptionalComponentsAreInstalledWhereServed uses the real CRDs, and the permissions that the operator is installed
// with.
func TestOptionalComponentsAreInstalledWhereServed(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	names := []crds.CRD{
		crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints,
	}
	crds.Install(t, admin, names...)
	defer crds.Remove(t, admin, names...)
	installRBAC(t, admin, namespace)
	createConfig(t, admin)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, admin)
	r := reconcilerWithRBAC(operator, admin, namespace)
	r.serves = func(schema.GroupVersionKind) bool { return true }
	installed := mustReconcile(t, r)
	for _, component := range installation.Components() {
		g.Expect(admin.Get(t.Context(), component.Key(namespace), component.Empty())).To(Succeed(), "%s %s", component.Kind, component.Name)
	}
	g.Expect(admin.Patch(t.Context(), installed, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"managementState":"Removed"}}`)))).To(Succeed())
	g.Expect(client.IgnoreNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(installed), installed))).To(Succeed())
	for range 2 { // the extras are deleted together with the StorageClass
		_, err := r.Reconcile(t.Context(), installed)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for _, component := range installation.Components() {
		if component.Extra {
			g.Expect(admin.Get(t.Context(), component.Key(namespace), component.Empty())).NotTo(Succeed(), "%s %s", component.Kind, component.Name)
		}
	}
}
