package nodeagent

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestRemovalWaitsForVolumesInUse(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			other, stranger := volume("other", "of-another-driver", corev1.VolumeBound), podWithClaims("stranger", "c2")
			other.Spec.CSI.Driver, stranger.Namespace = "example.com", "elsewhere"
			unused := []client.Object{
				newConfig(), other, stranger, volume("released", "gone", corev1.VolumeReleased), volume("failed", "gone", corev1.VolumeFailed),
				podWithClaims("of-nothing", "c9"), podWithInlineVolume("finished", corev1.PodSucceeded),
			}
			used := []client.Object{
				volume("new", "c0", corev1.VolumePending), volume("v1", "c1", corev1.VolumeBound), volume("v2", "c2", corev1.VolumeBound),
				podWithClaims("web", "c0", "c1"), podWithClaims("db", "c1", "of-another-driver"), podWithInlineVolume("inline", corev1.PodRunning),
			}
			for i := range 10 {
				used = append(used, podWithClaims(fmt.Sprintf("z%d", i), "c1"))
			}
			h := newHarness(t, noIntercept, append(unused, used...)...)
			h.mustReconcile()
			begin(h)
			h.mustReconcile()
			h.expect("True Removed", "True VolumesInUse", "True VolumesInUse", allKinds())
			h.expectUpgradeable(metav1.ConditionFalse, operatorv1alpha1.ReasonVolumesInUse)
			h.Expect(h.message("Degraded")).To(HaveSuffix(": Pods ns/db, ns/inline, ns/web, ns/z0, ns/z1, ns/z2, ns/z3, ns/z4, ns/z5, ns/z6 and 3 more; claims without a Pod ns/c2"))

			// A component that volumes in use need is repaired meanwhile.
			h.deleteAll(h.agents())
			h.mustReconcile()
			h.expect("True Removed", "True VolumesInUse", "True VolumesInUse", allKinds())

			h.deleteAll(used...)
			h.mustReconcile()
			allButStorage := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CSIDriver", "DaemonSet"}
			h.expect("True Removed", "True Removed", "False AsExpected", allButStorage)

			// A volume that was being provisioned delays the removal, but does not recreate the StorageClass.
			late := volume("late", "late", corev1.VolumePending)
			h.create(late)
			h.mustReconcile()
			h.expect("False Removed", "True VolumesInUse", "True VolumesInUse", allButStorage)
			h.deleteAll(late)
			for left := 3; left >= 0; left-- {
				h.mustReconcile()
				h.expectInstalled(upTo(left))
			}
		})
	}
}

func TestReinstallationAfterRemoval(t *testing.T) {
	h := newInstalled(t)
	h.setState(operatorv1alpha1.Removed)
	h.reconcileUntilSettled()
	h.expect("False Removed", "False Removed", "False AsExpected", nil)
	h.expectUpgradeable(metav1.ConditionTrue, operatorv1alpha1.ReasonAsExpected)
	h.Expect(h.config().Finalizers).To(BeEmpty(), "so that it can be deleted after the operator is uninstalled")
	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.expectInstalled(allKinds())
	h.equal("finalizers", []string{operatorv1alpha1.FinalizerNodeAgent}, h.config().Finalizers)
}

func TestRemovalWithoutInstallationChangesNothing(t *testing.T) {
	foreign := class()
	foreign.Provisioner = names.Driver
	for name, tc := range map[string]struct {
		object client.Object
		left   []string
	}{
		"a foreign object": {foreign, []string{"StorageClass (foreign)"}},
		"a volume of another installation that is used": {volume("v", "c", corev1.VolumeBound), nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig()
			config.Spec.ManagementState = operatorv1alpha1.Removed
			h := newHarness(t, noIntercept, config, tc.object)
			h.mustReconcile()
			h.expect("False Removed", "False Removed", "False AsExpected", tc.left)
		})
	}
}

// Otherwise the garbage collector would, even while volumes are in use.
func TestDeletionRemovesUnmanagedComponents(t *testing.T) {
	used := volume("v", "c", corev1.VolumeBound)
	h := newInstalled(t, used)
	h.changeImage()
	h.deleteConfig()
	h.mustReconcile()
	h.expect("True Removed", "True VolumesInUse", "True VolumesInUse", allKinds())
	h.expectChangedImage()
	h.deleteAll(used)
	h.removeAll()
	h.expectNothingInstalled()
}

// No volume is in use.
func TestOrphaningDeletionRemovesNothingBeforeGarbageCollection(t *testing.T) {
	h := newInstalled(t)
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustReconcile()
	h.expectInstalled(allKinds())
}

// TestOrphaningDeletionRemovesNothing checks kubectl delete --cascade=orphan while the garbage collector removes the
// owner references of the components. Volumes in use must not restore any of them.
func TestOrphaningDeletionRemovesNothing(t *testing.T) {
	h := newInstalled(t, volume("v", "c", corev1.VolumeBound))
	h.update(withFinalizers(h.config(), metav1.FinalizerOrphanDependents, operatorv1alpha1.FinalizerNodeAgent))
	h.deleteConfig()
	h.mustReconcile()
	h.expectInstalled(allKinds())
	for i, c := range alwaysInstalled() {
		object := h.object(c)
		object.SetOwnerReferences(nil)
		h.update(object)
		if i == len(alwaysInstalled())-1 {
			break
		}
		_, err := h.Reconcile(t.Context(), withFinalizers(h.config(), operatorv1alpha1.FinalizerNodeAgent)) // as the cache may have it
		h.must(err)
		h.Expect(h.object(c).GetOwnerReferences()).To(BeEmpty(), c.Kind)
	}
	h.update(withFinalizers(h.config(), operatorv1alpha1.FinalizerNodeAgent))
	h.mustReconcile()
	h.Expect(h.hasConfig()).To(BeFalse())
	h.agents()

	again := newConfig()
	again.UID = "c0f1c0f1-0000-4000-8000-000000000002"
	h.create(again)
	h.mustReconcile()
	h.expectInstalled(allKinds())
}
