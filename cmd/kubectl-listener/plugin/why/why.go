// Package why has the command `kubectl listener why`, which follows the path of an address.
package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	kinds := append([]command.Kind{command.KindPod, command.KindClaim, command.KindListener}, command.Workloads()...)
	cmd := &cobra.Command{
		Use:   "why (POD | [KIND/]NAME)",
		Short: "Say why a Pod, a claim or a Listener has no address",
		Long: `Say why a Pod, a claim or a Listener has no address.

The command follows the path of an address: Pod, claim, volume, Listener, class, Service, Routes, Ingresses or Gateways,
endpoints, PodListeners, NetworkPolicies, the files in the Pod and its certificates. It prints what it finds at each step, and
then the first thing that is wrong, with what to do about it. A later step may be wrong because of an earlier one.

KIND is pod, claim, listener, or a kind of workload such as statefulset or deployment, or any other name that kubectl
has for these kinds. Without a kind, NAME is the first of these that exists, in this order. Of a workload, each Pod is
followed; if it has none, what Kubernetes says about that is printed.

The marks are: ✓ as it should be, ! a warning, ✗ wrong, ? you may not read it, or it was not gathered.`,
		Example: `  # Why does this Pod not start, or why has it no address?
  kubectl listener why kafka-0

  # The same for a claim, and for a Listener of another namespace
  kubectl listener why claim/listener-kafka-0
  kubectl listener why listener/kafka-bootstrap --namespace shop

  # All Pods of a workload
  kubectl listener why sts/kafka

  # For programs
  kubectl listener why kafka-0 --output json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: e.Examine(command.WriteSteps, func(ctx context.Context, x *check.Examination, args []string) error {
			o, err := e.Find(ctx, x.Client, args, kinds...)
			if err == nil {
				Examine(ctx, x, o)
			}
			return err
		}),
	}
	e.AddOutputFlag(cmd)
	e.AddFromFlag(cmd)
	return cmd
}

// Examine follows the path of an address from a Pod, a claim, a Listener or a workload, and reports what it finds.
func Examine(ctx context.Context, x *check.Examination, o client.Object) {
	w := &walk{x}
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		w.fromClaim(ctx, o)
	case *listenersv1alpha1.Listener:
		w.fromListener(ctx, o)
	default:
		w.fromWorkload(ctx, o)
	}
	w.operator(ctx)
	x.Unseen = "Whether a program responds, this does not show; try it from where the clients are: " + w.connectCommand(o)
}

// connectCommand returns the command that tries the addresses of an object. Those of a claim are those of its Pods.
func (w *walk) connectCommand(o client.Object) string {
	kind, _ := w.Client.GroupVersionKindFor(o) // which was read as one of the scheme
	target := strings.ToLower(kind.Kind) + "/" + o.GetName()
	if _, isClaim := o.(*corev1.PersistentVolumeClaim); isClaim {
		target = "POD"
	}
	return fmt.Sprintf("kubectl listener connect %s --namespace %s", target, o.GetNamespace())
}

// operator reports that the operator does not run, as far as the user may know that, and replaces the advice to wait
// for it.
func (w *walk) operator(ctx context.Context) {
	waits := func(f check.Finding) bool { return f.Remedy == check.RemedyOperator }
	var deployments appsv1.DeploymentList
	w.List(ctx, &deployments, client.MatchingFields{"metadata.name": names.Operator})
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		if deployment.Status.AvailableReplicas > 0 {
			return
		}
		w.Add(check.Finding{Kind: "Deployment", Namespace: deployment.Namespace, Name: deployment.Name}.Warning("", "the operator does not run, so nothing follows changes"))
		for j := range w.Findings {
			if waits(w.Findings[j]) {
				w.Findings[j].Remedy = "The operator does not run, so it does nothing about this. See why: " + check.Describe("deployment", &deployments.Items[i])
			}
		}
	}
}

// walk follows the path of an address, and reports what it finds.
type walk struct{ *check.Examination }

// fromPod follows each listener volume of a Pod.
func (w *walk) fromPod(ctx context.Context, pod *corev1.Pod) {
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
				"Replace csi of the volume by ephemeral.volumeClaimTemplate, or by a claim."))
		}
		name := index.ClaimName(pod, volume)
		if name == "" {
			continue
		}
		pvc := &corev1.PersistentVolumeClaim{}
		switch found := w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pvc); {
		case found != check.Present:
			mounts = mounts || found == check.Forbidden
			w.addAbsentClaim(ctx, pod, volume, name, found)
		case check.RequestsListener(pvc):
			mounts = true
			w.claim(ctx, pvc, pod)
		case awaitsOtherClaim(pod, pvc):
			w.Add(check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}.Failed("",
				"has no volume, and is no claim for a listener volume", "See why: "+check.Describe("pvc", pvc)))
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

// fromWorkload follows each Pod of a workload. If there is none, what Kubernetes says last about it may be the cause.
func (w *walk) fromWorkload(ctx context.Context, workload client.Object) {
	pods, owners := w.PodsOfWorkload(ctx, workload)
	for i := range pods {
		w.fromPod(ctx, &pods[i])
	}
	found := len(pods) > 0
	kind, _ := w.Client.GroupVersionKindFor(workload) // which was read as one of the scheme
	f := check.Finding{Kind: kind.Kind, Namespace: workload.GetNamespace(), Name: workload.GetName()}
	for _, o := range owners {
		event := w.LastEvent(ctx, o, func(e *corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Reason == reasons.FailedCreate
		})
		if event != nil && (!found || missingReplicas(workload)) {
			w.Add(f.FailedBy(reasons.FailedCreate, event.Message))
			return
		}
	}
	if !found {
		w.Add(withoutPods(f, workload))
	}
}

// withoutPods returns whether it is wrong that a workload has no Pod.
func withoutPods(f check.Finding, workload client.Object) check.Finding {
	if !missingReplicas(workload) {
		return f.Warning("", "has no Pod, and is to have none")
	}
	return f.Failed("", "has no Pod", "See why: "+check.Describe(strings.ToLower(f.Kind), workload))
}

// missingReplicas reports whether a workload has fewer Pods than it should have.
func missingReplicas(workload client.Object) bool {
	switch o := workload.(type) {
	case *appsv1.StatefulSet:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.Deployment:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.ReplicaSet:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		return o.Status.CurrentNumberScheduled < o.Status.DesiredNumberScheduled
	case *batchv1.Job:
		return o.Status.Active+o.Status.Succeeded+o.Status.Failed == 0
	default:
		return false
	}
}

// addAbsentClaim reports a claim that does not exist, unless it is certain that it would not be a listener claim.
func (w *walk) addAbsentClaim(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, name string, found check.Presence) {
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pod.Namespace, Name: name}
	missing := fmt.Sprintf("does not exist, and volume %q of Pod %s needs it", volume.Name, pod.Name)
	absent := f.Failed("", missing, "Create the claim, or name another one in the Pod.")
	if volume.Ephemeral != nil { // the API server requires a template
		template := volume.Ephemeral.VolumeClaimTemplate
		if !check.RequestsListener(&corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}) {
			return
		}
		absent.Remedy = "Kubernetes creates the claim of an ephemeral volume. If it does not, look at the events: " + check.Describe("pod", pod)
		if event := w.LastEvent(ctx, pod, func(e *corev1.Event) bool {
			return e.Reason == reasons.FailedBinding || e.Reason == reasons.FailedCreate
		}); event != nil {
			absent = f.FailedBy(event.Reason, event.Message)
		}
	}
	if found == check.Forbidden {
		w.Add(f.Unreadable())
		return
	}
	w.Add(absent)
}

// fromClaim follows a claim, and the Pods that mount it.
func (w *walk) fromClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) {
	if !check.RequestsListener(pvc) {
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
		w.Add(f.FailedBy(listenersv1alpha1.ReasonInvalidClaim, "is not for a listener volume"+claim.DidYouMean(pvc)))
		return
	}
	w.claim(ctx, pvc, nil)
	if pvc.Spec.VolumeName == "" {
		return
	}
	for _, pod := range w.Pods(ctx, pvc) {
		w.podAddresses(ctx, &pod, func(claim, _ string) bool { return claim == pvc.Name })
	}
}

// fromListener follows a Listener, the volumes that have reservations for it, and the Pods that mount them.
func (w *walk) fromListener(ctx context.Context, listener *listenersv1alpha1.Listener) {
	w.listener(ctx, listener, nil)
	var volumes corev1.PersistentVolumeList
	w.List(ctx, &volumes, client.MatchingLabels{names.LabelListenerNamespace: listener.Namespace, names.LabelListenerName: listener.Name})
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if claim.IsListenerVolume(pv) && pv.Spec.ClaimRef != nil {
			w.pin(ctx, pv)
		}
	}
	w.unboundPods(ctx, listener)
	pods := w.PodsOf(ctx, listener)
	for i := range pods {
		w.podAddresses(ctx, &pods[i], func(_, name string) bool { return name == listener.Name })
	}
}

// unboundPods follows the Pods that are going to mount a Listener when they are bound to a node, and their claims.
func (w *walk) unboundPods(ctx context.Context, listener *listenersv1alpha1.Listener) {
	var claims corev1.PersistentVolumeClaimList
	w.List(ctx, &claims, client.InNamespace(listener.Namespace))
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if selector, err := claim.ParseSelector(pvc.Annotations); err != nil || !check.RequestsListener(pvc) || selector.ListenerName(pvc.Name) != listener.Name {
			continue
		}
		for _, pod := range w.Pods(ctx, pvc) {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !claim.PodFinished(&pod) {
				w.Add(w.Claim(ctx, pvc))
				w.pod(ctx, &pod)
			}
		}
	}
}

// claim follows a claim. pod is the Pod that it was reached from, or nil.
func (w *walk) claim(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	f := w.Claim(ctx, pvc)
	w.Add(f)
	if pvc.Spec.VolumeName == "" || f.State == check.Failed {
		return
	}
	if selector := w.volume(ctx, pvc); selector != (claim.Selector{}) {
		missing := check.Finding{Kind: "Listener", Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
		switch {
		case selector.Class != "" && !w.bound(ctx, pvc, pod):
			missing = missing.Warning("", "does not exist yet: the operator creates it when a Pod that mounts the claim is bound to a node")
		case selector.Class != "":
			missing = missing.Failed(listenersv1alpha1.ReasonListenerNotFound, "does not exist, although the volume does", check.RemedyOperator)
			missing = w.Said(ctx, pvc, missing)
		default:
			missing = missing.FailedBy(listenersv1alpha1.ReasonListenerNotFound, "does not exist")
		}
		if listener := (&listenersv1alpha1.Listener{}); w.Require(ctx, listener, missing) {
			w.listener(ctx, listener, pod)
		}
	}
	if pod != nil {
		w.podAddresses(ctx, pod, func(claim, _ string) bool { return claim == pvc.Name })
	}
}

// bound reports whether a Pod that mounts a claim is bound to a node. pod is one of them, or nil.
func (w *walk) bound(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	if pod != nil {
		return pod.Spec.NodeName != ""
	}
	return slices.ContainsFunc(w.Pods(ctx, pvc), func(p corev1.Pod) bool { return p.Spec.NodeName != "" })
}
