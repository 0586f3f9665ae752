package podlisteners

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// restartCounts has how often the containers that mount a volume had restarted when its addresses changed, by volume
// and container.
type restartCounts map[string]map[string]int32

// restartsOf returns how often the containers that mount a volume of a Pod have restarted.
func restartsOf(pod *corev1.Pod, volume string) map[string]int32 {
	counts := map[string]int32{}
	for i := range pod.Spec.Containers { // the cache has init containers, too
		container := &pod.Spec.Containers[i]
		for _, m := range container.VolumeMounts {
			if m.Name == volume {
				counts[container.Name] = 0
			}
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

// readAgain makes the present addresses of volumes those that the Pod started with, if all containers that mount them
// have restarted since the addresses changed. While this process does not know how often they had restarted then, they
// have to restart once more.
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
