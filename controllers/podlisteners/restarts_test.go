package podlisteners_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
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
		"after the change": {{address: first}, {address: second, outdated: true}, {restarted: []string{"init", "web", "helper"}}},
		"before the change": {
			{address: first}, {restarted: []string{"init", "web", "helper"}}, {address: second, outdated: true},
		},
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
			w.Class.Spec.ServiceType, w.Listener.Status.NodePorts = listenersv1alpha1.ServiceTypeLoadBalancer, nil
			mounts := []corev1.VolumeMount{{Name: "listener", SubPath: "default-address"}}
			w.Pod.Spec.Containers = []corev1.Container{{Name: "web", VolumeMounts: mounts}, {Name: "helper", VolumeMounts: mounts}, {Name: "other"}}
			w.Pod.Spec.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: mounts}}
			w.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}, {Name: "helper", RestartCount: 4}, {Name: "other"}}
			w.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init"}}
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects()...)
			r := newReconciler(c, events.NewFakeRecorder(10))
			r.Receive(t.Context(), w.Pod)
			for i, s := range steps {
				pod, listener, object := &corev1.Pod{}, &listenersv1alpha1.Listener{}, &listenersv1alpha1.PodListeners{}
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), pod))
				must(c.Get(t.Context(), client.ObjectKeyFromObject(w.Listener), listener))
				for _, name := range s.restarted {
					for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
						for i := range statuses {
							if statuses[i].Name == name {
								statuses[i].RestartCount++
							}
						}
					}
				}
				must(c.Status().Update(t.Context(), pod))
				if s.address != "" {
					listener.Status.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: s.address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: portMap}}
					must(c.Status().Update(t.Context(), listener))
				}
				if s.operator {
					r = newReconciler(c, events.NewFakeRecorder(10))
					r.Receive(t.Context(), w.Pod)
				}
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey})
				must(err)
				must(c.Get(t.Context(), objectKey, object))
				if outdated := len(object.Spec.Outdated()) > 0; outdated != s.outdated {
					t.Fatalf("step %d: outdated: %t", i, outdated)
				}
			}
		})
	}
}
