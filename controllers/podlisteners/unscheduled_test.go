package podlisteners_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// unschedulable makes the Pod one that the scheduler could not bind, because of this message.
func (w *world) unschedulable(message string) {
	w.Pod.Spec.NodeName = ""
	w.Pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
}

func TestSchedulerIsRemindedOfBoundClaims(t *testing.T) {
	const unbound = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: not eligible"
	for name, tc := range map[string]struct {
		change   func(*world)
		reminded string
		waits    bool
	}{
		"since longer":  {func(*world) {}, string(podUID), false},
		"after another": {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationReminded: "another"} }, "another", false},
		"just bound":    {func(w *world) { w.Volume.CreationTimestamp = metav1.Now() }, "", true},
		"bound in future, by another clock": {
			func(w *world) { w.Volume.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }, string(podUID), false,
		},
		"not bound":      {func(w *world) { w.Claim.Spec.VolumeName = "" }, "", false},
		"another reason": {func(w *world) { w.unschedulable("0/3 nodes are available: 3 Insufficient cpu.") }, "", false},
		"not tried yet":  {func(w *world) { w.Pod.Status.Conditions = nil }, "", false},
		"another driver": {func(w *world) { w.Volume.Spec.CSI.Driver = "another" }, "", false},
		"being deleted": {func(w *world) {
			now := metav1.Now()
			w.Pod.DeletionTimestamp, w.Pod.Finalizers = &now, []string{"test/keep"}
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.unschedulable(unbound)
			w.Volume.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
			tc.change(w)
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
			r := newReconciler(c, events.NewFakeRecorder(1))
			r.Receive(t.Context(), w.Pod)
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey})
			if err != nil {
				t.Fatal(err)
			}
			if waits := result.RequeueAfter > 0; waits != tc.waits || result.RequeueAfter > 10*time.Second {
				t.Errorf("reconciled again after %s, want a wait: %t", result.RequeueAfter, tc.waits)
			}
			var pv corev1.PersistentVolume
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Volume), &pv); err != nil {
				t.Fatal(err)
			}
			if got := pv.Annotations[names.AnnotationReminded]; got != tc.reminded {
				t.Errorf("reminded of %q, want %q", got, tc.reminded)
			}
		})
	}
}

func TestSchedulerIsRemindedOnce(t *testing.T) {
	w := newWorld()
	w.unschedulable("pod has unbound immediate PersistentVolumeClaims")
	w.Volume.Annotations = map[string]string{names.AnnotationReminded: string(podUID)}
	patched := false
	_, _, err := w.run(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			patched = true
			return c.Patch(ctx, o, patch, options...)
		},
	})
	if err != nil || patched {
		t.Errorf("the volume was changed again: %t (%v)", patched, err)
	}
}
