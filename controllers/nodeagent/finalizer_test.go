package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// TestFinalizersOfOthersArePreserved has a configuration of an earlier version, which had no finalizer. A backup tool
// may have applied the operator's finalizer as well.
func TestFinalizersOfOthersArePreserved(t *testing.T) {
	h, _ := onServer(t)
	stale := withFinalizers(&operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)}, "example.com/a")
	h.must(h.admin.Create(t.Context(), stale, client.FieldOwner(names.FieldManagerOperator)))
	expect := func(when string, want ...string) {
		t.Helper()
		h.equal("finalizers "+when, want, slices.Sorted(slices.Values(h.config().Finalizers)))
	}
	h.mustReconcileTwice()
	expect("of an installation", "example.com/a", operatorv1alpha1.FinalizerNodeAgent)
	config := h.config()

	// The cache may lag behind, and other writers may change finalizers meanwhile.
	config.Finalizers = append(config.Finalizers, "example.com/b")
	h.must(h.admin.Update(t.Context(), config, client.FieldOwner("backup")))
	_, err := h.Reconcile(t.Context(), stale)
	h.must(err)
	expect("after a reconciliation of a stale object", "example.com/a", "example.com/b", operatorv1alpha1.FinalizerNodeAgent)
	h.equal("generation", config.Generation, h.config().Generation)

	h.deleteConfig()
	h.removeAll()
	expect("after the removal", "example.com/a", "example.com/b")
	h.mustReconcile() // adds none, which the API server would not allow
}

func withFinalizers(config *operatorv1alpha1.ListenerOperator, finalizers ...string) *operatorv1alpha1.ListenerOperator {
	config.Finalizers = finalizers
	return config
}

// The configuration is replaced during a reconciliation.
func TestNamesakeOfTheConfigurationGetsNoFinalizer(t *testing.T) {
	h, _ := onServer(t)
	before := h.createConfig()
	h.deleteConfig()
	if err := h.addFinalizer(t.Context(), before.DeepCopy()); !apierrors.IsConflict(err) {
		t.Errorf("without a configuration, the error is %v, want a conflict", err)
	}
	h.createConfig()
	if err := h.addFinalizer(t.Context(), before.DeepCopy()); err == nil {
		t.Error("no error")
	}
	h.Expect(h.config().Finalizers).To(BeEmpty())
}

// The merge patch replaces all finalizers.
func TestFinalizerIsRemovedFromTheObservedVersionOnly(t *testing.T) {
	var got []string
	h := newHarness(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(o)
			var sent metav1.PartialObjectMetadata
			if err := errors.Join(err, json.Unmarshal(data, &sent)); err != nil {
				return err
			}
			got = append(got, sent.ResourceVersion)
			return c.Patch(ctx, o, patch, options...)
		},
	}, withFinalizers(newConfig(), operatorv1alpha1.FinalizerNodeAgent))
	h.setState(operatorv1alpha1.Removed)
	config := h.config()
	h.must(h.removeFinalizer(t.Context(), config.DeepCopy()))
	h.equal("resource versions of patches", []string{config.ResourceVersion}, got)
}

// The garbage collector would delete them in any order.
func TestFinalizerIsKeptUntilObjectsArePruned(t *testing.T) {
	config := withFinalizers(newConfig(), operatorv1alpha1.FinalizerNodeAgent)
	config.Spec.ManagementState = operatorv1alpha1.Removed
	stale, _ := leftovers()
	failing := true
	h := newHarness(t, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
		if verb == "delete" && failing {
			return errBoom
		}
		return send()
	}), append(stale, config)...)
	h.expectBoom()
	h.equal("finalizers", []string{operatorv1alpha1.FinalizerNodeAgent}, h.config().Finalizers)
	failing = false
	h.mustReconcile()
	h.expectExist(stale, false)
	h.Expect(h.config().Finalizers).To(BeEmpty())
}

// TestFinalizerIsRemovedAfterAllComponents has another finalizer, so that the configuration still exists afterwards.
func TestFinalizerIsRemovedAfterAllComponents(t *testing.T) {
	h := newHarness(t, noIntercept, withFinalizers(newConfig(), "example.com/wait"))
	h.mustReconcile()
	h.update(withFinalizers(h.config(), "example.com/wait", operatorv1alpha1.FinalizerNodeAgent)) // the fake client applies lists, not sets
	h.deleteConfig()
	h.reconcileUntilSettled()
	for range 2 { // also afterwards
		h.expect("False Removed", "False Removed", "False AsExpected", nil)
		h.equal("finalizers", []string{"example.com/wait"}, h.config().Finalizers)
		h.mustReconcile()
	}
}

// An administrator may have removed it.
func TestRemovalWithoutFinalizer(t *testing.T) {
	h := newInstalled(t)
	h.update(withFinalizers(h.config()))
	h.setState(operatorv1alpha1.Removed)
	h.reconcileUntilSettled()
	h.expectNothingInstalled()
}

// A conflict with another installation, whose volumes are in use, must not delay the deletion of the configuration.
func TestNoFinalizerWithoutInstallation(t *testing.T) {
	h := newInstalled(t, daemonSet(namespace), volume("v", "c", corev1.VolumeBound))
	h.Expect(h.config().Finalizers).To(BeEmpty())
}

// So uninstalling the operator, by deleting its Deployment or its ClusterServiceVersion, removes nothing from the
// nodes. The owner references block no deletion.
func TestComponentsAreOwnedByTheConfigurationAlone(t *testing.T) {
	h, _ := onServer(t)
	deployment := operatorDeployment(h.Namespace)
	h.create(deployment)
	h.firstStart("")()
	h.mustReconcileTwice()
	want := []metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.GroupVersion.String(), Kind: "ListenerOperator", Name: "cluster", UID: h.config().UID, Controller: ptr.To(true),
	}}
	for _, component := range alwaysInstalled() {
		h.equal("owners of "+component.Kind, want, h.object(component).GetOwnerReferences())
	}
	h.Expect(h.config().OwnerReferences).To(BeEmpty())

	// The ConfigMap is deleted with the Deployment, so that the next installation creates a configuration.
	marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: names.Operator}}
	h.read(marker)
	h.equal("owners of the ConfigMap", []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: names.Operator, UID: deployment.UID}}, marker.OwnerReferences)
}
