// Package why has the command `kubectl listener why`, which follows the path of an address.
package why

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	kinds := []command.Kind{command.KindPod, command.KindClaim, command.KindListener}
	cmd := &cobra.Command{
		Use:   "why (POD | [KIND/]NAME)",
		Short: "Say why a Pod, a claim or a Listener has no address",
		Long: `Say why a Pod, a claim or a Listener has no address.

The command follows the path of an address: Pod, claim, volume, Listener, class, Service, Routes, Ingresses or Gateways,
endpoints, PodListeners and the files in the Pod. It prints what it finds at each step, and then the first thing that
is wrong, with what to do about it. A later step may be wrong because of an earlier one.

KIND is pod, claim or listener, or any other name that kubectl has for these kinds. Without a kind, NAME is a Pod, or
else a claim, or else a Listener.

The marks are: ✓ as it should be, ! a warning, ✗ wrong, ? you may not read it.`,
		Example: `  # Why does this Pod not start, or why has it no address?
  kubectl listener why kafka-0

  # The same for a claim, and for a Listener of another namespace
  kubectl listener why claim/listener-kafka-0
  kubectl listener why listener/kafka-bootstrap --namespace shop

  # For programs
  kubectl listener why kafka-0 --output json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: e.Examine(command.WriteSteps, func(ctx context.Context, x *check.Examination, args []string) error {
			w := &walk{x}
			o, err := e.Find(ctx, x.Client, args, kinds...)
			switch o := o.(type) {
			case *corev1.Pod:
				w.fromPod(ctx, o)
			case *corev1.PersistentVolumeClaim:
				w.fromClaim(ctx, o)
			case *listenersv1alpha1.Listener:
				w.fromListener(ctx, o)
			}
			return err
		}),
	}
	e.AddOutputFlag(cmd)
	return cmd
}

// walk follows the path of an address, and reports what it finds.
type walk struct{ *check.Examination }

// fromPod follows each listener volume of a Pod.
func (w *walk) fromPod(ctx context.Context, pod *corev1.Pod) {
	w.Add(podFinding(pod))
	mounts := false
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		name := index.ClaimName(pod, volume)
		if name == "" {
			continue
		}
		pvc := &corev1.PersistentVolumeClaim{}
		switch found := w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pvc); {
		case found != check.Present:
			mounts = mounts || found == check.Forbidden
			w.addAbsentClaim(pod, volume, name, found)
		case check.RequestsListener(pvc):
			mounts = true
			w.claim(ctx, pvc, pod)
		}
	}
	if !mounts {
		f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
		w.Add(f.Failed("", "mounts no listener volume", fmt.Sprintf("Give it a volume of a claim with storageClassName %s, and with the annotation %s or %s.",
			names.Driver, names.AnnotationListenerClass, names.AnnotationListenerName)))
	}
}

// addAbsentClaim reports a claim that does not exist, unless it is certain that it would not be a listener claim.
func (w *walk) addAbsentClaim(pod *corev1.Pod, volume *corev1.Volume, name string, found check.Presence) {
	remedy := "Create the claim, or name another one in the Pod."
	if volume.Ephemeral != nil { // the API server requires a template
		template := volume.Ephemeral.VolumeClaimTemplate
		if !check.RequestsListener(&corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}) {
			return
		}
		remedy = "Kubernetes creates the claim of an ephemeral volume. If it does not, look at the events: kubectl describe pod " + pod.Name
	}
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pod.Namespace, Name: name}
	if found == check.Forbidden {
		w.Add(f.Unreadable())
		return
	}
	w.Add(f.Failed("", fmt.Sprintf("does not exist, and volume %q of Pod %s needs it", volume.Name, pod.Name), remedy))
}

// fromClaim follows a claim, and the Pods that mount it.
func (w *walk) fromClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) {
	if !check.RequestsListener(pvc) {
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
		w.Add(f.FailedBy(listenersv1alpha1.ReasonInvalidClaim, "is not for a listener volume"+claim.DidYouMean(pvc.Annotations)))
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
	var pods corev1.PodList
	w.List(ctx, &pods, client.InNamespace(listener.Namespace), client.HasLabels{names.PodMountLabel(listener.UID)})
	for i := range pods.Items {
		w.podAddresses(ctx, &pods.Items[i], func(_, name string) bool { return name == listener.Name })
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
		if selector.Class != "" {
			missing = missing.Failed(listenersv1alpha1.ReasonListenerNotFound, "does not exist, although the volume does", check.RemedyOperator)
		} else {
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
