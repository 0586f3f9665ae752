package nodeagent

import (
	"testing"

	. "github.com/onsi/gomega"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// lifecycleManager installs the CRD of OperatorConditions, and returns a client with their type.
func lifecycleManager(t *testing.T) client.Client {
	t.Helper()
	crds.Install(t, apiserver.Client(t), crds.OperatorConditions)
	scheme := apiserver.Scheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// grantCondition permits the operator to write its OperatorCondition, as the Operator Lifecycle Manager does.
func grantCondition(t *testing.T, c client.Client, namespace, name string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{operatorsv2.GroupVersion.Group}, Resources: []string{"operatorconditions"}, ResourceNames: []string{name},
			Verbs: []string{"get", "update", "patch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: names.Operator}},
		},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUpgradeableIsReportedToOLM(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	olm := lifecycleManager(t)
	condition := &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "listener-operator.v1.2.3"}}
	condition.Spec.Deployments = []string{names.Operator}
	config := createConfig(t, admin)
	installRBAC(t, admin, namespace)
	r := reconcilerWithRBAC(asOperator(t, apiserver.Config(t), namespace), admin, namespace)
	r.OperatorCondition = condition.Name
	_, err := r.Reconcile(t.Context(), config)
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "without the permission: %v", err)
	g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(config), config)).To(Succeed())
	g.Expect(meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable)).To(BeTrue(), "everything else is done")
	grantCondition(t, admin, namespace, condition.Name)
	g.Eventually(func() error { // until the authorizer has observed the Role
		_, err := r.Reconcile(t.Context(), config)
		return err
	}, apiserver.Timeout, "50ms").Should(Succeed(), "without an OperatorCondition")
	g.Expect(olm.Create(t.Context(), condition)).To(Succeed())

	reported := func() string {
		g.Expect(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition)).To(Succeed())
		g.Expect(condition.Spec.Deployments).To(Equal([]string{names.Operator}), "fields of OLM")
		c := meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable)
		if c == nil {
			return "nothing"
		}
		return string(c.Status) + " " + c.Reason
	}
	reconcileAndRead := func() string {
		mustReconcileWith(t, admin, r)
		return reported()
	}
	g.Expect(reconcileAndRead()).To(Equal("False AgentsRollingOut"))

	agents := &appsv1.DaemonSet{}
	g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents)).To(Succeed())
	agents.Status.ObservedGeneration = agents.Generation
	g.Expect(admin.Status().Update(t.Context(), agents)).To(Succeed())
	g.Expect(reconcileAndRead()).To(Equal("True AsExpected"))
	version := condition.ResourceVersion
	g.Expect(reconcileAndRead()).To(Equal("True AsExpected"))
	g.Expect(condition.ResourceVersion).To(Equal(version), "an unchanged condition is not written")

	// A new version of the operator has another OperatorCondition, and the old one may be deleted before the old
	// operator.
	g.Expect(olm.Delete(t.Context(), condition)).To(Succeed())
	agents.Status.ObservedGeneration = 0
	g.Expect(admin.Status().Update(t.Context(), agents)).To(Succeed())
	mustReconcileWith(t, admin, r)
	g.Expect(apierrors.IsNotFound(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition))).To(BeTrue(), "none is created")
}

// TestOLMIsOptional sets the name of an OperatorCondition on a cluster that does not serve the kind.
func TestOLMIsOptional(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	h.OperatorCondition = "listener-operator.v1.2.3"
	h.mustReconcile()
	if diff := h.conditions()["Available"]; diff != "True AsExpected" {
		t.Errorf("Available is %s, want True AsExpected", diff)
	}
}

// mustReconcileWith reconciles with a Reconciler that may not read the configuration by itself.
func mustReconcileWith(t *testing.T, admin client.Client, r *Reconciler) {
	t.Helper()
	for range 2 {
		config := &operatorv1alpha1.ListenerOperator{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
}
