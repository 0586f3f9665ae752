package podlisteners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// ensureMounts applies the Listeners of class-based claims, labels the Pod and its volumes with their Listeners, and
// pins the volumes of pinned classes. A mount of a volume that observed has no entry for is a new one, unless the Pod
// has the label of the Listener, which it gets last.
func (r *Reconciler) ensureMounts(
	ctx context.Context, observed map[string]listenersv1alpha1.PodListener, pod *corev1.Pod, node *corev1.Node, mounts []mount,
) error {
	var errs []error
	labels := map[string]string{}
	for i := range mounts {
		m := &mounts[i]
		entry, known := observed[m.volume]
		mounting := !known && !m.labelled(pod)
		errs = append(errs, r.ensureListener(ctx, pod, m, mounting), r.ensureVolume(ctx, pod, node, m, mounting, len(entry.IngressAddresses) > 0))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = m.listener.Name
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.labelPod(ctx, pod, labels)
}

// ensureVolume labels a PersistentVolume with its Listener. If the class is pinned, it pins the volume to the node of
// the Pod before the first address is published, so that no Pod is scheduled to another node than that of a published
// address. Otherwise it records the node at a new mount. node is nil if it does not exist.
func (r *Reconciler) ensureVolume(ctx context.Context, pod *corev1.Pod, node *corev1.Node, m *mount, mounting, published bool) error {
	labels := map[string]string{
		names.LabelListenerNamespace: pod.Namespace,
		names.LabelListenerName:      m.listenerName(),
	}
	leaving := claim.NodeLost(node) || pod.DeletionTimestamp != nil
	affinity, annotations := m.reservation(pod.Spec.NodeName, leaving, mounting, published)
	pinning := affinity != m.pv.Spec.NodeAffinity
	if !pinning && len(missingEntries(m.pv.Labels, labels))+len(missingEntries(m.pv.Annotations, annotations)) == 0 {
		return nil
	}
	desired, err := desiredVolume(m.pv.Name, labels, annotations, affinity)
	if err != nil {
		return err
	}
	if _, err := r.Applier.Apply(ctx, desired, m.pv); err != nil {
		return err
	}
	if pinning {
		m.pv = m.pv.DeepCopy()
		m.pv.Spec.NodeAffinity = affinity
	}
	return nil
}

// desiredVolume returns a PersistentVolume with the fields that the operator owns. A node affinity is one of them even
// if it is not new: it is immutable, and an apply without it would try to remove it.
func desiredVolume(
	name string, labels, annotations map[string]string, affinity *corev1.VolumeNodeAffinity,
) (*unstructured.Unstructured, error) {
	desired, err := apply.Unstructured(corev1ac.PersistentVolume(name).WithLabels(labels).WithAnnotations(annotations))
	if err != nil || affinity == nil {
		return desired, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(affinity)
	if err != nil {
		return nil, fmt.Errorf("encoding the node affinity of PersistentVolume %s: %w", name, err)
	}
	desired.Object["spec"] = map[string]any{"nodeAffinity": content}
	return desired, nil
}

// labelPod adds the labels of Listeners that a Pod does not have. It sends a merge patch, because a Pod keeps the
// labels of its other mounts (contract: the labels). The API server rejects the patch for a new Pod of the same name,
// because its uid differs.
func (r *Reconciler) labelPod(ctx context.Context, pod *corev1.Pod, labels map[string]string) error {
	labels = missingEntries(r.labels(pod), labels)
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": labels}})
	if err != nil {
		return fmt.Errorf("encoding a patch of labels: %w", err)
	}
	labelled := pod.DeepCopy() // the client decodes the response into it
	err = r.Client.Patch(ctx, labelled, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldManagerDefault))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("labelling Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	r.setLabelled(listenersv1alpha1.PodListenersName(pod.UID), labels, labelled.ResourceVersion)
	return nil
}

// ensureListener applies the Listener of a class-based claim, with the ports, the name and the index of the Pod that
// mounts the claim, owned by claim and volume. It does not change a Listener that was not created for the claim. If the
// mount is not new, it only adds owners: Pods that share a claim may have different ports, and must not overwrite each
// other's.
func (r *Reconciler) ensureListener(ctx context.Context, pod *corev1.Pod, m *mount, mounting bool) error {
	if m.selector.Class == "" {
		return nil
	}
	labels := pod.Labels
	if m.listener != nil && !mounting {
		labels = m.listener.Labels
	}
	desired := claim.Listener(m.claim, m.pv, m.selector.Class, r.ports(pod, m, mounting), labels)
	switch {
	case m.listener == nil:
		return r.createListener(ctx, m, desired)
	case m.listener.DeletionTimestamp != nil:
		return nil // it is created again when it is deleted
	case !claim.OwnedBy(m.listener, m.claim):
		r.emitEvent(pod, m, listenersv1alpha1.ReasonForeignListener, actionMount,
			fmt.Sprintf("Listener %s exists but was not created for claim %s, so it is not changed; rename one of the two", m.listener.Name, m.claim.Name))
		m.listener = nil
		return nil
	case !mounting && m.ownListener():
		return nil
	default:
		_, err := r.Applier.Apply(ctx, desired, m.listener)
		return err
	}
}

// ports returns the ports of the Listener of a class-based claim. If the mount is new, events name ports that cannot be
// exposed.
func (r *Reconciler) ports(pod *corev1.Pod, m *mount, mounting bool) []listenersv1alpha1.ListenerPort {
	if m.listener != nil && !mounting {
		return m.listener.Spec.Ports
	}
	ports, problem := claim.Ports(m.claim, pod)
	for reason, text := range map[string]string{
		listenersv1alpha1.ReasonInvalidClaim: problem, listenersv1alpha1.ReasonDuplicatePortName: claim.DuplicatePorts(pod),
	} {
		if text != "" {
			r.emitEvent(pod, m, reason, actionMount, fmt.Sprintf("Volume %q: %s", m.volume, text))
		}
	}
	return ports
}

// createListener creates the Listener of a mount, which has it from then on: the Pod is labelled with its uid.
func (r *Reconciler) createListener(ctx context.Context, m *mount, desired *unstructured.Unstructured) error {
	if _, err := r.Applier.Apply(ctx, desired, nil); err != nil {
		return err
	}
	created := &listenersv1alpha1.Listener{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, created); err != nil {
		return fmt.Errorf("decoding Listener %s: %w", client.ObjectKeyFromObject(desired), err)
	}
	m.listener = created
	return r.observeClass(ctx, m)
}

// missingEntries returns the desired entries that the observed map does not have.
func missingEntries(observed, desired map[string]string) map[string]string {
	missing := map[string]string{}
	for key, value := range desired {
		if has, ok := observed[key]; !ok || has != value {
			missing[key] = value
		}
	}
	return missing
}
