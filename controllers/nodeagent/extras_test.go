package nodeagent

import (
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// TestOptionalManifestsAreInstalledWhereTheirKindsAre has them accepted by the real definitions, with the rights that
// the operator has.
func TestOptionalManifestsAreInstalledWhereTheirKindsAre(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	names := []crds.CRD{
		crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints,
	}
	crds.Install(t, admin, names...)
	defer crds.Remove(t, admin, names...)
	grant(t, admin, namespace)
	createConfig(t, admin)
	r := reconcilerOf(asOperator(t), admin, namespace)
	r.serves = func(schema.GroupVersionKind) bool { return true }
	installed := mustReconcile(t, r)
	for _, component := range components() {
		g.Expect(admin.Get(t.Context(), component.key(namespace), component.empty())).To(Succeed(), "%s %s", component.kind, component.name)
	}
	g.Expect(admin.Patch(t.Context(), installed, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"managementState":"Removed"}}`)))).To(Succeed())
	g.Expect(client.IgnoreNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(installed), installed))).To(Succeed())
	for range 2 { // the StorageClass goes with all that nothing waits for
		_, err := r.Reconcile(t.Context(), installed)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for _, component := range components() {
		if component.extra {
			g.Expect(admin.Get(t.Context(), component.key(namespace), component.empty())).NotTo(Succeed(), "%s %s", component.kind, component.name)
		}
	}
}

func TestEachAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, a := range alerts("somewhere") {
		known = append(known, a.name)
		if !strings.Contains(string(page), "\n## "+a.name+"\n") {
			t.Errorf("docs/alerts.md has no section %s", a.name)
		}
	}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## Listener"); ok && !slices.Contains(known, "Listener"+strings.TrimSpace(name)) {
			t.Errorf("docs/alerts.md explains %s, which there is not", strings.TrimSpace(line))
		}
	}
}

func TestThePageOnConstraintsGivesEachReason(t *testing.T) {
	page, err := os.ReadFile("../../docs/openshift-scc.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range privileges() {
		if !strings.Contains(string(page), p.what) || !strings.Contains(string(page), p.why) {
			t.Errorf("docs/openshift-scc.md lacks %q, or its reason: %s", p.what, p.why)
		}
	}
}
