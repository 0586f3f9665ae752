package why

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// volume follows the volume of a claim, and returns what it was provisioned for.
func (w *walk) volume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) claim.Selector {
	requested, problem := claim.ParseSelector(pvc.Annotations)
	pv := &corev1.PersistentVolume{}
	f := check.Finding{Kind: "PersistentVolume", Name: pvc.Spec.VolumeName}
	if !w.Require(ctx, pv, f.Failed(listenersv1alpha1.ReasonVolumeNotRestored, "does not exist", check.RemedyOperator)) {
		return requested
	}
	if !claim.IsBoundTo(pv, pvc) {
		w.Add(f.Failed("", "is not a listener volume of this claim", "Create the claim again without spec.volumeName."))
		return requested
	}
	if pv.DeletionTimestamp != nil {
		w.Add(f.Warning("", "is being deleted, which ends when its claim is deleted"))
	}
	provisioned, err := claim.VolumeSelector(pv)
	if err != nil {
		provisioned = requested
	}
	if problem == nil && requested != provisioned {
		w.Add(f.FailedBy(listenersv1alpha1.ReasonSelectorChanged, fmt.Sprintf(
			"was provisioned for %s, and the annotation of the claim now names %s, which has no effect", describe(provisioned), describe(requested))))
	}
	w.pin(ctx, pv)
	return provisioned
}

func describe(s claim.Selector) string {
	if s.Class != "" {
		return "class " + s.Class
	}
	return "Listener " + s.Listener
}

// pin follows the node affinity of the volume of a claim.
func (w *walk) pin(ctx context.Context, pv *corev1.PersistentVolume) {
	f := check.Finding{Kind: "PersistentVolume", Name: pv.Name}
	pinned := index.PinnedNodes(pv)
	if len(pinned) == 0 {
		w.Add(f.OK("is not pinned to a node"))
		return
	}
	node := &corev1.Node{}
	switch found := w.Get(ctx, types.NamespacedName{Name: pinned[0]}, node); {
	case found == check.Forbidden:
		w.Add(f.OK("is pinned to node %s", pinned[0]))
	case found == check.Missing:
		w.Add(w.announced(ctx, check.Pin(pv, pinned[0], nil), pv))
	case claim.NodeLost(node):
		w.Add(w.announced(ctx, check.Pin(pv, pinned[0], node), pv))
	default:
		w.Add(w.stuck(ctx, f.OK("is pinned to node %s", strings.Join(pinned, ", ")), pv.Spec.ClaimRef))
	}
}

// announced adds to the finding of a volume on a lost node what the operator says, such as when it is going to release
// the volume.
func (w *walk) announced(ctx context.Context, f check.Finding, pv *corev1.PersistentVolume) check.Finding {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pv.Spec.ClaimRef.Namespace, UID: pv.Spec.ClaimRef.UID}}
	event := w.LastEvent(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonNodeLost })
	if event != nil {
		f.Message += "; the operator says: " + event.Message
	}
	return f
}

// stuck follows the Pods that wait for the node of a pinned volume. f is the finding if none does.
func (w *walk) stuck(ctx context.Context, f check.Finding, owner *corev1.ObjectReference) check.Finding {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID}}
	for _, pod := range w.Pods(ctx, pvc) {
		scheduled := check.PodCondition(&pod, corev1.PodScheduled)
		if scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable || awaitsClaims(scheduled) {
			continue
		}
		message := fmt.Sprintf("%s, and Pod %s cannot be scheduled", f.Message, pod.Name)
		if event := w.LastEvent(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonPinnedToNode }); event != nil {
			message = event.Message
		}
		return f.FailedBy(listenersv1alpha1.ReasonPinnedToNode, message, check.OfClaim(owner)...)
	}
	return f
}

// awaitsClaims reports whether a Pod cannot be scheduled, whatever the nodes are, before its claims have volumes.
func awaitsClaims(scheduled *corev1.PodCondition) bool {
	return strings.Contains(scheduled.Message, "unbound immediate PersistentVolumeClaims")
}

// overdue is how long after its grace period a Pod may take to end.
const overdue = 30 * time.Second

// containersNotReady is the reason that Kubernetes gives for a Pod that runs, and whose containers are not all ready.
const containersNotReady = "ContainersNotReady"

// podFinding returns the state of a Pod. If it is not bound, or has no containers yet, the cause may be one of its
// volumes.
func podFinding(pod *corev1.Pod, now time.Time) check.Finding {
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	describe := check.Describe("pod", pod)
	switch {
	case pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 && claim.PodFinished(pod):
		return f.Failed("", "has ended, and is kept by its finalizers: "+strings.Join(pod.Finalizers, ", "), "See why their owners do not remove them: "+describe)
	case pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > overdue:
		since := duration.HumanDuration(now.Sub(pod.DeletionTimestamp.Time))
		return f.Failed("", fmt.Sprintf("should have ended %s ago, and its node has not confirmed that", since),
			"See whether the node responds, and which finalizers the Pod has: "+describe+". If the machine is really gone: docs/lost-nodes.md").Because()
	case pod.DeletionTimestamp != nil:
		return f.Warning("", "is being deleted")
	case pod.Status.Phase == corev1.PodFailed:
		message := "has failed, and mounts nothing any more"
		if pod.Status.Message != "" {
			message += ": " + pod.Status.Message
		}
		return f.Failed(pod.Status.Reason, message, "Kubernetes does not start it again; start another Pod. See why: "+describe)
	case claim.PodFinished(pod):
		return f.Warning("", "has succeeded, and mounts nothing any more")
	case pod.Spec.NodeName == "":
		return unboundFinding(f, pod, describe)
	default:
		return containersFinding(f, pod, describe, now)
	}
}

// unboundFinding returns why a Pod is not bound to a node.
func unboundFinding(f check.Finding, pod *corev1.Pod, describe string) check.Finding {
	scheduled := check.PodCondition(pod, corev1.PodScheduled)
	switch scheduler := pod.Spec.SchedulerName; {
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
	case scheduler != corev1.DefaultSchedulerName && scheduler != "":
		return f.Failed("", fmt.Sprintf("is not bound to a node yet, for which it has a scheduler of its own, %q", scheduler),
			"Wait for this scheduler. If it lasts, see whether it runs, or remove spec.schedulerName: "+describe).Because()
	default:
		return f.Failed("", "is not bound to a node yet", "Wait for the scheduler. If it lasts: "+describe).Because()
	}
	unscheduled := f.Failed(scheduled.Reason, scheduled.Message, "Do what the scheduler says; more: "+describe)
	if claim.AwaitsAgent(scheduled.Message) {
		unscheduled.Remedy = "Let another node take the Pod, as the scheduler says, or find out why no node agent runs there: kubectl listener doctor"
	}
	if concernsVolumes.MatchString(scheduled.Message) {
		return unscheduled.Because()
	}
	return unscheduled
}

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
		f = f.Failed(ended.Reason, fmt.Sprintf("container %s on node %s ended with exit code %d (restarts: %d)", status.Name, pod.Spec.NodeName,
			ended.ExitCode, status.RestartCount), "See why: "+logs(pod, status.Name)+", and "+describe)
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

// recently is how long a container that has restarted counts as one that may end again: the kubelet forgets its
// back-off after that time.
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

// concernsVolumes matches what the scheduler says about a Pod if one of its volumes may be the cause: that its claim is
// not bound or does not exist, or that its volume is pinned to another node.
var concernsVolumes = regexp.MustCompile(`(?i)persistent ?volume|volume node affinity|pvc\(s\)`)

// podAddresses follows the addresses of those volumes of a Pod whose claim or Listener matches: into its PodListeners,
// and into the files.
func (w *walk) podAddresses(ctx context.Context, pod *corev1.Pod, matches func(claim, listener string) bool) {
	node := w.pod(ctx, pod)
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) {
		return // it has no addresses of its own
	}
	addresses := &listenersv1alpha1.PodListeners{}
	f := check.Finding{Kind: "PodListeners", Namespace: pod.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
	missing := f.Failed("", fmt.Sprintf("does not exist, although Pod %s is bound to node %s", pod.Name, pod.Spec.NodeName), check.RemedyOperator)
	if !w.Require(ctx, addresses, w.Refused(ctx, pod, missing)) {
		return
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		entry, known := addresses.Spec.Listeners[volume.Name]
		switch {
		case !matches(index.ClaimName(pod, volume), entry.ListenerName):
		case !known:
			w.Add(f.Failed("", fmt.Sprintf("has no entry for volume %q", volume.Name), check.RemedyOperator))
		case len(entry.IngressAddresses) == 0:
			w.Add(f.FailedBy(listenersv1alpha1.ReasonWaitingForAddress, fmt.Sprintf("volume %q has no address yet", volume.Name)).Because())
		default:
			w.Add(w.notRestarted(ctx, pod, addressFinding(f, &addresses.Spec, volume.Name, pod)))
			w.policies(ctx, pod, entry.ListenerName)
			w.files(ctx, pod, volume.Name, node)
		}
	}
}

// policies follows the NetworkPolicies that select a Pod, each of which may deny the clients of a Listener.
func (w *walk) policies(ctx context.Context, pod *corev1.Pod, listener string) {
	policies := check.Selecting(w.Policies(ctx, pod.Namespace), pod)
	if len(policies) == 0 {
		return
	}
	admitted := check.AdmitAll(policies, pod, w.Service(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: listener}))
	for i := range policies {
		f := check.Finding{Kind: "NetworkPolicy", Namespace: pod.Namespace, Name: policies[i].Name}
		switch restricts := exposure.IsClientPolicy(&policies[i]); {
		case restricts && admitted:
			w.Add(f.Warning("", "restricts clients in vain, because other policies admit every client: docs/network-policies.md"))
		case restricts:
			w.Add(f.OK("selects Pod %s; of the clients outside, it admits only %s, by allowedClients", pod.Name, strings.Join(admittedRanges(&policies[i]), ", ")))
		case admitted:
			w.Add(f.OK("selects Pod %s; every client is admitted to the ports of Listener %s", pod.Name, listener))
		default:
			w.Add(f.Warning("", fmt.Sprintf("selects Pod %s; clients outside may be denied by it: docs/network-policies.md", pod.Name)))
		}
	}
}

// admittedRanges returns the ranges of addresses that a NetworkPolicy admits by its first rule.
func admittedRanges(policy *networkingv1.NetworkPolicy) (ranges []string) {
	for _, rule := range policy.Spec.Ingress[:min(len(policy.Spec.Ingress), 1)] {
		for _, from := range rule.From {
			if from.IPBlock != nil {
				ranges = append(ranges, from.IPBlock.CIDR)
			}
		}
	}
	return ranges
}

// addressFinding returns the address of a volume. If it has changed since the Pod started, the program may have another
// one than its files; if the class restarts the Pod, something keeps it from doing so.
func addressFinding(f check.Finding, spec *listenersv1alpha1.PodListenersSpec, volume string, pod *corev1.Pod) check.Finding {
	now, start := columns.Address(spec.Listeners[volume].IngressAddresses), columns.Address(spec.StartAddresses[volume])
	outdated := fmt.Sprintf("volume %q: %s, but the Pod started with %s", volume, now, start)
	switch {
	case slices.Contains(spec.NeedsRestart(), volume):
		return f.Failed(listenersv1alpha1.ReasonPodsOutdated, outdated, "Its class restarts the Pods of a controller one after the other. "+
			"See the events of all of them for what keeps it from doing so: kubectl events --namespace "+pod.Namespace+" --types Warning")
	case slices.Contains(spec.Outdated(), volume):
		return f.Failed(listenersv1alpha1.ReasonPodsOutdated, outdated, "Restart the Pod, unless its program follows the files of the volume: docs/address-changes.md")
	default:
		return f.OK("volume %q: %s", volume, now)
	}
}

// notRestarted adds to the finding of a Pod that its class restarts what the operator says about that.
func (w *walk) notRestarted(ctx context.Context, pod *corev1.Pod, f check.Finding) check.Finding {
	if f.State != check.Failed {
		return f
	}
	event := w.LastEvent(ctx, pod, func(e *corev1.Event) bool {
		return slices.Contains([]string{listenersv1alpha1.ReasonEvictionRefused, listenersv1alpha1.ReasonEvictionDelayed, listenersv1alpha1.ReasonNotEvicted}, e.Reason)
	})
	if event == nil {
		return f
	}
	return f.FailedBy(event.Reason, f.Message+"; the operator says: "+event.Message)
}

// files follows the addresses of a volume into the Pod. The kubelet starts no container before the volume has its
// files.
func (w *walk) files(ctx context.Context, pod *corev1.Pod, volume string, node nodeState) {
	f := check.Finding{Kind: "Volume", Name: volume}
	switch {
	case node == notResponding:
		return
	case pod.Status.Phase == corev1.PodRunning && node == withoutAgent:
		w.Add(f.Warning("", fmt.Sprintf("the files in Pod %s stay as they are until a node agent runs on its node", pod.Name)))
		return
	case pod.Status.Phase == corev1.PodRunning:
		w.Add(mountFinding(f, pod, volume))
		return
	}
	event := w.LastEvent(ctx, pod, func(e *corev1.Event) bool {
		return e.Reason == reasons.FailedMount && strings.Contains(e.Message, fmt.Sprintf("%q", volume))
	})
	if event == nil {
		w.Add(f.Warning("", fmt.Sprintf("Pod %s does not run yet, so the files may not be there", pod.Name)))
		return
	}
	w.Add(f.FailedBy(reasons.FailedMount, event.Message, "{node}", pod.Spec.NodeName))
}

// mountFinding returns whether the containers of a Pod that runs see the files of a volume. Kubernetes mounts it for
// the Pod in any case, and one of its files or directories for a container that names it only once.
func mountFinding(f check.Finding, pod *corev1.Pod, volume string) check.Finding {
	var containers, parts []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume {
				containers = append(containers, c.Name)
				if m.SubPath != "" || m.SubPathExpr != "" {
					parts = append(parts, c.Name)
				}
			}
		}
	}
	switch {
	case len(containers) == 0:
		return f.Warning("", fmt.Sprintf("no container of Pod %s mounts it, so no program sees its files: add it to volumeMounts", pod.Name))
	case len(parts) > 0:
		return f.Warning("", fmt.Sprintf("container %s of Pod %s mounts it with subPath, where files do not follow changes of the address: mount the whole volume", parts[0], pod.Name))
	default:
		return f.OK("has its files in Pod %s", pod.Name)
	}
}

// nodeState is what is known about the node of a Pod.
type nodeState int

const (
	inOrder nodeState = iota // as far as it was seen
	// notResponding means that nothing is known about what is on the node.
	notResponding
	// withoutAgent means that volumes are neither mounted nor unmounted, and files do not change.
	withoutAgent
)

// pod follows a Pod and its node.
func (w *walk) pod(ctx context.Context, pod *corev1.Pod) nodeState {
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
		}
	}
	w.Add(f)
	if duplicates := claim.DuplicatePorts(pod); duplicates != "" {
		w.Add(check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}.FailedBy(listenersv1alpha1.ReasonDuplicatePortName, duplicates).Because())
	}
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) {
		return inOrder
	}
	return w.node(ctx, pod.Spec.NodeName)
}

// node follows a node: Kubernetes keeps the Pods of one that does not respond, and the addresses stay published.
func (w *walk) node(ctx context.Context, name string) nodeState {
	node := &corev1.Node{}
	f := check.Finding{Kind: "Node", Name: name}
	switch found := w.Follow(ctx, f, node); {
	case found == check.Missing:
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNodesMissing, "does not exist").Because()) // a volume may be pinned to it
		return notResponding
	case found != check.Present:
		return w.agent(ctx, name)
	case !claim.NodeReady(node):
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNodesNotReady, "is not ready, so its addresses may not respond"))
		return notResponding
	default:
		w.Add(f.OK("is ready"))
		return w.agent(ctx, name)
	}
}

// agent follows the node agent of a node: a driver that is not registered with the kubelet cannot mount volumes.
func (w *walk) agent(ctx context.Context, node string) nodeState {
	var csiNode storagev1.CSINode
	f := check.Finding{Kind: "Node", Name: node}
	switch found := w.Follow(ctx, f, &csiNode); {
	case found == check.Forbidden:
	case !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == names.Driver }):
		w.Add(f.FailedBy(reasons.NoNodeAgent, "no node agent is registered with its kubelet"))
		return withoutAgent
	default:
		w.Add(f.OK("has a node agent"))
	}
	return inOrder
}
