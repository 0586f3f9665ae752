//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestAPinnedVolumeBelongsToTheNodeOfItsFirstPod: a Pod on another node cannot mount it, and an event says why. The
// first Pod keeps its address.
func TestAPinnedVolumeBelongsToTheNodeOfItsFirstPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared", Annotations: byClass(class.Name)}, Spec: claimSpec()})
	shared := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}
	first := podWith("first", shared)
	first.Spec.NodeSelector = map[string]string{corev1.LabelHostname: testbed.NodeName(1)}
	s.create(first)
	own := s.awaitPodListener(s.awaitReady("first"), "listener").IngressAddresses[0]
	s.awaitAnswer(own, "first")

	second := podWith("second", shared)
	second.Spec.NodeName = testbed.NodeName(2) // past the scheduler, which knows better
	s.create(second)
	s.awaitEvent("Pod", "second", listenersv1alpha1.ReasonWaitingForAddress, "is pinned to node "+testbed.NodeName(1))
	s.remove(second)
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(second))
	s.awaitAnswer(own, "first")
	if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestANamespaceCanBeDeletedWhileVolumesAreMounted: Pods whose mounts wait for an address do not delay the deletion.
func TestANamespaceCanBeDeletedWhileVolumesAreMounted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(loadBalanced())
	for _, name := range []string{"a", "b", "c"} {
		s.create(pod(name, map[string]map[string]string{"listener": byClass(class.Name)}))
	}
	for _, name := range []string{"a", "b", "c"} {
		s.awaitEvent("Pod", name, listenersv1alpha1.ReasonWaitingForAddress)
	}
	namespace := &corev1.Namespace{}
	s.get(namespace, client.ObjectKey{Name: s.namespace})
	s.remove(namespace)
	mustAwaitDeleted(s, namespace, client.ObjectKeyFromObject(namespace))
}
