//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestPodListenersThatSomebodyDeletesAreMadeAgain: with the same addresses, and the Pod does not notice.
func TestPodListenersThatSomebodyDeletesAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := tell(t)
	_, p, own := s.reached()
	deleted := &listenersv1alpha1.PodListeners{}
	s.get(deleted, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.remove(deleted)
	again := mustAwait(s, &listenersv1alpha1.PodListeners{}, deleted.Name, func(l *listenersv1alpha1.PodListeners) bool {
		return l.UID != deleted.UID && len(l.Spec.Listeners["listener"].IngressAddresses) > 0
	})
	if diff := cmp.Diff(deleted.Spec, again.Spec); diff != "" {
		t.Errorf("what the Pod is told (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(wantFiles("listener", own), s.files(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if after := s.running("web"); after.UID != p.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the Pod was restarted")
	}
	s.remove(p)
	mustAwaitGone(s, deleted, client.ObjectKeyFromObject(deleted))
	s.nothingLeft(p)
}
