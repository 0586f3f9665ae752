package walk

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// fromPod follows each listener volume of a Pod.
func (w *Walk) fromPod(ctx context.Context, pod *corev1.Pod) {
	w.pod(ctx, pod)
	if pod.Status.Phase == corev1.PodSucceeded {
		return // it needs no address any more
	}
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	mounts := false
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.CSI != nil && volume.CSI.Driver == names.Driver {
			mounts = true
			w.Add(f.Failed("", fmt.Sprintf("volume %q is an inline CSI volume, which this driver cannot mount", volume.Name),
				"Replace csi of the volume with ephemeral.volumeClaimTemplate, or by a claim."))
		}
		name := claim.NameOf(pod, volume)
		if name == "" {
			continue
		}
		pvc := &corev1.PersistentVolumeClaim{}
		switch found := w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pvc); {
		case found != check.Present:
			mounts = mounts || volume.Ephemeral == nil || IsEphemeral(volume)
			w.addAbsentClaim(ctx, pod, volume, name, found)
		case RequestsListener(pvc):
			mounts = true
			w.claim(ctx, pvc, pod)
		case awaitsOtherClaim(pod, pvc):
			w.Add(check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}.Failed("",
				"has no volume, and is no claim for a listener volume", "See why: "+Describe("pvc", pvc)))
		}
	}
	w.certificates(ctx, pod)
	if !mounts {
		w.Add(f.Failed("", "mounts no listener volume", fmt.Sprintf("Give it a volume of a claim with storageClassName %s, and with the annotation %s or %s.",
			names.Driver, names.AnnotationListenerClass, names.AnnotationListenerName)))
	}
}

// awaitsOtherClaim reports whether a Pod cannot be scheduled before a claim has a volume. Without the words of the
// scheduler, the claim may wait for the Pod instead.
func awaitsOtherClaim(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	scheduled := check.PodCondition(pod, corev1.PodScheduled)
	return scheduled != nil && pvc.Spec.VolumeName == "" && awaitsClaims(scheduled)
}

// pod follows a Pod and its node.
func (w *Walk) pod(ctx context.Context, pod *corev1.Pod) nodeState {
	w.Add(w.podWithEvents(ctx, pod))
	if duplicates := claim.DuplicatePorts(pod); duplicates != "" {
		w.Add(check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}.FailedBy(listenersv1alpha1.ReasonDuplicatePortName, duplicates).Because())
	}
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) && (pod.DeletionTimestamp == nil || len(pod.Finalizers) > 0) {
		return inOrder
	}
	return w.node(ctx, pod.Spec.NodeName)
}

// podWithEvents returns the state of a Pod, with what its events say about the cause.
func (w *Walk) podWithEvents(ctx context.Context, pod *corev1.Pod) check.Finding {
	f := podFinding(pod, w.Now())
	var said func(*corev1.Event) bool
	switch {
	case f.Reason == containersNotReady:
		said = func(e *corev1.Event) bool { return e.Reason == "Unhealthy" }
	case f.State == check.Failed && f.Reason == "" && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "":
		said = func(e *corev1.Event) bool { return e.Type == corev1.EventTypeWarning } // such as a ConfigMap that does not exist
	}
	if said != nil {
		if event := w.LastEvent(ctx, pod, said); event != nil {
			f.Message += ": " + event.Message
			if f.Reason == containersNotReady {
				f.Remedy = remedyProbe + Describe("pod", pod)
			}
		}
	}
	return w.killed(ctx, pod, f)
}

// killed adds to the finding about a Pod whose container was restarted which probe was the cause.
func (w *Walk) killed(ctx context.Context, pod *corev1.Pod, f check.Finding) check.Finding {
	if f.State == check.Warning && f.Reason != "" || f.Reason == "CrashLoopBackOff" {
		byProbe := func(e *corev1.Event) bool {
			return e.Reason == "Unhealthy" && !strings.HasPrefix(e.Message, "Readiness")
		}
		if event := w.LastEvent(ctx, pod, byProbe); event != nil && w.Now().Sub(check.EventTime(event)) < recently {
			return f.Failed(f.Reason, f.Message+": "+event.Message, remedyProbe+Describe("pod", pod))
		}
	}
	return f
}

// remedyProbe is what to do about a probe that fails, followed by the command that says more.
const remedyProbe = "Correct the probe, or find out why the program does not respond to it. With target: Same in the ListenerClass, it listens on the node port: " + targetSame +
	". More: "

// overdue is how long after its grace period a Pod may take to end.
const overdue = 30 * time.Second

// containersNotReady is the reason that Kubernetes gives for a Pod that runs, and whose containers are not all ready.
const containersNotReady = "ContainersNotReady"

// podFinding returns the state of a Pod. If it is not bound, or has no containers yet, the cause may be one of its
// volumes.
func podFinding(pod *corev1.Pod, now time.Time) check.Finding {
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	describe := Describe("pod", pod)
	switch {
	case pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 && claim.PodFinished(pod):
		return f.Failed("", "has ended, and is kept by its finalizers: "+strings.Join(pod.Finalizers, ", "), "See why their owners do not remove them: "+describe).Aside()
	case pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > overdue:
		since := duration.HumanDuration(now.Sub(pod.DeletionTimestamp.Time))
		return f.Failed("", fmt.Sprintf("should have ended %s ago, and its node has not confirmed that", since),
			"See which finalizers and events the Pod has: "+describe+". What the node may still do: docs/volumes.md#a-pod-that-stays-in-terminating. "+
				"If the machine is really gone: docs/lost-nodes.md").Because().Aside()
	case pod.DeletionTimestamp != nil:
		return f.Warning("", deletion(pod))
	case pod.Status.Phase == corev1.PodFailed:
		message := strings.TrimSuffix("has failed, and mounts nothing any more: "+pod.Status.Message, ": ")
		return f.Failed(pod.Status.Reason, message, "Kubernetes does not start it again; start another Pod. See why: "+describe).Aside()
	case claim.PodFinished(pod):
		return f.Warning("", "has succeeded, and mounts nothing any more")
	case pod.Spec.NodeName == "":
		return unboundFinding(f, pod, describe)
	default:
		return containersFinding(f, pod, describe, now).Aside()
	}
}

// unboundFinding returns why a Pod is not bound to a node.
func unboundFinding(f check.Finding, pod *corev1.Pod, describe string) check.Finding {
	scheduled := check.PodCondition(pod, corev1.PodScheduled)
	switch scheduler := pod.Spec.SchedulerName; {
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
	case scheduler != corev1.DefaultSchedulerName && scheduler != "":
		return f.Failed("", fmt.Sprintf("is not bound to a node yet by its own scheduler, %q", scheduler),
			"Wait for this scheduler. If it lasts, see whether it runs, or remove spec.schedulerName: "+describe).Because().Aside()
	default:
		return f.Failed("", "is not bound to a node yet", "Wait for the scheduler. If it lasts: "+describe).Because().Aside()
	}
	unscheduled := f.Failed(scheduled.Reason, scheduled.Message, "Do what the scheduler says; more: "+describe).Since(waitsSince(pod))
	if scheduled.Reason == corev1.PodReasonSchedulingGated {
		return unscheduled.Aside()
	}
	if noAgent := reasons.Of(reasons.NoNodeAgent); claim.AwaitsAgent(scheduled.Message) {
		unscheduled.Remedy = noAgent.Remedy
	}
	if concernsVolumes.MatchString(scheduled.Message) {
		return unscheduled.Because()
	}
	return unscheduled
}

// concernsVolumes matches what the scheduler says about a Pod if one of its volumes may be the cause: that its claim is
// not bound or does not exist, or that its volume is pinned to another node.
var concernsVolumes = regexp.MustCompile(`(?i)persistent ?volume|volume node affinity|pvc\(s\)`)

// waitsSince returns since when a Pod waits for the scheduler, or for its node.
func waitsSince(pod *corev1.Pod) metav1.Time {
	if scheduled := check.PodCondition(pod, corev1.PodScheduled); scheduled != nil && !scheduled.LastTransitionTime.IsZero() {
		return scheduled.LastTransitionTime
	}
	return pod.CreationTimestamp
}
