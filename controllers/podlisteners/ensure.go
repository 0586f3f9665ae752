package podlisteners

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// ensureMounts applies the Listeners of class-based claims, labels the Pod and its volumes with them, and pins volumes.
// A volume whose Listener a ResourceQuota does not permit waits; the other volumes of the Pod do not.
func (r *Reconciler) ensureMounts(ctx context.Context, p *pass, mounts []*mount) error {
	var errs []error
	labels := map[string]any{}
	for _, m := range mounts {
		if m.isCopy {
			if m.listener != nil {
				m.warnCopy()
				labels[names.PodMountLabel(m.listener.UID)] = nil
			}
			continue
		}
		err := r.ensureListener(ctx, m)
		if rejection := requests.ExceededQuota(err); rejection != "" && m.listener == nil {
			m.warnQuota(rejection)
			p.overQuota, err = errors.Join(p.overQuota, err), nil
		}
		errs = append(errs, err, r.ensureVolume(ctx, m))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = names.ListenerLabel(m.listener.Name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.labelPod(ctx, p, labels)
}

// ensureVolume labels a volume with its Listener. If the class is pinned, it pins the volume to the node of the Pod
// before an address is published: no later Pod may run elsewhere. Otherwise it records the node at a new mount.
func (r *Reconciler) ensureVolume(ctx context.Context, m *mount) error {
	if m.request.Inline || m.pv.UID == "" {
		return nil
	}
	own := labels.Set{names.LabelListenerNamespace: m.pod.Namespace,
		names.LabelListenerName: names.ListenerLabel(m.listenerName())}
	affinity, annotations := m.reservation()
	if affinity == m.pv.Spec.NodeAffinity && own.AsSelector().Matches(labels.Set(m.pv.Labels)) &&
		labels.Set(annotations).AsSelector().Matches(labels.Set(m.pv.Annotations)) {
		return nil
	}
	desired := apply.Object(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), client.ObjectKeyFromObject(m.pv))
	desired.SetLabels(own)
	desired.SetAnnotations(annotations)
	if affinity != nil { // even if it is not new: it is immutable, and an apply without it would try to remove it
		content, err := apply.Unstructured(affinity)
		if err != nil {
			return err
		}
		desired.Object["spec"] = map[string]any{"nodeAffinity": content.Object}
	}
	_, err := r.Applier.Apply(ctx, desired, m.pv)
	return err
}
