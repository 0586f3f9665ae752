package restart_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/restart"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
)

// The Pod of a StatefulSet is gone, and one without a controller stays.
func TestAPodIsEvictedWhateverHappensToAWrite(t *testing.T) {
	pods := func(ctx context.Context, c client.Client, namespace string) []corev1.Pod {
		var all corev1.PodList
		if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return nil
		}
		return all.Items
	}
	crash.Run(t, crash.Scenario{
		Setup: func(_ *testing.T, mgr ctrl.Manager, _ string) error {
			return (&restart.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(names.EventReporter), Clock: clock.RealClock{}}).SetupWithManager(mgr)
		},
		Begin: func(t *testing.T, c client.Client, namespace string) {
			s := &set{T: t, Client: c, namespace: namespace, gracePeriod: ptr.To[int64](0)}
			s.createAll(1)
			s.permit(1)
			s.set = nil
			s.createPod("lone", outdated)
		},
		Kinds: []client.ObjectList{&corev1.PodList{}},
		Done: func(ctx context.Context, c client.Client, namespace string) bool {
			left := pods(ctx, c, namespace)
			return len(left) == 1 && left[0].Name == "lone"
		},
	})
}
