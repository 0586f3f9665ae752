package podlisteners

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// newListener is how long a Listener may take until its status has addresses, or why there are none, before it is
// reported: half of what the node agent waits for an object that does not exist.
const newListener = 5 * time.Second

// plan returns the desired PodListeners of a Pod, which exist since a time, and how long addresses may be missing
// without a reason, or 0. Entries without a mount have no addresses.
func (p *pass) plan(mounts []*mount, since metav1.Time,
	now time.Time) (spec listenersv1alpha1.PodListenersSpec, wait time.Duration) {
	spec = *p.has
	spec.NodeName, spec.Listeners = p.pod.Spec.NodeName, map[string]listenersv1alpha1.PodListener{}
	var given, others []string // what a Pod has been given, it keeps if there are too many addresses
	volumes, beyond := claim.Volumes(p.pod)
	for _, volume := range volumes {
		entry, ok := p.has.Listeners[volume.Name]
		if len(entry.IngressAddresses) > 0 {
			given = append(given, volume.Name)
		} else {
			others = append(others, volume.Name)
		}
		if entry.IngressAddresses = nil; ok {
			spec.Listeners[volume.Name] = entry
		}
	}
	p.complete = true
	for _, m := range mounts {
		entry := m.entry()
		if left, text := m.untilPrevious(since, now); left > 0 {
			entry.IngressAddresses = nil
			p.again.Add(left, "the addresses of a previous exposure are about to go away")
			m.warnPrevious(text)
		} else if len(entry.IngressAddresses) == 0 && !m.warnMissing() {
			p.complete = false
			if m.listener != nil && !m.statusCurrent() {
				wait = max(wait, requests.Left(m.listener.CreationTimestamp, newListener, now))
			}
		}
		spec.Listeners[m.volume] = entry
	}
	spec.Copies = copies(spec, p.has.Copies, mounts)
	if without := spec.Limit(append(given, others...)); len(without) > 0 {
		p.warnLimit(without[0])
	} else if beyond != nil {
		p.warnLimit(beyond.Name)
	}
	recordStart(&spec, mounts)
	spec.Summary = columns.Volumes(&spec)
	return spec, wait
}

// copies returns the volumes with an entry that are of a copy by their mounts, or else by what was recorded before.
func copies(spec listenersv1alpha1.PodListenersSpec, before []string, mounts []*mount) []string {
	all := sets.New(before...)
	for _, m := range mounts {
		if all.Delete(m.volume); m.isCopy {
			all.Insert(m.volume)
		}
	}
	return sets.List(all.Intersection(sets.KeySet(spec.Listeners)))
}

// recordStart records the addresses that a Pod starts with, and for which volumes their change restarts it. Those of a
// Pod that ran before count as unchanged. While the class is not known, nothing changes.
func recordStart(spec *listenersv1alpha1.PodListenersSpec, mounts []*mount) {
	start := map[string][]listenersv1alpha1.IngressAddress{}
	for volume, entry := range spec.Listeners {
		if addresses := spec.StartAddresses[volume]; len(addresses) > 0 {
			start[volume] = addresses
		} else if len(entry.IngressAddresses) > 0 {
			start[volume] = entry.IngressAddresses
		}
	}
	spec.StartAddresses = start
	outdated, restart := spec.Outdated(), sets.New(spec.RestartOnChange...)
	for _, m := range mounts {
		switch {
		case m.class == nil:
		case !m.class.RestartsPods():
			restart.Delete(m.volume)
		case !slices.Contains(outdated, m.volume):
			restart.Insert(m.volume)
		}
	}
	spec.RestartOnChange = sets.List(restart.Intersection(sets.KeySet(spec.Listeners)))
}

// restartCounts has the restarts of containers when the addresses of a volume changed, by volume and container.
type restartCounts map[string]map[string]int32

// restartsOf returns how often the containers that mount a volume of a Pod have restarted.
func restartsOf(pod *corev1.Pod, volume string) map[string]int32 {
	counts := map[string]int32{}
	for i := range pod.Spec.Containers { // the cache has init containers, too
		container := &pod.Spec.Containers[i]
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
			counts[container.Name] = 0
		}
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if _, mounts := counts[status.Name]; mounts {
			counts[status.Name] = status.RestartCount
		}
	}
	return counts
}

// readAgain makes the present addresses those that the Pod started with if all containers that mount them have
// restarted since they changed. While this process does not know the restarts of then, they have to restart once more.
func (c restartCounts) readAgain(spec *listenersv1alpha1.PodListenersSpec, pod *corev1.Pod) {
	for _, volume := range spec.Outdated() {
		now := restartsOf(pod, volume)
		if c[volume] == nil {
			c[volume] = now
		}
		again := len(now) > 0
		for container, count := range now {
			again = again && count > c[volume][container]
		}
		if again {
			spec.StartAddresses[volume] = spec.Listeners[volume].IngressAddresses
		}
	}
}

// record records the restarts of the containers whose addresses change.
func (c restartCounts) record(before, after *listenersv1alpha1.PodListenersSpec, pod *corev1.Pod) {
	for volume, entry := range after.Listeners {
		if !equality.Semantic.DeepEqual(entry.IngressAddresses, before.Listeners[volume].IngressAddresses) {
			c[volume] = restartsOf(pod, volume)
		}
	}
}
