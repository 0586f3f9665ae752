package podlisteners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
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
		errs = append(errs, r.ensureListener(ctx, pod, m), r.markVolume(ctx, pod, m, !known))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = m.listener.Name
		}
	}
	return errors.Join(append(errs, r.patchMetadata(ctx, pod, labels, nil))...)
}

// markVolume labels a PersistentVolume with its Listener, and records the node at a new mount unless the volume is pinned to one. Pods that
// share a volume mount it one after the other, so the node of a mount that is not new is left as it is.
func (r *Reconciler) markVolume(ctx context.Context, pod *corev1.Pod, m *mount, mounting bool) error {
	labels := map[string]string{
		names.LabelListenerNamespace: pod.Namespace,
		names.LabelListenerName:      m.listenerName(),
	}
	var annotations map[string]string
	if !m.pinned() && (mounting || m.pv.Annotations[names.AnnotationNode] == "") {
		annotations = map[string]string{names.AnnotationNode: pod.Spec.NodeName}
	}
	return r.patchMetadata(ctx, m.pv, labels, annotations)
}

// patchMetadata adds labels and annotations that an object does not have yet. The uid in the patch keeps it from an object of the
// same name that was made since.
func (r *Reconciler) patchMetadata(ctx context.Context, o client.Object, labels, annotations map[string]string) error {
	labels, annotations = missing(o.GetLabels(), labels), missing(o.GetAnnotations(), annotations)
	if len(labels)+len(annotations) == 0 {
		return nil
	}
	patch, err := metadataPatch(o.GetUID(), labels, annotations)
	if err != nil {
		return err
	}
	// A copy takes the answer: the object belongs to the cache's reader.
	target := o.DeepCopyObject().(client.Object)
	err = r.Client.Patch(ctx, target, patch, client.FieldOwner(names.OwnerDefault))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("labelling %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// ensureListener makes the Listener of a class-based claim as it should be for the Pod that mounts it now: with its ports, owned
// by claim and volume. A Listener that was not made for the claim is left alone.
func (r *Reconciler) ensureListener(ctx context.Context, pod *corev1.Pod, m *mount) error {
	if m.selector.Class == "" {
		return nil
	}
	desired := claim.Listener(m.claim, m.pv, m.selector.Class, claim.PodPorts(pod))
	switch {
	case m.listener == nil:
		return r.Listeners.Apply(ctx, desired, nil)
	case m.listener.DeletionTimestamp != nil:
		return nil // it is made anew when it is gone
	case !claim.OwnedBy(m.listener, m.claim):
		r.Events.Eventf(pod, m.listener, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignListener, "Mount",
			"Listener %s exists but was not made for claim %s, and is left alone; rename one of the two", m.listener.Name, m.claim.Name)
		m.listener = nil
		return nil
	default:
		return r.Listeners.Apply(ctx, desired, m.listener)
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

// metadataPatch is a merge patch that only applies to the object with the uid.
func metadataPatch(uid types.UID, labels, annotations map[string]string) (client.Patch, error) {
	type metadata struct {
		UID         types.UID         `json:"uid"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	raw, err := json.Marshal(map[string]any{"metadata": metadata{uid, labels, annotations}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of labels: %w", err)
	}
	return client.RawPatch(types.MergePatchType, raw), nil
}
