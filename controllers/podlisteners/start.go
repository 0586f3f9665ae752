package podlisteners

import (
	"maps"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// startAddresses returns the addresses that a Pod started with, by volume, for the volumes whose class restarts Pods
// when they change. Those of a Pod that has run before they were recorded are not known: then the present ones count,
// which must not be taken for changed ones. While the class is not known, nothing changes.
func startAddresses(
	recorded map[string][]listenersv1alpha1.IngressAddress, entries map[string]listenersv1alpha1.PodListener, mounts []mount,
) map[string][]listenersv1alpha1.IngressAddress {
	start := map[string][]listenersv1alpha1.IngressAddress{}
	maps.Copy(start, recorded)
	maps.DeleteFunc(start, func(volume string, _ []listenersv1alpha1.IngressAddress) bool {
		_, mounted := entries[volume]
		return !mounted
	})
	for i := range mounts {
		m := &mounts[i]
		switch now := entries[m.volume].IngressAddresses; {
		case m.class == nil:
		case !m.class.RestartsPods():
			delete(start, m.volume)
		case len(start[m.volume]) == 0 && len(now) > 0:
			start[m.volume] = now
		}
	}
	if len(start) == 0 {
		return nil
	}
	return start
}
