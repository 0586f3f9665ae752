package nodeagent

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// TestFinalizersOfOthersArePreserved has a configuration of an earlier version, which had no finalizer. A backup tool
// may have applied the operator's finalizer as well.
func TestFinalizersOfOthersArePreserved(t *testing.T) {
	c, namespace := fresh(t)
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)}
	config.Finalizers = []string{"example.com/a"}
	if err := c.Create(t.Context(), config, client.FieldOwner(names.FieldManagerOperator)); err != nil {
		t.Fatal(err)
	}
	r := reconciler(c, namespace)
	finalizers := func() []string {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(slices.Values(config.Finalizers))
	}
	stale := config.DeepCopy()
	mustReconcile(t, r)
	if diff := cmp.Diff([]string{"example.com/a", operatorv1alpha1.FinalizerNodeAgent}, finalizers()); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	generation := config.Generation

	// The cache may lag behind, and other writers may change finalizers meanwhile.
	config.Finalizers = append(config.Finalizers, "example.com/b")
	if err := c.Update(t.Context(), config, client.FieldOwner("backup")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/a", "example.com/b", operatorv1alpha1.FinalizerNodeAgent}, finalizers()); diff != "" {
		t.Errorf("finalizers after a reconciliation of a stale object (-want +got):\n%s", diff)
	}
	if config.Generation != generation {
		t.Errorf("generation %d became %d", generation, config.Generation)
	}

	if err := c.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for range requiredCount() {
		mustReconcile(t, r)
		agents := &appsv1.DaemonSet{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents); err == nil && agents.DeletionTimestamp != nil {
			collectGarbage(t, c, agents)
		}
	}
	if diff := cmp.Diff([]string{"example.com/a", "example.com/b"}, finalizers()); diff != "" {
		t.Errorf("finalizers after the removal (-want +got):\n%s", diff)
	}
	mustReconcile(t, r) // adds none, which the API server would not allow
}

// The configuration is replaced during a reconciliation.
func TestNamesakeOfTheConfigurationGetsNoFinalizer(t *testing.T) {
	c, namespace := fresh(t)
	before := createConfig(t, c)
	r := reconciler(c, namespace)
	if err := c.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if err := r.addFinalizer(t.Context(), before.DeepCopy()); !apierrors.IsConflict(err) {
		t.Errorf("without a configuration, the error is %v, want a conflict", err)
	}
	after := createConfig(t, c)
	if err := r.addFinalizer(t.Context(), before.DeepCopy()); err == nil {
		t.Error("no error")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(after), after); err != nil {
		t.Fatal(err)
	}
	if len(after.Finalizers) > 0 {
		t.Errorf("finalizers are %v", after.Finalizers)
	}
}

// So uninstalling the operator, by deleting its Deployment or its ClusterServiceVersion, removes nothing from the
// nodes. The owner references block no deletion.
func TestComponentsAreOwnedByTheConfigurationAlone(t *testing.T) {
	c, namespace := fresh(t)
	deployment := operatorDeployment(namespace)
	if err := c.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	if err := (&Reconciler{Client: c, apiReader: c, Namespace: namespace}).createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := mustReconcile(t, reconciler(c, namespace))
	want := []metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.GroupVersion.String(), Kind: "ListenerOperator", Name: "cluster", UID: config.UID, Controller: ptr.To(true),
	}}
	for _, component := range alwaysInstalled() {
		object := component.Empty()
		if err := c.Get(t.Context(), component.Key(namespace), object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
			t.Errorf("owners of %s (-want +got):\n%s", component.Kind, diff)
		}
	}
	if owners := config.OwnerReferences; len(owners) > 0 {
		t.Errorf("the configuration has owners %v", owners)
	}

	// The ConfigMap is deleted with the Deployment, so that the next installation creates a configuration.
	marker := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.Operator}, marker); err != nil {
		t.Fatal(err)
	}
	want = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: names.Operator, UID: deployment.UID}}
	if diff := cmp.Diff(want, marker.OwnerReferences); diff != "" {
		t.Errorf("owners of the ConfigMap (-want +got):\n%s", diff)
	}
}
