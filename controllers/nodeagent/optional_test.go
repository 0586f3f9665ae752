package nodeagent

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// TestOptionalComponentsAreInstalledWhereServed uses the real CRDs, and the permissions that the operator is installed
// with.
func TestOptionalComponentsAreInstalledWhereServed(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	optional := []crds.CRD{
		crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints,
	}
	crds.Install(t, admin, optional...)
	defer crds.Remove(t, admin, optional...)
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

// Without the label of the namespace, its monitoring of users' workloads would reject the ServiceMonitor, and the
// alerts would report metrics that nobody collects.
func TestAlertsFollowTheMonitoringOfOpenShift(t *testing.T) {
	c, namespace := fresh(t)
	g := NewWithT(t)
	crds.Install(t, c, crds.ServiceMonitors, crds.PrometheusRules)
	defer crds.Remove(t, c, crds.ServiceMonitors, crds.PrometheusRules)
	label := func(value string) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, installation.LabelMonitored, value))
		g.Expect(c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch)).To(Succeed())
	}
	installed := func() (kinds []string, err error) {
		for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
			component := componentOf(t, kind)
			object, err := lookup.Get(t.Context(), c, component.Key(namespace), component.Empty())
			if err != nil {
				return nil, err
			}
			if object != nil {
				kinds = append(kinds, kind)
			}
		}
		return kinds, nil
	}
	label(`"true"`)
	g.Expect(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: installation.ServiceCA}})).To(Succeed())
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&Reconciler{Client: mgr.GetClient(), Namespace: namespace, Image: "listener-operator:test", APIs: optionalAPIs(t), Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	g.Eventually(installed, apiserver.Timeout, "50ms").Should(ConsistOf("ServiceMonitor", "PrometheusRule"))
	label("null")
	g.Eventually(installed, apiserver.Timeout, "50ms").Should(BeEmpty())
	label(`"true"`)
	g.Eventually(installed, apiserver.Timeout, "50ms").Should(ConsistOf("ServiceMonitor", "PrometheusRule"))
}
