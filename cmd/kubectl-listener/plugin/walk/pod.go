package walk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func (w *Walk) pod(ctx context.Context, pod *corev1.Pod) nodeState {
	w.Add(w.podWithEvents(ctx, pod))
	if duplicates := claim.DuplicatePorts(pod); duplicates != "" {
		w.Add(w.About(pod).FailedBy(listenersv1alpha1.ReasonDuplicatePortName, duplicates).Symptom())
	}
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) && (pod.DeletionTimestamp == nil || len(pod.Finalizers) > 0) {
		return inOrder
	}
	return w.node(ctx, pod.Spec.NodeName)
}

func (w *Walk) podWithEvents(ctx context.Context, pod *corev1.Pod) check.Finding {
	f := podFinding(pod, w.Now())
	said := w.causes(f, pod)
	if said == nil {
		return f
	}
	if event := w.LastEvent(ctx, pod, said); event != nil {
		if f.Message += ": " + event.Message; unhealthy(event) {
			return f.Failed(f.Reason, f.Message,
				"Correct the probe, or find out why the program does not respond to it. With target: Same in the "+
					"ListenerClass, it listens on the node port: "+targetSame+". More: "+describe("pod", pod))
		}
	}
	return f
}

// targetSame is where the page about target: Same of a class says which port a program listens on.
const targetSame = "docs/choosing-a-class.md#node-ports-that-the-pods-listen-on"

// causes returns which events may say why a Pod is in its state, or nil if none does.
func (w *Walk) causes(f check.Finding, pod *corev1.Pod) func(*corev1.Event) bool {
	switch {
	case f.Reason == containersNotReady:
		return unhealthy
	case f.State == check.Warning && f.Reason != "" || f.Reason == "CrashLoopBackOff": // a container was restarted
		return func(e *corev1.Event) bool {
			return unhealthy(e) && !strings.HasPrefix(e.Message, "Readiness") &&
				w.Now().Sub(check.EventTime(e)) < recently
		}
	case f.State == check.Failed && f.Reason == "" && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "":
		// For example, a ConfigMap does not exist.
		return func(e *corev1.Event) bool { return e.Type == corev1.EventTypeWarning }
	}
	return nil
}

func unhealthy(e *corev1.Event) bool { return e.Reason == "Unhealthy" }

// overdue is how long after its grace period a Pod may take to end.
const overdue = 30 * time.Second

// containersNotReady is the reason that Kubernetes gives for a Pod that runs, and whose containers are not all ready.
const containersNotReady = "ContainersNotReady"

// podFinding returns the state of a Pod. If it does not run yet, the cause may be one of its volumes.
func podFinding(pod *corev1.Pod, now time.Time) check.Finding {
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 && claim.PodFinished(pod):
		return f.Failed("", "has ended, and is kept by its finalizers: "+strings.Join(pod.Finalizers, ", "),
			"See why their owners do not remove them: "+describe("pod", pod)).Aside()
	case pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > overdue:
		since := duration.HumanDuration(now.Sub(pod.DeletionTimestamp.Time))
		return f.Failed("", fmt.Sprintf("should have ended %s ago, and its node has not confirmed that", since),
			"See which finalizers and events the Pod has: "+describe("pod", pod)+
				". What the node may still do: docs/volumes.md#a-pod-that-stays-in-terminating. "+
				"If the machine is really gone: docs/lost-nodes.md").Symptom().Aside()
	case pod.DeletionTimestamp != nil:
		return f.Warning("", deletion(pod))
	case pod.Status.Phase == corev1.PodFailed:
		message := strings.TrimSuffix("has failed, and mounts nothing any more: "+pod.Status.Message, ": ")
		return f.Failed(pod.Status.Reason, message, "Kubernetes does not start it again; start another Pod. See why: "+
			describe("pod", pod)).Aside()
	case claim.PodFinished(pod):
		return f.Warning("", "has succeeded, and mounts nothing any more")
	case pod.Spec.NodeName == "":
		return unboundFinding(f, pod)
	}
	return containersFinding(f, pod, now).Aside()
}

func unboundFinding(f check.Finding, pod *corev1.Pod) check.Finding {
	scheduled := check.PodCondition(pod, corev1.PodScheduled)
	unscheduled := f.Failed(scheduled.Reason, scheduled.Message, "Do what the scheduler says; more: "+
		describe("pod", pod)).Since(waitsSince(pod))
	switch scheduler := pod.Spec.SchedulerName; {
	case scheduled.Status != corev1.ConditionFalse && scheduler != corev1.DefaultSchedulerName && scheduler != "":
		return f.Failed("", fmt.Sprintf("is not bound to a node yet by its own scheduler, %q", scheduler),
			"Wait for this scheduler. If it lasts, see whether it runs, or remove spec.schedulerName: "+
				describe("pod", pod)).Symptom().Aside()
	case scheduled.Status != corev1.ConditionFalse:
		return f.Failed("", "is not bound to a node yet", "Wait for the scheduler. If it lasts: "+
			describe("pod", pod)).Symptom().Aside()
	case scheduled.Reason == corev1.PodReasonSchedulingGated:
		return unscheduled.Aside()
	case claim.AwaitsAgent(scheduled.Message):
		unscheduled.Remedy = reasons.Of(reasons.NoNodeAgent).Remedy
	}
	if concernsVolumes.MatchString(scheduled.Message) {
		return unscheduled.Symptom()
	}
	return unscheduled
}

// concernsVolumes matches what the scheduler says if a claim is unbound or missing, or a volume pinned elsewhere.
var concernsVolumes = regexp.MustCompile(`(?i)persistent ?volume|volume node affinity|pvc\(s\)`)

// awaitsClaims reports whether the scheduler finds no node, whatever they are, before the claims of a Pod have volumes.
func awaitsClaims(verdict string) bool {
	return strings.Contains(verdict, "unbound immediate PersistentVolumeClaims")
}

// waitsSince returns since when a Pod waits for the scheduler, or for its node.
func waitsSince(pod *corev1.Pod) metav1.Time {
	return cmp.Or(check.PodCondition(pod, corev1.PodScheduled).LastTransitionTime, pod.CreationTimestamp)
}

func containersFinding(f check.Finding, pod *corev1.Pod, now time.Time) check.Finding {
	var broken, restarted check.Finding // the first of each
	for status := range check.Each(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)) {
		broken = cmp.Or(broken, brokenFinding(f, pod, status))
		ended := status.LastTerminationState.Terminated
		if ended != nil && status.RestartCount > 0 && failed(pod, status.Name, ended) &&
			now.Sub(ended.FinishedAt.Time) < recently {
			restarted = cmp.Or(restarted, f.Warning(ended.Reason, fmt.Sprintf("runs on node %s, but container %s "+
				"ended with exit code %d at %s (restarts: %d); see why: %s --previous",
				pod.Spec.NodeName, status.Name, ended.ExitCode, ended.FinishedAt.UTC().Format(time.RFC3339),
				status.RestartCount, logs(pod, status.Name))))
		}
	}
	return cmp.Or(broken, unreadyFinding(f, pod), restarted, f.OK("runs on node %s", pod.Spec.NodeName))
}

// unreadyFinding returns why a Pod without broken containers does not run, or is not ready, or an empty finding.
func unreadyFinding(f check.Finding, pod *corev1.Pod) check.Finding {
	ready := check.PodCondition(pod, corev1.PodReady)
	switch init := runningInit(pod); {
	case pod.Status.Phase != corev1.PodRunning && init != nil:
		return f.Failed("", fmt.Sprintf("waits on node %s for its init container %s, which has run since %s",
			pod.Spec.NodeName, init.Name,
			init.State.Running.StartedAt.UTC().Format(time.RFC3339)), "See what it does: "+
			logs(pod, init.Name)).Symptom()
	case pod.Status.Phase != corev1.PodRunning:
		return f.Failed("", fmt.Sprintf("is %s on node %s", pod.Status.Phase, pod.Spec.NodeName),
			"Look at its containers and events: "+describe("pod", pod)).Symptom()
	case ready.Type != "" && ready.Status != corev1.ConditionTrue:
		message := fmt.Sprintf("runs on node %s, and is not ready", pod.Spec.NodeName)
		if ready.Reason != containersNotReady && ready.Message != "" { // such as a readiness gate
			message += ": " + ready.Message
		}
		return f.Failed(ready.Reason, message, "See why: "+describe("pod", pod)).Symptom()
	}
	return check.Finding{}
}

// brokenFinding returns why a container that should run does not, or an empty finding.
func brokenFinding(f check.Finding, pod *corev1.Pod, status *corev1.ContainerStatus) check.Finding {
	switch waiting, ended := status.State.Waiting, status.State.Terminated; {
	case waiting != nil && waiting.Reason != "PodInitializing" && waiting.Reason != "ContainerCreating":
		return f.Failed(waiting.Reason, fmt.Sprintf("container %s does not run on node %s: %s", status.Name,
			pod.Spec.NodeName, waiting.Message), remedyForWaiting(pod, status))
	case ended != nil && failed(pod, status.Name, ended):
		return f.Failed(ended.Reason, fmt.Sprintf("container %s on node %s ended with exit code %d (restarts: %d)%s",
			status.Name, pod.Spec.NodeName, ended.ExitCode,
			status.RestartCount, strings.TrimSuffix(": "+exposure.Quote("", ended.Message), ": ")),
			"See why: "+logs(pod, status.Name)+", and "+describe("pod", pod))
	}
	return check.Finding{}
}

// runningInit returns the init container that has to end before the next container of a Pod starts, or nil.
func runningInit(pod *corev1.Pod) *corev1.ContainerStatus {
	for status := range check.Each(pod.Status.InitContainerStatuses) {
		if status.State.Running != nil && restartPolicy(pod, status.Name) != corev1.RestartPolicyAlways {
			return status
		}
	}
	return nil
}

// restartPolicy returns when the kubelet starts a container again. Init containers may be sidecars.
func restartPolicy(pod *corev1.Pod, name string) corev1.RestartPolicy {
	for c := range check.Each(pod.Spec.InitContainers) {
		if c.Name == name {
			return corev1.RestartPolicy(ptr.Deref(c.RestartPolicy, corev1.ContainerRestartPolicyOnFailure))
		}
	}
	return pod.Spec.RestartPolicy
}

// recently is how long a container that has restarted may end again: the kubelet forgets its back-off after that time.
const recently = 10 * time.Minute

// failed reports whether a container that has ended should run.
func failed(pod *corev1.Pod, name string, ended *corev1.ContainerStateTerminated) bool {
	return ended.ExitCode != 0 || restartPolicy(pod, name) == corev1.RestartPolicyAlways
}

// remedyForWaiting returns what to do about a container that waits. Only one that has run has a log.
func remedyForWaiting(pod *corev1.Pod, status *corev1.ContainerStatus) string {
	switch reason := status.State.Waiting.Reason; {
	case reason == "InvalidImageName":
		return fmt.Sprintf("Correct the name of image %q", status.Image)
	case reason == "ErrImageNeverPull":
		return fmt.Sprintf("Load image %s on the node, or change imagePullPolicy of the container", status.Image)
	case strings.Contains(reason, "Image"):
		return fmt.Sprintf("Check the name of image %s, and that the imagePullSecrets of the Pod permit to pull it; "+
			"more: %s", status.Image, describe("pod", pod))
	case reason == "CrashLoopBackOff":
		return "See why: " + logs(pod, status.Name) + " --previous, and " + describe("pod", pod)
	}
	return "See why: " + describe("pod", pod)
}

func logs(pod *corev1.Pod, container string) string {
	return fmt.Sprintf("kubectl logs %s --namespace %s --container %s", pod.Name, pod.Namespace, container)
}

// outdated reports that a Pod which has never run has another listener volume than the template of its StatefulSet has
// by now, and with which nothing is wrong: with OrderedReady, the StatefulSet replaces no such Pod.
func (w *Walk) outdated(ctx context.Context, f check.Finding, pod *corev1.Pod) {
	owner, set := metav1.GetControllerOf(pod), &appsv1.StatefulSet{}
	if pod.Status.Phase != corev1.PodPending || owner == nil || owner.Kind != "StatefulSet" ||
		w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, set) != check.Present {
		return
	}
	if isCorrected(pod, &set.Spec.Template.Spec) {
		w.Add(f.Failed("", "was created from another template than StatefulSet "+set.Name+" has now, and has never run",
			fmt.Sprintf(
				"The template is correct already, but the StatefulSet does not replace this Pod. Delete it: kubectl "+
					"delete pod %s --namespace %s", pod.Name, pod.Namespace)))
	}
}

// isCorrected reports whether a template has other listener volumes than a Pod, and nothing is wrong with them. What an
// annotation has added to the Pod is in no template.
func isCorrected(pod *corev1.Pod, template *corev1.PodSpec) (changed bool) {
	next := pod.DeepCopy()
	next.Spec = *template
	for v := range check.Each(next.Spec.Volumes) {
		if claim.IsInline(v) && inlineProblem(next, v) != "" {
			return false
		}
		i := slices.IndexFunc(pod.Spec.Volumes, func(before corev1.Volume) bool { return before.Name == v.Name })
		if i < 0 {
			continue
		}
		before := &pod.Spec.Volumes[i]
		changed = changed || !maps.Equal(attributesOf(v), attributesOf(before)) ||
			claim.IsInline(before) && inlineProblem(pod, before) != ""
	}
	return changed
}

// attributesOf returns what requests the Listener of an inline or ephemeral volume.
func attributesOf(v *corev1.Volume) map[string]string {
	switch {
	case claim.IsInline(v):
		return v.CSI.VolumeAttributes
	case isEphemeral(v):
		return v.Ephemeral.VolumeClaimTemplate.Annotations
	}
	return nil
}

// inlineProblem returns what is wrong with an inline volume of a Pod, whatever its class permits, or "".
func inlineProblem(pod *corev1.Pod, volume *corev1.Volume) string {
	request := claim.OfInline(pod, volume)
	problem := request.InlineProblem(pod, nil)
	if selector, _ := claim.ParseSelector(request.Annotations); problem == "" && selector.Class != "" {
		_, problem = request.Ports(pod)
	}
	return problem
}
