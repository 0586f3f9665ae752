package why

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

func TestStatesOfPods(t *testing.T) {
	deletedSince := func(d time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-d)} }
	}
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	for name, tc := range map[string]struct {
		change          func(*corev1.Pod)
		state           check.State
		reason, message string
	}{
		"it runs":                        {func(*corev1.Pod) {}, check.OK, "", "runs on node node-1"},
		"it is being deleted":            {deletedSince(overdue / 2), check.Warning, "", "is being deleted"},
		"it should have been deleted":    {deletedSince(2 * overdue), check.Failed, "", "should have ended 60s ago, and its node has not confirmed that"},
		"it has finished":                {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, check.Warning, "", "has finished (Failed), and mounts nothing any more"},
		"a container starts":             {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = waiting("ContainerCreating") }, check.OK, "", "runs on node node-1"},
		"a container waits for others":   {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = waiting("PodInitializing") }, check.OK, "", "runs on node node-1"},
		"an init container cannot start": {func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = waiting("ErrImagePull") }, check.Failed, "ErrImagePull", "container main does not run on node node-1: "},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			tc.change(pod)
			if f := podFinding(pod); f.State != tc.state || f.Reason != tc.reason || f.Message != tc.message {
				t.Errorf("%+v", f)
			}
		})
	}
}
