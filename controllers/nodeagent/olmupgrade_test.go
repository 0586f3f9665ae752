package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

func TestUpgradeableIsReportedToOLM(t *testing.T) {
	h, w := onServer(t)
	crds.Install(t, h.admin, crds.OperatorConditions)
	scheme := apiserver.Scheme()
	h.must(operatorsv2.AddToScheme(scheme))
	olm, err := client.New(w.Config, client.Options{Scheme: scheme})
	h.must(err)
	condition := &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "listener-operator.v1.2.3"}}
	condition.Spec.Deployments = []string{names.Operator}
	h.createConfig()
	c := w.Operator()
	h.startWith(operator.Cached(c, h.admin), c, h.Namespace)
	h.OperatorCondition = condition.Name
	_, err = h.reconcileOnce()
	h.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "without the permission: %v", err)
	h.Expect(h.isAvailable()).To(BeTrue(), "everything else is done")
	// The Operator Lifecycle Manager gives permission.
	w.Grant(rbacv1.PolicyRule{
		APIGroups: []string{operatorsv2.GroupVersion.Group}, Resources: []string{"operatorconditions"}, ResourceNames: []string{condition.Name},
		Verbs: []string{"get", "update", "patch"},
	})
	h.Eventually(func() error { // until the authorizer has observed the Role
		_, err := h.reconcileOnce()
		return err
	}).Should(Succeed(), "without an OperatorCondition")
	h.must(olm.Create(t.Context(), condition))

	reconcileAndRead := func() string {
		h.mustReconcileTwice()
		h.must(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition))
		h.Expect(condition.Spec.Deployments).To(Equal([]string{names.Operator}), "fields of OLM")
		reported := ptr.Deref(meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable), metav1.Condition{})
		return string(reported.Status) + " " + reported.Reason
	}
	h.Expect(reconcileAndRead()).To(Equal("False AgentsRollingOut"))
	agents := h.agents()
	agents.Status.ObservedGeneration = agents.Generation
	h.updateStatus(agents)
	h.Expect(reconcileAndRead()).To(Equal("True AsExpected"))
	version := condition.ResourceVersion
	h.Expect(reconcileAndRead()).To(Equal("True AsExpected"))
	h.Expect(condition.ResourceVersion).To(Equal(version), "an unchanged condition is not written")

	// A new version of the operator has another OperatorCondition, and the old one may be deleted before the old
	// operator.
	h.must(olm.Delete(t.Context(), condition))
	agents.Status.ObservedGeneration = 0
	h.updateStatus(agents)
	h.mustReconcileTwice()
	h.Expect(apierrors.IsNotFound(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition))).To(BeTrue(), "none is created")
}

// TestOLMIsOptional sets the name of an OperatorCondition on a cluster that does not serve the kind.
func TestOLMIsOptional(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	h.OperatorCondition = "listener-operator.v1.2.3"
	h.mustReconcile()
	h.equal("Available", "True AsExpected", h.conditions()["Available"])
}
