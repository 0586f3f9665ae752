package podlisteners

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// podWrites are the last writes for a Pod, which the cache may not have yet: to repeat one would cost a request that
// changes nothing.
type podWrites struct {
	// created is when the PodListeners of the Pod was created.
	created time.Time
	// added are the labels that were added to the Pod last, and labelled is the version that it had then.
	added    map[string]string
	labelled string
}

// cacheLag is for how long an object that was created and is not in the cache is not created again. It may have been
// deleted in this time.
const cacheLag = time.Second

func (r *Reconciler) podWrites(podListeners string) podWrites {
	writes, _ := r.writes.Load(podListeners)
	last, _ := writes.(podWrites)
	return last
}

// setPodWrites replaces the writes for a Pod. None are kept that the cache has.
func (r *Reconciler) setPodWrites(podListeners string, writes podWrites) {
	if writes.created.IsZero() && writes.labelled == "" {
		r.writes.Delete(podListeners)
		return
	}
	r.writes.Store(podListeners, writes)
}

// setCreated records when a PodListeners was created, or if that is zero, that there is nothing to wait for any more.
func (r *Reconciler) setCreated(podListeners string, created time.Time) {
	writes := r.podWrites(podListeners)
	writes.created = created
	r.setPodWrites(podListeners, writes)
}

// labels returns the labels of a Pod, with those that were added to a later version of it. There is an event of that
// version, so it does not matter if it has lost them since.
func (r *Reconciler) labels(pod *corev1.Pod) map[string]string {
	name := listenersv1alpha1.PodListenersName(pod.UID)
	writes := r.podWrites(name)
	if writes.labelled == "" {
		return pod.Labels
	}
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, writes.labelled); err == nil && order < 0 {
		labels := maps.Clone(writes.added)
		maps.Copy(labels, pod.Labels)
		return labels
	}
	r.setLabelled(name, nil, "")
	return pod.Labels
}

// setLabelled records the labels that were added to a Pod, and the version that it had then, or nothing.
func (r *Reconciler) setLabelled(podListeners string, added map[string]string, version string) {
	writes := r.podWrites(podListeners)
	writes.added, writes.labelled = added, version
	r.setPodWrites(podListeners, writes)
}
