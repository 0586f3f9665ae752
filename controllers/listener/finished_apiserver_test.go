package listener_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// The Pods of a Job exist until the Job is deleted, and would hold their node ports.
func TestAJobHasMorePodsThanItsClassHasNodePorts(t *testing.T) {
	const first, size, pods = 30000, 8, 20 // Kubernetes allocates such low numbers last
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: fmt.Sprintf("%d-%d", first, first+size-1)},
	})
	running := map[client.ObjectKey]*corev1.Pod{}
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: fmt.Sprintf("job-%d", i)},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "job", Image: "job"}}, RestartPolicy: corev1.RestartPolicyNever,
				Volumes: []corev1.Volume{objects.EphemeralVolume("listener", nil)},
			},
		}
		f.Expect(f.Create(t.Context(), pod)).To(Succeed())
		pvc := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name + "-listener",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}},
			},
			Spec: objects.ClaimSpec(""),
		}
		f.Expect(f.Create(t.Context(), pvc)).To(Succeed())
		f.key.Name = pvc.Name
		f.createListener(func(l *listenersv1alpha1.Listener) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: pvc.Name, UID: pvc.UID}}
		})
		running[f.key] = pod
	}
	f.Eventually(func() int { // Pods finish as soon as they have had their port
		for key, pod := range running {
			l := &listenersv1alpha1.Listener{}
			f.Expect(f.Get(t.Context(), key, l)).To(Succeed())
			if l.Status != nil && l.Status.NodePorts["http"] != 0 {
				pod.Status.Phase = corev1.PodSucceeded
				f.Expect(f.Status().Update(t.Context(), pod)).To(Succeed())
				delete(running, key)
			}
		}
		f.collectGarbage(f.key.Namespace)
		return len(running)
	}).Should(BeZero())
	f.Eventually(func(g Gomega) {
		f.collectGarbage(f.key.Namespace)
		var listeners listenersv1alpha1.ListenerList
		var services corev1.ServiceList
		g.Expect(f.List(t.Context(), &listeners, client.InNamespace(f.key.Namespace))).To(Succeed())
		g.Expect(f.List(t.Context(), &services, client.InNamespace(f.key.Namespace))).To(Succeed())
		g.Expect(len(listeners.Items) + len(services.Items)).To(BeZero())
	}).Should(Succeed())
}
