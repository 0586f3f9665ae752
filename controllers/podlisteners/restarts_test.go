package podlisteners_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Kubernetes mounts the volumes again when a container restarts, also with a subPath, whose files it does not update.
func TestAContainerThatRestartsHasReadItsAddress(t *testing.T) {
	type step struct {
		restarted []string // containers
		address   string   // that the Listener gets
		operator  bool     // restarts
		outdated  bool
	}
	const first, second, third = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	for name, steps := range map[string][]step{
		"after the change":  {{address: first}, {address: second, outdated: true}, {restarted: []string{"init", "web", "helper"}}},
		"before the change": {{address: first}, {restarted: []string{"init", "web", "helper"}}, {address: second, outdated: true}},
		"before the next change": {
			{address: first}, {address: second, outdated: true}, {restarted: []string{"init", "web", "helper"}}, {address: third, outdated: true},
			{restarted: []string{"init", "web", "helper"}},
		},
		"and others do not": {
			{address: first}, {address: second, outdated: true}, {restarted: []string{"web"}, outdated: true}, {restarted: []string{"helper"}, outdated: true},
			{restarted: []string{"init"}},
		},
		"that mounts nothing": {{address: first}, {address: second, outdated: true}, {restarted: []string{"other"}, outdated: true}},
		"while the operator does not know since when": {
			{address: first}, {address: second, outdated: true}, {restarted: []string{"init", "web", "helper"}, operator: true, outdated: true},
			{restarted: []string{"init", "web", "helper"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.loadBalancer()
			mounts := []corev1.VolumeMount{{Name: "listener", SubPath: "default-address"}}
			w.Pod.Spec.Containers = []corev1.Container{{Name: "web", VolumeMounts: mounts}, {Name: "helper", VolumeMounts: mounts}, {Name: "other"}}
			w.Pod.Spec.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: mounts}}
			w.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}, {Name: "helper", RestartCount: 4}, {Name: "other"}}
			w.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init"}}
			c := w.start(t, interceptor.Funcs{})
			for i, s := range steps {
				pod, listener := stored(t, c.client, w.Pod), stored(t, c.client, w.Listener)
				for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
					for i := range statuses {
						if slices.Contains(s.restarted, statuses[i].Name) {
							statuses[i].RestartCount++
						}
					}
				}
				c.must(c.client.Status().Update(t.Context(), pod))
				if s.address != "" {
					listener.Status.IngressAddresses = at(s.address)
					c.must(c.client.Status().Update(t.Context(), listener))
				}
				if s.operator {
					c.Reconciler = newReconciler(c.client, events.NewFakeRecorder(10))
					c.Receive(t.Context(), w.Pod)
				}
				c.reconcile()
				if outdated := len(published(t, c.client).Outdated()) > 0; outdated != s.outdated {
					t.Fatalf("step %d: outdated: %t", i, outdated)
				}
			}
		})
	}
}
