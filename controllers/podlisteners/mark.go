package podlisteners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// mark labels the Pod and its volumes with their Listeners, and makes the Listeners of class-based claims.
func (r *Reconciler) mark(ctx context.Context, hint *listenersv1alpha1.PodListeners, pod *corev1.Pod, mounts []mount) error {
	var errs []error
	labels := map[string]string{}
	for i := range mounts {
		m := &mounts[i]
		_, known := hint.Spec.Listeners[m.volume]
		errs = append(errs, r.ensureListener(ctx, pod, m, !known), r.markVolume(ctx, pod, m, !known))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = m.listener.Name
		}
	}
	return errors.Join(append(errs, r.markPod(ctx, pod, labels))...)
}

// markVolume labels a PersistentVolume with its Listener, and records the node at a new mount unless the volume is
// pinned to one. Pods that share a volume mount it one after the other, so the node of a mount that is not new is left
// as it is.
func (r *Reconciler) markVolume(ctx context.Context, pod *corev1.Pod, m *mount, mounting bool) error {
	labels := map[string]string{
		names.LabelListenerNamespace: pod.Namespace,
		names.LabelListenerName:      m.listenerName(),
	}
	annotations := map[string]string{}
	if !m.pinned() {
		annotations[names.AnnotationNode] = m.pv.Annotations[names.AnnotationNode]
		if mounting || annotations[names.AnnotationNode] == "" {
			annotations[names.AnnotationNode] = pod.Spec.NodeName
		}
	}
	if len(missing(m.pv.Labels, labels))+len(missing(m.pv.Annotations, annotations)) == 0 {
		return nil
	}
	desired, err := apply.Unstructured(corev1ac.PersistentVolume(m.pv.Name).WithLabels(labels).WithAnnotations(annotations))
	if err != nil {
		return err
	}
	_, err = r.Applier.Apply(ctx, desired, m.pv)
	return err
}

// markPod adds the labels of Listeners that a Pod does not have yet. It is a merge patch, because Pods keep the labels
// of other mounts (contract 1.4). The uid in the patch keeps it from a Pod of the same name that was made since.
func (r *Reconciler) markPod(ctx context.Context, pod *corev1.Pod, labels map[string]string) error {
	labels = missing(pod.Labels, labels)
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": labels}})
	if err != nil {
		return fmt.Errorf("encoding a patch of labels: %w", err)
	}
	// A copy takes the answer: the object belongs to the cache's reader.
	err = r.Client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldManagerDefault))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("labelling Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return nil
}

// ensureListener makes the Listener of a class-based claim as it should be for the Pod that mounts it now: with its
// ports, owned by claim and volume. A Listener that was not made for the claim is left alone, and so is one whose Pods
// have all mounted it: Pods that share a claim may have different ports, and must not take turns in setting them.
func (r *Reconciler) ensureListener(ctx context.Context, pod *corev1.Pod, m *mount, mounting bool) error {
	if m.selector.Class == "" {
		return nil
	}
	desired := claim.Listener(m.claim, m.pv, m.selector.Class, claim.PodPorts(pod))
	switch {
	case m.listener == nil:
		_, err := r.Applier.Apply(ctx, desired, nil)
		return err
	case m.listener.DeletionTimestamp != nil:
		return nil // it is made anew when it is gone
	case !claim.OwnedBy(m.listener, m.claim):
		r.tell(pod, m, listenersv1alpha1.ReasonForeignListener, actionMount,
			fmt.Sprintf("Listener %s exists but was not made for claim %s, and is left alone; rename one of the two", m.listener.Name, m.claim.Name))
		m.listener = nil
		return nil
	case !mounting && m.ownsListener():
		return nil
	default:
		_, err := r.Applier.Apply(ctx, desired, m.listener)
		return err
	}
}

// missing returns the wanted pairs that an object does not have.
func missing(observed, wanted map[string]string) map[string]string {
	lacking := map[string]string{}
	for key, value := range wanted {
		if has, ok := observed[key]; !ok || has != value {
			lacking[key] = value
		}
	}
	return lacking
}
