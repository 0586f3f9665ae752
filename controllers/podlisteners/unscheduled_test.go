package podlisteners_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
		"since longer":                      {func(*world) {}, string(podUID), false},
		"after another":                     {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationReminded: "another"} }, "another", false},
		"reminded":                          {func(w *world) { w.Volume.Annotations = map[string]string{names.AnnotationReminded: string(podUID)} }, string(podUID), false},
		"just bound":                        {func(w *world) { w.Volume.CreationTimestamp = metav1.Now() }, "", true},
		"bound in future, by another clock": {func(w *world) { w.Volume.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }, string(podUID), false},
		"not bound":                         {func(w *world) { w.Claim.Spec.VolumeName = "" }, "", false},
		"another reason":                    {func(w *world) { w.unschedulable("0/3 nodes are available: 3 Insufficient cpu.") }, "", false},
		"not tried yet":                     {func(w *world) { w.Pod.Status.Conditions = nil }, "", false},
		"another driver":                    {func(w *world) { w.Volume.Spec.CSI.Driver = "another" }, "", false},
		"being deleted":                     {func(w *world) { deleted(w.Pod) }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.unschedulable(unbound)
			w.Volume.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
			tc.change(w)
			var writes []string
			c := w.start(t, before(func(verb string, o any) error {
				writes = append(writes, fmt.Sprintf("%s %T", verb, o))
				return nil
			}))
			after := c.reconcile().RequeueAfter
			if waits := after > 0; waits != tc.waits || after > 10*time.Second {
				t.Errorf("reconciled again after %s, want a wait: %t", after, tc.waits)
			}
			if want := map[bool][]string{true: {"patch *v1.PersistentVolume"}}[tc.reminded != w.Volume.Annotations[names.AnnotationReminded]]; !slices.Equal(writes, want) {
				t.Errorf("writes %q, want %q", writes, want)
			}
			check.Equal(t, "reminded of", tc.reminded, stored(t, c.client, w.Volume).Annotations[names.AnnotationReminded])
		})
	}
}
