package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// claimFinding returns whether a claim has its volume, or why not.
func (x *examination) claimFinding(ctx context.Context, pvc *corev1.PersistentVolumeClaim) finding {
	f := finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	switch {
	case pvc.DeletionTimestamp != nil:
		return f.failed("", "is being deleted", "Wait until the Pods that mount it have ended; Kubernetes then deletes it.")
	case pvc.Status.Phase == corev1.ClaimLost:
		return x.lostClaim(ctx, f, pvc)
	case pvc.Spec.VolumeName != "":
		return f.ok("has PersistentVolume %s", pvc.Spec.VolumeName)
	}
	if problem := x.storageProblem(ctx, f, pvc); problem.State != "" {
		return problem
	}
	selector, err := claim.ParseSelector(pvc.Annotations)
	if err != nil {
		problem := err.Error()
		if errors.Is(err, claim.ErrNoSelector) {
			problem += claim.DidYouMean(pvc.Annotations)
		}
		return f.failed(listenersv1alpha1.ReasonInvalidClaim, problem, remedyFor(listenersv1alpha1.ReasonInvalidClaim))
	}
	if problem := claim.ListenerNameProblem(selector.ListenerName(pvc.Name)); problem != "" {
		return f.failed(listenersv1alpha1.ReasonInvalidName, problem, remedyFor(listenersv1alpha1.ReasonInvalidName))
	}
	if problem := x.selectorProblem(ctx, f, pvc, selector); problem.State != "" {
		return problem
	}
	return x.pendingClaim(ctx, f, pvc)
}

// lostClaim returns why the operator has not created the volume of a claim again.
func (x *examination) lostClaim(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim) finding {
	message := fmt.Sprintf("PersistentVolume %s was deleted", pvc.Spec.VolumeName)
	event := x.lastEvent(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonVolumeNotRestored })
	if event == nil {
		return f.failed("ClaimLost", message, remedyOperator)
	}
	return f.failed(event.Reason, event.Message, remedyFor(event.Reason))
}

// storageProblem returns what keeps the operator from provisioning a claim at all, or an empty finding.
func (x *examination) storageProblem(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim) finding {
	if pvc.Annotations[names.AnnotationProvisioner] == names.Driver {
		return finding{}
	}
	name := ptr.Deref(pvc.Spec.StorageClassName, "")
	if name == "" {
		return f.failed("", "names no StorageClass", "Create the claim again with storageClassName: "+names.Driver+".")
	}
	var class storagev1.StorageClass
	switch found := x.get(ctx, types.NamespacedName{Name: name}, &class); {
	case found == forbidden:
		return finding{}
	case found == missing && name == names.Driver:
		return f.failed("", fmt.Sprintf("its StorageClass %s does not exist", name), "The operator installs the StorageClass. Find out why it has not: kubectl listener doctor")
	case found == missing:
		return f.failed("", fmt.Sprintf("its StorageClass %s does not exist", name), "Create the claim again with storageClassName: "+names.Driver+".")
	case class.Provisioner != names.Driver:
		return f.failed("", fmt.Sprintf("its StorageClass %s is that of another driver, %s", name, class.Provisioner), "Create the claim again with storageClassName: "+names.Driver+".")
	}
	return finding{}
}

// selectorProblem returns what is wrong with the Listener or the class that a claim names, or an empty finding.
func (x *examination) selectorProblem(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim, selector claim.Selector) finding {
	class := selector.Class
	if selector.Listener != "" {
		var listener listenersv1alpha1.Listener
		key := types.NamespacedName{Namespace: pvc.Namespace, Name: selector.Listener}
		switch found := x.get(ctx, key, &listener); {
		case found == forbidden:
			return finding{}
		case found == missing:
			return f.failed(listenersv1alpha1.ReasonListenerNotFound, fmt.Sprintf("Listener %s does not exist", key), remedyFor(listenersv1alpha1.ReasonListenerNotFound))
		case listener.Class() == "":
			return f.failed(listenersv1alpha1.ReasonClassNotSet, fmt.Sprintf("Listener %s has no spec.className", key), remedyFor(listenersv1alpha1.ReasonClassNotSet))
		case listener.Status != nil && len(listener.Status.IngressAddresses) > 0:
			return finding{} // its addresses work without the class
		}
		class = listener.Class()
	}
	if x.get(ctx, types.NamespacedName{Name: class}, &listenersv1alpha1.ListenerClass{}) != missing {
		return finding{}
	}
	return f.failed(listenersv1alpha1.ReasonClassNotFound, fmt.Sprintf("ListenerClass %q does not exist", class), remedyFor(listenersv1alpha1.ReasonClassNotFound))
}

// pendingClaim returns what the operator says about a claim without a volume.
func (x *examination) pendingClaim(ctx context.Context, f finding, pvc *corev1.PersistentVolumeClaim) finding {
	event := x.lastEvent(ctx, pvc, fromOperator)
	if event == nil {
		return f.failed("", "has no volume, and the operator says nothing about it", remedyOperator)
	}
	return f.failed(event.Reason, event.Message, remedyFor(event.Reason))
}

// volume follows the volume of a claim, and returns what it was provisioned for.
func (w *walk) volume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) claim.Selector {
	requested, _ := claim.ParseSelector(pvc.Annotations)
	pv := &corev1.PersistentVolume{}
	f := finding{Kind: "PersistentVolume", Name: pvc.Spec.VolumeName}
	switch found := w.follow(ctx, f, pv); {
	case found == forbidden:
		return requested
	case found == missing:
		w.add(f.failed(listenersv1alpha1.ReasonVolumeNotRestored, "does not exist", remedyOperator))
		return requested
	case !claim.IsBoundTo(pv, pvc):
		w.add(f.failed("", "is not a listener volume of this claim", "Create the claim again without spec.volumeName."))
		return requested
	}
	provisioned, err := claim.VolumeSelector(pv)
	if err != nil {
		provisioned = requested
	}
	if _, err := claim.ParseSelector(pvc.Annotations); err == nil && requested != provisioned {
		w.add(f.failed(listenersv1alpha1.ReasonSelectorChanged,
			fmt.Sprintf("was provisioned for %s, and the annotation of the claim now names %s, which has no effect", describe(provisioned), describe(requested)),
			remedyFor(listenersv1alpha1.ReasonSelectorChanged)))
	}
	w.pin(ctx, pv, types.NamespacedName{Namespace: pvc.Namespace, Name: pvc.Name})
	return provisioned
}

func describe(s claim.Selector) string {
	if s.Class != "" {
		return "class " + s.Class
	}
	return "Listener " + s.Listener
}

// pin follows the node affinity of the volume of a claim.
func (w *walk) pin(ctx context.Context, pv *corev1.PersistentVolume, claimKey types.NamespacedName) {
	f := finding{Kind: "PersistentVolume", Name: pv.Name}
	pinned := index.PinnedNodes(pv)
	if len(pinned) == 0 {
		w.add(f.ok("is not pinned to a node"))
		return
	}
	node := &corev1.Node{}
	release := fmt.Sprintf("kubectl listener release %s --namespace %s", claimKey.Name, claimKey.Namespace)
	switch found := w.get(ctx, types.NamespacedName{Name: pinned[0]}, node); {
	case found == forbidden:
		w.add(f.ok("is pinned to node %s", pinned[0]))
	case found == missing:
		w.add(f.failed(listenersv1alpha1.ReasonNodeLost, fmt.Sprintf("is pinned to node %s, which does not exist", pinned[0]), remedyNodeLost+release))
	case claim.NodeLost(node):
		w.add(f.failed(listenersv1alpha1.ReasonNodeLost, fmt.Sprintf("is pinned to node %s, which is out of service", pinned[0]), remedyNodeLost+release))
	default:
		w.add(w.stuck(ctx, f.ok("is pinned to node %s", strings.Join(pinned, ", ")), claimKey, release))
	}
}

// stuck follows the Pods that wait for the node of a pinned volume. f is the finding if none does.
func (w *walk) stuck(ctx context.Context, f finding, claimKey types.NamespacedName, release string) finding {
	pvc := &corev1.PersistentVolumeClaim{}
	if w.get(ctx, claimKey, pvc) != present {
		return f
	}
	for _, pod := range w.pods(ctx, pvc) {
		if scheduled := podCondition(&pod, corev1.PodScheduled); scheduled == nil || scheduled.Status != corev1.ConditionFalse {
			continue
		}
		message := fmt.Sprintf("%s, and Pod %s cannot be scheduled", f.Message, pod.Name)
		if event := w.lastEvent(ctx, pvc, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonPinnedToNode }); event != nil {
			message = event.Message
		}
		return f.failed(listenersv1alpha1.ReasonPinnedToNode, message,
			"Let the node take the Pod: it may be cordoned, full, or have a taint. Or give the address up: "+release+" --force")
	}
	return f
}
