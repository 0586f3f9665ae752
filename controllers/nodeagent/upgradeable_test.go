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

// lifecycleManager installs the kind OperatorCondition, and returns a client that knows it.
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

// grantCondition gives the operator the right to its condition, and no other, as the Operator Lifecycle Manager does.
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
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: names.Operator, Name: names.Operator}},
		},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLifecycleManagerLearnsWhenAnUpgradeHadBetterWait(t *testing.T) {
	admin, namespace := fresh(t)
	g := NewWithT(t)
	olm := lifecycleManager(t)
	condition := &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "listener-operator.v1.2.3"}}
	condition.Spec.Deployments = []string{names.Operator}
	config := createConfig(t, admin)
	grant(t, admin, namespace)
	r := reconcilerOf(asOperator(t), admin, namespace)
	r.OperatorCondition = condition.Name
	_, err := r.Reconcile(t.Context(), config)
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "before OLM grants the right: %v", err)
	g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(config), config)).To(Succeed())
	g.Expect(meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable)).To(BeTrue(), "all else is done")
	grantCondition(t, admin, namespace, condition.Name)
	g.Eventually(func() error { // the right takes a moment
		_, err := r.Reconcile(t.Context(), config)
		return err
	}, apiserver.Timeout, "50ms").Should(Succeed(), "before there is a condition")
	g.Expect(olm.Create(t.Context(), condition)).To(Succeed())

	told := func() string {
		g.Expect(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition)).To(Succeed())
		g.Expect(condition.Spec.Deployments).To(Equal([]string{names.Operator}), "what is not ours")
		c := meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable)
		if c == nil {
			return "nothing"
		}
		return string(c.Status) + " " + c.Reason
	}
	pass := func() string {
		mustReconcileWith(t, admin, r)
		return told()
	}
	g.Expect(pass()).To(Equal("False AgentsRollingOut"))

	agents := &appsv1.DaemonSet{}
	g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents)).To(Succeed())
	agents.Status.ObservedGeneration = agents.Generation
	g.Expect(admin.Status().Update(t.Context(), agents)).To(Succeed())
	g.Expect(pass()).To(Equal("True AsExpected"))
	version := condition.ResourceVersion
	g.Expect(pass()).To(Equal("True AsExpected"))
	g.Expect(condition.ResourceVersion).To(Equal(version), "nothing new is not written")

	// A new version of the operator has a condition of its own, and the old one may be gone before it.
	g.Expect(olm.Delete(t.Context(), condition)).To(Succeed())
	agents.Status.ObservedGeneration = 0
	g.Expect(admin.Status().Update(t.Context(), agents)).To(Succeed())
	mustReconcileWith(t, admin, r)
	g.Expect(apierrors.IsNotFound(olm.Get(t.Context(), client.ObjectKeyFromObject(condition), condition))).To(BeTrue(), "none is made")
}

// TestWithoutTheLifecycleManagerNobodyIsTold is the name of a condition on a cluster that has no such kind.
func TestWithoutTheLifecycleManagerNobodyIsTold(t *testing.T) {
	h := newHarness(t, noIntercept, newConfig())
	h.OperatorCondition = "listener-operator.v1.2.3"
	h.mustPass()
	if diff := h.conditions()["Available"]; diff != "True AsExpected" {
		t.Errorf("Available is %s, want True AsExpected", diff)
	}
}

// mustReconcileWith makes passes of a reconciler without rights to prepare them.
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
