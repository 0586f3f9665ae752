package walk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// containersFinding returns the state of the containers of a Pod that is bound to a node.
func containersFinding(f check.Finding, pod *corev1.Pod, describe string, now time.Time) check.Finding {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		if broken := brokenFinding(f, pod, &statuses[i], describe); broken != nil {
			return *broken
		}
	}
	if unready := unreadyFinding(f, pod, describe); unready != nil {
		return *unready
	}
	for i := range statuses {
		status := &statuses[i]
		ended := status.LastTerminationState.Terminated
		if ended != nil && status.RestartCount > 0 && failed(pod, status.Name, ended) && now.Sub(ended.FinishedAt.Time) < recently {
			return f.Warning(ended.Reason, fmt.Sprintf("runs on node %s, but container %s ended with exit code %d at %s (restarts: %d); see why: %s --previous", pod.Spec.NodeName,
				status.Name, ended.ExitCode, ended.FinishedAt.UTC().Format(time.RFC3339), status.RestartCount, logs(pod, status.Name)))
		}
	}
	return f.OK("runs on node %s", pod.Spec.NodeName)
}

// unreadyFinding returns why a Pod none of whose containers is broken does not run, or is not ready, or nil.
func unreadyFinding(f check.Finding, pod *corev1.Pod, describe string) *check.Finding {
	ready := check.PodCondition(pod, corev1.PodReady)
	switch init := runningInit(pod); {
	case pod.Status.Phase != corev1.PodRunning && init != nil:
		f = f.Failed("", fmt.Sprintf("waits on node %s for its init container %s, which has run since %s", pod.Spec.NodeName, init.Name,
			init.State.Running.StartedAt.UTC().Format(time.RFC3339)), "See what it does: "+logs(pod, init.Name)).Because()
	case pod.Status.Phase != corev1.PodRunning:
		f = f.Failed("", fmt.Sprintf("is %s on node %s", pod.Status.Phase, pod.Spec.NodeName), "Look at its containers and events: "+describe).Because()
	case ready != nil && ready.Status != corev1.ConditionTrue:
		message := fmt.Sprintf("runs on node %s, and is not ready", pod.Spec.NodeName)
		if ready.Reason != containersNotReady && ready.Message != "" { // such as a readiness gate
			message += ": " + ready.Message
		}
		f = f.Failed(ready.Reason, message, "See why: "+describe).Because()
	default:
		return nil
	}
	return &f
}

// brokenFinding returns why a container that should run does not, or nil.
func brokenFinding(f check.Finding, pod *corev1.Pod, status *corev1.ContainerStatus, describe string) *check.Finding {
	switch waiting, ended := status.State.Waiting, status.State.Terminated; {
	case waiting != nil && waiting.Reason != "PodInitializing" && waiting.Reason != "ContainerCreating":
		f = f.Failed(waiting.Reason, fmt.Sprintf("container %s does not run on node %s: %s", status.Name, pod.Spec.NodeName, waiting.Message),
			remedyForWaiting(pod, status, describe))
	case ended != nil && failed(pod, status.Name, ended):
		f = f.Failed(ended.Reason, fmt.Sprintf("container %s on node %s ended with exit code %d (restarts: %d)%s", status.Name, pod.Spec.NodeName,
			ended.ExitCode, status.RestartCount, strings.TrimSuffix(": "+exposure.Quote("", ended.Message), ": ")), "See why: "+logs(pod, status.Name)+", and "+describe)
	default:
		return nil
	}
	return &f
}

// runningInit returns the init container that has to end before the next container of a Pod starts, or nil.
func runningInit(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.State.Running != nil && restartPolicy(pod, status.Name) != corev1.RestartPolicyAlways {
			return status
		}
	}
	return nil
}

// restartPolicy returns when the kubelet starts a container again: always for sidecars, and init containers that are
// none only if they fail.
func restartPolicy(pod *corev1.Pod, name string) corev1.RestartPolicy {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return corev1.RestartPolicy(ptr.Deref(c.RestartPolicy, corev1.ContainerRestartPolicyOnFailure))
		}
	}
	return pod.Spec.RestartPolicy
}

// recently is how long a container that has restarted may end again: the kubelet forgets its back-off after that time.
const recently = 10 * time.Minute

// failed reports whether the kubelet starts a container again that has ended like this, or the Pod cannot do without
// it.
func failed(pod *corev1.Pod, name string, ended *corev1.ContainerStateTerminated) bool {
	return ended.ExitCode != 0 || restartPolicy(pod, name) == corev1.RestartPolicyAlways
}

// remedyForWaiting returns what to do about a container that waits, and is not about to start. Only one that has run
// has a log.
func remedyForWaiting(pod *corev1.Pod, status *corev1.ContainerStatus, describe string) string {
	switch {
	case status.State.Waiting.Reason == "InvalidImageName":
		return fmt.Sprintf("Correct the name of image %q", status.Image)
	case status.State.Waiting.Reason == "ErrImageNeverPull":
		return fmt.Sprintf("Load image %s on the node, or change imagePullPolicy of the container", status.Image)
	case strings.Contains(status.State.Waiting.Reason, "Image"):
		return fmt.Sprintf("Check the name of image %s, and that the imagePullSecrets of the Pod permit to pull it; more: %s", status.Image, describe)
	case status.State.Waiting.Reason == "CrashLoopBackOff":
		return "See why: " + logs(pod, status.Name) + " --previous, and " + describe
	default:
		return "See why: " + describe
	}
}

// logs returns the command that shows the log of a container.
func logs(pod *corev1.Pod, container string) string {
	return fmt.Sprintf("kubectl logs %s --namespace %s --container %s", pod.Name, pod.Namespace, container)
}
