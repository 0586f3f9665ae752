//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestDeletedPodListenersAreRecreated: with the same addresses, and without affecting the Pod.
func TestDeletedPodListenersAreRecreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, own := s.createReachablePod()
	deleted := &listenersv1alpha1.PodListeners{}
	s.get(deleted, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.remove(deleted)
	recreated := mustAwait(s, &listenersv1alpha1.PodListeners{}, deleted.Name, func(l *listenersv1alpha1.PodListeners) bool {
		return l.UID != deleted.UID && len(l.Spec.Listeners["listener"].IngressAddresses) > 0
	})
	if diff := cmp.Diff(deleted.Spec, recreated.Spec); diff != "" {
		t.Errorf("spec of the PodListeners (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if after := s.awaitReady("web"); after.UID != p.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the Pod was restarted")
	}
	s.remove(p)
	mustAwaitDeleted(s, deleted, client.ObjectKeyFromObject(deleted))
	s.awaitPodDirRemoved(p)
}
