//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// TestOnlyListedPortsAreReachedFromOutside: the class lists ports, and a claim restricts them further. No other port of
// the Pod is open to clients outside, and the files have none. An event names a port that the Pod does not have.
func TestOnlyListedPortsAreReachedFromOutside(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.Ports = []string{"kafka", "http"}
	class := s.createClass(spec)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	checkOnlyHTTP(s, s.awaitReady("web"), "web-listener")

	annotations := byClass(class.Name)
	annotations[names.AnnotationPorts] = "http, admin"
	s.create(pod("typo", map[string]map[string]string{"listener": annotations}))
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "typo-listener", listenersv1alpha1.ReasonInvalidClaim, `"admin"`, "http, echo"))

	// Without a list of the class, the claim decides.
	s.patch(class, func() { class.Spec.Ports = nil })
	annotations[names.AnnotationPorts] = "http"
	s.create(pod("claimed", map[string]map[string]string{"listener": annotations}))
	checkOnlyHTTP(s, s.awaitReady("claimed"), "claimed-listener")
	mustAwait(s, &corev1.Service{}, "web-listener", func(service *corev1.Service) bool { return len(service.Spec.Ports) == 2 })
}

// checkOnlyHTTP checks that clients outside reach only the port http of a Pod.
func checkOnlyHTTP(s *scenario, p *corev1.Pod, listener string) {
	s.Helper()
	address := s.awaitPodListener(p, "listener").IngressAddresses[0]
	service := &corev1.Service{}
	s.get(service, s.key(listener))
	if want := map[string]int32{"http": nodePort(service, "http")}; !cmp.Equal(want, address.Ports) || len(service.Spec.Ports) != 1 {
		s.Errorf("%s has the ports %v, and its Service %+v", p.Name, address.Ports, service.Spec.Ports)
	}
	s.awaitAnswer(address, p.Name)
	s.awaitFilesAt(address, address)
}
