package walk

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestStatesOfPods(t *testing.T) {
	deletedSince := func(d time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-d)} }
	}
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	ended := func(code int32, since time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.NewTime(time.Now().Add(-since))}}
	}
	terminated := func(code int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", State: ended(code, time.Second), RestartCount: 4}}
	}
	restarted := func(since time.Duration, restarts int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", LastTerminationState: ended(3, since), RestartCount: restarts}}
	}
	for name, tc := range map[string]struct {
		change          func(*corev1.Pod)
		state           check.State
		reason, message string
	}{
		"it runs":             {func(*corev1.Pod) {}, check.OK, "", "runs on node node-1"},
		"it is being deleted": {deletedSince(overdue / 2), check.Warning, "", "is being deleted"},
		"finalizers keep it": {func(pod *corev1.Pod) {
			deletedSince(2 * overdue)(pod)
			pod.Finalizers, pod.Status.Phase = []string{"example.com/queue"}, corev1.PodSucceeded
		}, check.Failed, "", "has ended, and is kept by its finalizers: example.com/queue"},
		"it should have been deleted": {deletedSince(2 * overdue), check.Failed, "", "should have ended 60s ago, and its node has not confirmed that"},
		"it has succeeded":            {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, check.Warning, "", "has succeeded, and mounts nothing any more"},
		"it has failed":               {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, check.Failed, "", "has failed, and mounts nothing any more"},
		"it was evicted": {func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}, check.Failed, "Evicted", "has failed, and mounts nothing any more: The node was low on resource: memory."},
		"a readiness gate": {func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: `corresponding condition of pod readiness gate "a/b" does not exist.`,
			}}
		}, check.Failed, "ReadinessGatesNotReady", `runs on node node-1, and is not ready: corresponding condition of pod readiness gate "a/b" does not exist.`},
		"a scheduler that does not exist": {func(pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Spec.SchedulerName = "", "none"
		}, check.Failed, "", `is not bound to a node yet by its own scheduler, "none"`},
		"a container starts":             {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = waiting("ContainerCreating") }, check.OK, "", "runs on node node-1"},
		"a container waits for others":   {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = waiting("PodInitializing") }, check.OK, "", "runs on node node-1"},
		"an init container cannot start": {func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = waiting("ErrImagePull") }, check.Failed, "ErrImagePull", "container main does not run on node node-1: "},
		"a container has ended, and says why": {
			func(pod *corev1.Pod) {
				pod.Status.ContainerStatuses = terminated(3)
				pod.Status.ContainerStatuses[0].State.Terminated.Message = "no such listener\n"
			}, check.Failed, "Error", `container main on node node-1 ended with exit code 3 (restarts: 4): no such listener\n`,
		},
		"a container has ended": {
			func(pod *corev1.Pod) { pod.Status.ContainerStatuses = terminated(3) }, check.Failed, "Error", "container main on node node-1 ended with exit code 3 (restarts: 4)",
		},
		"a container that should run has ended without an error": {
			func(pod *corev1.Pod) { pod.Status.ContainerStatuses = terminated(0) }, check.Failed, "Error", "container main on node node-1 ended with exit code 0 (restarts: 4)",
		},
		"a container of a task has ended": {func(pod *corev1.Pod) {
			pod.Spec.RestartPolicy, pod.Status.ContainerStatuses = corev1.RestartPolicyNever, terminated(0)
		}, check.OK, "", "runs on node node-1"},
		"an init container has ended": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers, pod.Status.InitContainerStatuses = []corev1.Container{{Name: "main"}}, terminated(0)
		}, check.OK, "", "runs on node node-1"},
		"a sidecar has ended": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "main", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			pod.Status.InitContainerStatuses = terminated(0)
		}, check.Failed, "Error", "container main on node node-1 ended with exit code 0 (restarts: 4)"},
		"a container was restarted a moment ago": {
			func(pod *corev1.Pod) { pod.Status.ContainerStatuses = restarted(recently/2, 4) }, check.Warning, "Error", "runs on node node-1, but container main ended with exit code 3 at ",
		},
		"a container was restarted long ago": {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = restarted(2*recently, 4) }, check.OK, "", "runs on node node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			tc.change(pod)
			f := podFinding(pod, time.Now())
			if before, since := strings.CutSuffix(tc.message, " at "); since { // which depends on the clock
				f.Message, tc.message = f.Message[:min(len(f.Message), len(before))], before
			}
			if f.State != tc.state || f.Reason != tc.reason || f.Message != tc.message {
				t.Errorf("%+v", f)
			}
		})
	}
}

// probing returns a container that mounts a volume, with a probe.
func probing(command string) corev1.Container {
	return corev1.Container{
		Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "listener", MountPath: "/listener/"}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", command}}}},
	}
}

// The kubelet mounts it for the Pod, whatever the containers do.
func TestAVolumeThatNoProgramSees(t *testing.T) {
	for name, tc := range map[string]struct {
		containers []corev1.Container
		state      check.State
		message    string
	}{
		"a container mounts it": {
			[]corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "listener"}}}}, check.OK, "has its files in Pod web-0",
		},
		"none mounts it": {
			[]corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}}, check.Warning, "no container of Pod web-0 mounts it",
		},
		"one mounts a file of it": {[]corev1.Container{
			{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "listener", SubPath: "default-address/address"}}},
			{Name: "other", VolumeMounts: []corev1.VolumeMount{{Name: "listener"}}},
		}, check.Warning, "container main of Pod web-0 mounts it with subPath"},
		"a probe reads it": {
			[]corev1.Container{probing(`nc -z 127.0.0.1 "$(cat /listener/default-address/ports/data)"`)}, check.Warning, "a probe of container main of Pod web-0 reads it, and fails in all Pods",
		},
		"a probe reads its environment":       {[]corev1.Container{probing(". /listener/default-address.env; nc -z 127.0.0.1 $DATA_PORT")}, check.Warning, "a probe of container main"},
		"a probe reads what the program read": {[]corev1.Container{probing(`nc -z 127.0.0.1 "$(cat /tmp/listener/port /listener-port)"`)}, check.OK, "has its files"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Containers: tc.containers}}
			if f := mountFinding(check.Finding{}, pod, "listener"); f.State != tc.state || !strings.HasPrefix(f.Message, tc.message) {
				t.Errorf("%+v, want %s", f, tc.message)
			}
		})
	}
}

func TestAPodOfATemplateThatIsCorrectedByNow(t *testing.T) {
	class := func(name string) map[string]string {
		return map[string]string{"listeners.stackable.tech/listener-class": name}
	}
	inline := func(attributes map[string]string) corev1.Volume { return objects.InlineVolume("listener", attributes) }
	ephemeral := func(attributes map[string]string) corev1.Volume {
		return objects.EphemeralVolume("listener", attributes)
	}
	misspelt, data := map[string]string{"listener-clas": "public"}, corev1.Volume{Name: "data"}
	for name, tc := range map[string]struct {
		pod, template []corev1.Volume
		want          bool
	}{
		"the same":                         {[]corev1.Volume{inline(class("public"))}, []corev1.Volume{inline(class("public"))}, false},
		"a mistake in both":                {[]corev1.Volume{inline(misspelt)}, []corev1.Volume{inline(misspelt)}, false},
		"a mistake is corrected":           {[]corev1.Volume{inline(misspelt)}, []corev1.Volume{inline(class("public"))}, true},
		"another mistake":                  {[]corev1.Volume{inline(class("public"))}, []corev1.Volume{inline(misspelt)}, false},
		"another class":                    {[]corev1.Volume{inline(class("public"))}, []corev1.Volume{inline(class("internal"))}, true},
		"another class of ephemeral claim": {[]corev1.Volume{ephemeral(class("public"))}, []corev1.Volume{ephemeral(class("internal"))}, true},
		"an injected volume":               {[]corev1.Volume{data, inline(class("public"))}, []corev1.Volume{data}, false},
		"a mistake in an injected volume":  {[]corev1.Volume{data, inline(misspelt)}, []corev1.Volume{data}, false},
	} {
		t.Run(name, func(t *testing.T) {
			of := metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}
			pod := &corev1.Pod{ObjectMeta: of, Spec: corev1.PodSpec{Volumes: tc.pod}}
			container := corev1.Container{Name: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}
			pod.Spec.Containers = []corev1.Container{container}
			if got := isCorrected(pod, &corev1.PodSpec{Volumes: tc.template, Containers: pod.Spec.Containers}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// The operator deletes the Listener of an ephemeral claim when its Pod has finished, so it is no error that it is gone.
func TestAFinishedPodNeedsNoListener(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{corev1.PodPending: true, corev1.PodRunning: true, corev1.PodSucceeded: false, corev1.PodFailed: false} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: phase}}
		if got := (&Walk{}).bound(t.Context(), nil, pod); got != want {
			t.Errorf("%s: %t", phase, got)
		}
	}
}
