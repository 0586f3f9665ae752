package walk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/names"
)

// RequestsListener reports whether a claim is for a listener volume, or was meant to be.
func RequestsListener(pvc *corev1.PersistentVolumeClaim) bool {
	selector, _ := claim.ParseSelector(pvc.Annotations)
	mistaken, _ := claim.ParseSelector(pvc.Labels)
	return claim.IsListenerClaim(pvc) || ptr.Deref(pvc.Spec.StorageClassName, "") == names.Driver ||
		cmp.Or(selector, mistaken) != claim.Selector{}
}

// isEphemeral reports whether a volume gets a claim for a listener volume from its template.
func isEphemeral(v *corev1.Volume) bool {
	template := ptr.Deref(v.Ephemeral, corev1.EphemeralVolumeSource{}).VolumeClaimTemplate
	return template != nil && RequestsListener(&corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta,
		Spec: template.Spec})
}

// claimFinding returns whether a claim has its volume, or why not.
func (w *Walk) claimFinding(ctx context.Context, pvc *corev1.PersistentVolumeClaim) check.Finding {
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	switch {
	case pvc.DeletionTimestamp != nil:
		return w.deletedClaim(ctx, f, pvc)
	case pvc.Status.Phase == corev1.ClaimLost && claim.OtherVolume(pvc) != "":
		return f.FailedBy(listenersv1alpha1.ReasonVolumeNotRestored, claim.OtherVolume(pvc))
	case pvc.Status.Phase == corev1.ClaimLost:
		return w.said(ctx, pvc, check.HasReason(listenersv1alpha1.ReasonVolumeNotRestored),
			f.FailedBy(reasons.ClaimLost, fmt.Sprintf("PersistentVolume %s was deleted", pvc.Spec.VolumeName)))
	case pvc.Spec.VolumeName != "":
		return f.OK("has PersistentVolume %s", pvc.Spec.VolumeName)
	default:
		return cmp.Or(w.storageProblem(ctx, f, pvc), w.selectorProblem(ctx, f, pvc),
			w.said(ctx, pvc, ofOperator, f.LeftToOperator("", "has no volume, and the operator says nothing about it")))
	}
}

func (w *Walk) deletedClaim(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim) check.Finding {
	text, pods := deletion(pvc), columns.Names(w.mountedBy(ctx, pvc))
	if pods == "" {
		return f.Failed("", text, "Kubernetes deletes it within a moment. If it does not, find out why those who "+
			"have set the finalizers do not remove them: "+describe("pvc", pvc)).
			Since(*pvc.DeletionTimestamp)
	}
	remedy := "A deletion cannot be undone. Its Pods need another claim when they start again. A StatefulSet creates " +
		"it; otherwise, create it after Kubernetes has deleted this one."
	if selector, _ := claim.ParseSelector(pvc.Annotations); selector.Class != "" {
		text += ", with its Listener and its address"
		remedy += " These Pods keep the address until they end. Tell clients before that it may change."
	}
	return f.Failed("", fmt.Sprintf("%s, as soon as it is not mounted any more: %s", text, pods), remedy)
}

// storageProblem returns what keeps the operator from provisioning a claim at all, or an empty finding.
func (w *Walk) storageProblem(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim) check.Finding {
	remedy, name := "The claim needs storageClassName: "+names.Driver+". "+correction(pvc),
		ptr.Deref(pvc.Spec.StorageClassName, "")
	switch {
	case pvc.Annotations[names.AnnotationProvisioner] == names.Driver:
		return check.Finding{}
	case name == "":
		return f.Failed("", "names no StorageClass", remedy)
	}
	var class storagev1.StorageClass
	switch found := w.Get(ctx, types.NamespacedName{Name: name}, &class); {
	case found == check.Forbidden || class.Provisioner == names.Driver:
		return check.Finding{}
	case found == check.Present:
		return f.Failed("", fmt.Sprintf("its StorageClass %s belongs to another driver, %s", name, class.Provisioner),
			remedy)
	case name == names.Driver:
		remedy = "The operator installs the StorageClass. Find out why it has not: kubectl listener doctor"
	}
	f = f.Failed("", fmt.Sprintf("its StorageClass %s does not exist", name), remedy)
	return w.DidYouMean(ctx, f, types.NamespacedName{Name: name}, &storagev1.StorageClassList{})
}

// selectorProblem returns what is wrong with the annotations of a claim, or with what they name, or an empty finding.
func (w *Walk) selectorProblem(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim) check.Finding {
	selector, err := claim.OfClaim(pvc, nil).Selector()
	invalidName := claim.ListenerNameProblem(selector.ListenerName(pvc.Name))
	switch {
	case err != nil:
		f = f.FailedBy(listenersv1alpha1.ReasonInvalidClaim, err.Error())
	case invalidName != "":
		return f.FailedBy(listenersv1alpha1.ReasonInvalidName, invalidName)
	case selector.Listener != "":
		return w.listenerProblem(ctx, f, types.NamespacedName{Namespace: pvc.Namespace, Name: selector.Listener})
	default:
		f = w.classProblem(ctx, f, selector.Class)
	}
	if f.State != "" {
		f.Remedy += " " + correction(pvc)
	}
	return f
}

func (w *Walk) listenerProblem(ctx context.Context, f check.Finding, key types.NamespacedName) check.Finding {
	var listener listenersv1alpha1.Listener
	switch found := w.Get(ctx, key, &listener); {
	case found == check.Missing:
		return w.mistakenListener(ctx, f.FailedBy(listenersv1alpha1.ReasonListenerNotFound,
			fmt.Sprintf("Listener %s does not exist", key)), key)
	case found == check.Present && listener.Class() == "":
		return f.FailedBy(listenersv1alpha1.ReasonClassNotSet, fmt.Sprintf("Listener %s has no spec.className", key))
	case found == check.Present && (listener.Status == nil || len(listener.Status.IngressAddresses) == 0):
		// Addresses work without the class.
		return w.classProblem(ctx, f, listener.Class())
	}
	return check.Finding{}
}

func (w *Walk) classProblem(ctx context.Context, f check.Finding, class string) check.Finding {
	key := types.NamespacedName{Name: class}
	if w.Get(ctx, key, &listenersv1alpha1.ListenerClass{}) != check.Missing {
		return check.Finding{}
	}
	f = f.FailedBy(listenersv1alpha1.ReasonClassNotFound, fmt.Sprintf("ListenerClass %q does not exist", class))
	return w.mistakenClass(ctx, f, types.NamespacedName{Namespace: f.Namespace, Name: class})
}

func correction(pvc *corev1.PersistentVolumeClaim) string {
	if metav1.GetControllerOf(pvc) != nil { // of an ephemeral volume, the Pod
		return "Correct volumeClaimTemplate of the volume in what creates the Pod, and delete the Pod."
	}
	return reasons.Template
}

// addAbsentClaim reports a claim that does not exist, unless it would certainly be no listener claim.
func (w *Walk) addAbsentClaim(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, name string,
	found check.Presence) bool {
	f := check.Finding{Kind: "PersistentVolumeClaim", Namespace: pod.Namespace, Name: name}
	missing := f.Failed("", fmt.Sprintf("does not exist, and volume %q of Pod %s needs it", volume.Name, pod.Name),
		"Create the claim, or name another one in the Pod.")
	switch {
	case volume.Ephemeral != nil && !isEphemeral(volume):
		return false
	case found == check.Forbidden:
		w.Add(f.Unreadable())
	case volume.Ephemeral == nil:
		w.Add(w.DidYouMean(ctx, missing, types.NamespacedName{Namespace: f.Namespace, Name: f.Name},
			&corev1.PersistentVolumeClaimList{}))
	default:
		missing.Remedy = "Kubernetes creates the claim of an ephemeral volume. If it does not, look at the events: " +
			describe("pod", pod)
		w.Add(w.said(ctx, pod, check.HasReason(reasons.FailedBinding, reasons.FailedCreate), missing))
	}
	return true
}

func (w *Walk) podsOfClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) []corev1.Pod {
	byClaim := w.mounting[pvc.Namespace]
	if byClaim == nil {
		var list corev1.PodList
		if w.List(ctx, &list, client.InNamespace(pvc.Namespace)) != check.Present {
			return nil
		}
		byClaim = map[string][]corev1.Pod{}
		for pod := range check.Each(list.Items) {
			for name := range sets.New(claim.NamesOf(pod)...) {
				byClaim[name] = append(byClaim[name], *pod)
			}
		}
		w.mounting[pvc.Namespace] = byClaim
	}
	return byClaim[pvc.Name]
}

// mountedBy returns the names of the Pods that mount a claim, and are not about to end.
func (w *Walk) mountedBy(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (pods []string) {
	for _, pod := range w.podsOfClaim(ctx, pvc) {
		if pod.DeletionTimestamp == nil && !claim.PodFinished(&pod) {
			pods = append(pods, pod.Name)
		}
	}
	return pods
}

// bound reports whether a Pod that mounts a claim is bound to a node, and has not finished. pod is one of them, or nil.
func (w *Walk) bound(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	bound := func(p corev1.Pod) bool { return p.Spec.NodeName != "" && !claim.PodFinished(&p) }
	if pod != nil {
		return bound(*pod)
	}
	return slices.ContainsFunc(w.podsOfClaim(ctx, pvc), bound)
}
