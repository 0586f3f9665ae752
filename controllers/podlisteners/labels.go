package podlisteners

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// labels returns the labels of a Pod, also those that the cache does not have yet.
func (r *Reconciler) labels(pod *corev1.Pod) map[string]string {
	w := r.writtenFor(listenersv1alpha1.PodListenersName(pod.UID))
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, w.version); err == nil && order < 0 {
		return w.labels // there is an event of that version, so it does not matter if the Pod has lost them since
	}
	w.labels, w.version = nil, ""
	return pod.Labels
}

// labelPod adds the labels of Listeners that a Pod lacks, and keeps those of its other mounts (contract: the labels),
// but removes the labels, which are nil, that it has as the copy of another Pod.
func (r *Reconciler) labelPod(ctx context.Context, p *pass, labels map[string]any) error {
	w, has := r.writtenFor(listenersv1alpha1.PodListenersName(p.pod.UID)), r.labels(p.pod)
	mounts := maps.Clone(labels)
	maps.DeleteFunc(labels, func(key string, value any) bool {
		label, _ := value.(string)
		return has[key] == label
	})
	if len(labels) == 0 {
		return nil
	}
	if !w.repairs.permit(labels, r.Clock) {
		p.again.Add(repairInterval, "something removes labels of the Pod again and again")
		return nil
	}
	labelled := p.pod.DeepCopy() // the client decodes the response into it
	if err := apply.PatchMetadata(ctx, r.Client, labelled, names.FieldManagerDefault,
		map[string]any{"labels": labels}); err != nil {
		return client.IgnoreNotFound(err)
	}
	if w.repairs.done(labels) {
		p.warnLabels(labelled)
	}
	maps.DeleteFunc(labelled.Labels, func(key, _ string) bool { // others may have set any number
		_, own := mounts[key]
		return !own
	})
	w.labels, w.version = labelled.Labels, labelled.ResourceVersion
	return nil
}
