package why

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// walk follows the path of an address, and reports what it finds.
type walk struct{ check.Examination }

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
		if found := w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pvc); found != check.Present {
			mounts = mounts || found == check.Forbidden
			w.addAbsentClaim(pod, volume, name, found)
			continue
		}
		if !check.RequestsListener(pvc) {
			continue
		}
		mounts = true
		w.claim(ctx, pvc, pod)
	}
	if !mounts {
		w.Add(check.Finding{
			Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, State: check.Failed, Message: "mounts no listener volume",
			Remedy: fmt.Sprintf("Give it a volume of a claim with storageClassName %s, and with the annotation %s or %s.",
				names.Driver, names.AnnotationListenerClass, names.AnnotationListenerName),
		})
	}
}

// addAbsentClaim reports a claim that does not exist, unless it is certain that it would not be a listener claim.
func (w *walk) addAbsentClaim(pod *corev1.Pod, volume *corev1.Volume, name string, found check.Presence) {
	if volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil {
		template := volume.Ephemeral.VolumeClaimTemplate
		if !check.RequestsListener(&corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}) {
			return
		}
	}
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pod.Namespace, Name: name}
	if found == check.Forbidden {
		w.Add(f.Unreadable())
		return
	}
	remedy := "Create the claim, or name another one in the Pod."
	if volume.Ephemeral != nil {
		remedy = "Kubernetes creates the claim of an ephemeral volume. If it does not, look at the events: kubectl describe pod " + pod.Name
	}
	w.Add(f.Failed("", fmt.Sprintf("does not exist, and volume %q of Pod %s needs it", volume.Name, pod.Name), remedy))
}

// fromClaim follows a claim, and the Pods that mount it.
func (w *walk) fromClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) {
	if !check.RequestsListener(pvc) {
		f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
		w.Add(f.Failed(listenersv1alpha1.ReasonInvalidClaim, "is not for a listener volume"+claim.DidYouMean(pvc.Annotations), check.Remedy(listenersv1alpha1.ReasonInvalidClaim)))
		return
	}
	w.claim(ctx, pvc, nil)
	if pvc.Spec.VolumeName == "" {
		return
	}
	for _, pod := range w.Pods(ctx, pvc) {
		w.podAddresses(ctx, &pod, func(m mounted) bool { return m.claim == pvc.Name })
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
			w.pin(ctx, pv, types.NamespacedName{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name})
		}
	}
	var pods corev1.PodList
	w.List(ctx, &pods, client.InNamespace(listener.Namespace), client.HasLabels{names.PodMountLabel(listener.UID)})
	for i := range pods.Items {
		w.podAddresses(ctx, &pods.Items[i], func(m mounted) bool { return m.listener == listener.Name })
	}
}

// claim follows a claim. pod is the Pod that it was reached from, or nil.
func (w *walk) claim(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	f := w.Claim(ctx, pvc)
	w.Add(f)
	if pvc.Spec.VolumeName == "" || f.State == check.Failed {
		return
	}
	w.listenerOf(ctx, pvc, w.volume(ctx, pvc), pod)
	if pod != nil {
		w.podAddresses(ctx, pod, func(m mounted) bool { return m.claim == pvc.Name })
	}
}

// listenerOf follows the Listener of a claim with the selector.
func (w *walk) listenerOf(ctx context.Context, pvc *corev1.PersistentVolumeClaim, selector claim.Selector, pod *corev1.Pod) {
	f := check.Finding{Kind: "Listener", Namespace: pvc.Namespace, Name: selector.ListenerName(pvc.Name)}
	if f.Name == "" {
		return
	}
	listener := &listenersv1alpha1.Listener{}
	switch found := w.Follow(ctx, f, listener); {
	case found == check.Missing && selector.Class != "":
		w.Add(f.Failed(listenersv1alpha1.ReasonListenerNotFound, "does not exist, although the volume does", check.RemedyOperator))
	case found == check.Missing:
		w.Add(f.Failed(listenersv1alpha1.ReasonListenerNotFound, "does not exist", check.Remedy(listenersv1alpha1.ReasonListenerNotFound)))
	case found == check.Present:
		w.listener(ctx, listener, pod)
	}
}
