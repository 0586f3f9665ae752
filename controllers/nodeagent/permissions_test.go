package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// TestOperatorPermissionsSuffice uses the permissions that the operator is installed with, the policies that confine
// it, and OwnerReferencesPermissionEnforcement, as on OpenShift.
func TestOperatorPermissionsSuffice(t *testing.T) {
	h, _ := confined(t)
	h.firstStart("")()
	h.mustReconcileTwice()
	h.deleteConfig()
	h.removeAll()
	h.Expect(h.hasConfig()).To(BeFalse())
}

// extras are the optional kinds of components.
var extras = []crds.CRD{crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints}

// TestOptionalComponentsAreInstalledWhereServed uses the real CRDs, and the permissions that the operator is installed
// with.
func TestOptionalComponentsAreInstalledWhereServed(t *testing.T) {
	h, _ := confined(t)
	crds.Install(t, h.admin, extras...)
	defer crds.Remove(t, h.admin, extras...)
	h.createConfig()
	h.serves = servesEverything
	h.mustReconcileTwice()
	for _, component := range installation.Components() {
		h.Expect(h.object(component)).NotTo(BeNil(), "%s %s", component.Kind, component.Name)
	}
	h.setState(operatorv1alpha1.Removed)
	h.mustReconcileTwice() // the extras are deleted together with the StorageClass
	for _, component := range installation.Components() {
		if component.Extra {
			h.Expect(h.object(component)).To(BeNil(), "%s %s", component.Kind, component.Name)
		}
	}
}

// TestTheOperatorMayAdmitAnotherUnavailableAgent: with the permissions and the policies that confine it, and without
// another template, which would replace all agents.
func TestTheOperatorMayAdmitAnotherUnavailableAgent(t *testing.T) {
	h, _ := confined(t)
	h.createConfig()
	h.mustReconcileTwice()
	template := func() string { return h.agents().Annotations[appsv1.DeprecatedTemplateGeneration] }
	maxUnavailable := func() intstr.IntOrString { return *h.agents().Spec.UpdateStrategy.RollingUpdate.MaxUnavailable }
	before := template()
	dead, agent := nodeThatIs("Unknown", "dead-of-"+h.Namespace), agentOn("dead-of-"+h.Namespace, before, "False")
	agent.Namespace, agent.OwnerReferences[0].UID = h.Namespace, h.agents().UID
	for _, o := range []client.Object{dead, agent} {
		status := o.DeepCopyObject().(client.Object)
		h.create(o)
		status.SetResourceVersion(o.GetResourceVersion())
		h.updateStatus(status)
		t.Cleanup(func() { _ = h.admin.Delete(t.Context(), o, client.GracePeriodSeconds(0)) })
	}
	h.rollOut(12, 3, 11)
	h.mustReconcileTwice()
	h.Expect(maxUnavailable()).To(Equal(intstr.FromInt32(3)), "two are a tenth of twelve nodes")
	generation := h.agents().Generation
	h.mustReconcileTwice()
	h.Expect(h.agents().Generation).To(Equal(generation), "the DaemonSet is written again")
	h.rollOut(12, 12, 11)
	h.mustReconcileTwice()
	h.Expect(maxUnavailable()).To(Equal(intstr.FromString("10%")))
	h.Expect(template()).To(Equal(before))
	h.configure(func(spec *operatorv1alpha1.ListenerOperatorSpec) { spec.NodeAgent.LogLevel = "debug" })
	h.mustReconcileTwice()
	h.Expect(template()).NotTo(Equal(before), "another template is not noticed")
}
