package listener

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestListenerOfAFinishedPodIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*state, *corev1.Pod, *corev1.PersistentVolumeClaim)
		kept   bool
	}{
		"that has succeeded": {func(*state, *corev1.Pod, *corev1.PersistentVolumeClaim) {}, false},
		"that its node has rejected, while the Listener was created": {func(s *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) {
			pod.Status, s.service = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}, nil
		}, false},
		"that runs": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) { pod.Status.Phase = corev1.PodRunning }, true},
		"that is being deleted, and maybe replaced": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) { terminating(pod) }, true},
		"of a StatefulSet, which replaces it": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) {
			pod.Labels = map[string]string{appsv1.StatefulSetPodNameLabel: pod.Name}
		}, true},
		"with a claim that other Pods may mount": {func(_ *state, _ *corev1.Pod, pvc *corev1.PersistentVolumeClaim) { pvc.OwnerReferences = nil }, true},
		"while another one mounts the claim": {func(s *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) {
			s.with(newLabelledPod("other", "node-1", key.Name, corev1.PodRunning))
		}, true},
		"which a user has created": {func(s *state, _ *corev1.Pod, _ *corev1.PersistentVolumeClaim) { s.listener.OwnerReferences = nil }, true},
		"with an inline volume": {func(s *state, pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) {
			pvc.OwnerReferences = nil
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
			s.listener.Annotations = map[string]string{names.AnnotationClaim: key.Name}
		}, false},
		"of an earlier claim": {func(_ *state, _ *corev1.Pod, pvc *corev1.PersistentVolumeClaim) { pvc.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, pvc := newState(nodePort), newClaim(key.Name, "job")
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: pvc.Name, UID: pvc.UID}}
			pod := newLabelledPod("job", "node-1", key.Name, corev1.PodSucceeded)
			tc.change(s, pod, pvc)
			o := s.with(pod, pvc).operator(t, interceptor.Funcs{})
			o.reconcileAfter(0)
			if kept := find[listenersv1alpha1.Listener](o, key.Name) != nil; kept != tc.kept {
				t.Errorf("the Listener exists: %v", kept)
			}
			if s.service == nil && find[corev1.Service](o, key.Name) != nil {
				t.Error("a Service was created")
			}
		})
	}
}
