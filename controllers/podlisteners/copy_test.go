package podlisteners_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// kubectl debug --copy-to creates a Pod without a controller, with the claims of the original, and with its labels if
// asked to.
func TestCopyOfAPodGetsFilesButNoRequests(t *testing.T) {
	controller := []metav1.OwnerReference{statefulSet}
	for name, tc := range map[string]struct {
		change func(w *objects.World, original *corev1.Pod)
		copied bool
	}{
		"of a StatefulSet": {change: func(w *objects.World, original *corev1.Pod) {
			w.Listener.Labels, original.OwnerReferences = map[string]string{appsv1.StatefulSetPodNameLabel: original.Name}, controller
		}, copied: true},
		"of a StatefulSet, between two of its Pods": {change: func(w *objects.World, original *corev1.Pod) {
			w.Listener.Labels, original.OwnerReferences = map[string]string{appsv1.StatefulSetPodNameLabel: "another"}, nil
		}, copied: true},
		"of another controller": {change: func(_ *objects.World, original *corev1.Pod) { original.OwnerReferences = controller }, copied: true},
		"of a Pod that has finished": {change: func(_ *objects.World, original *corev1.Pod) {
			original.OwnerReferences, original.Status.Phase = controller, corev1.PodFailed
		}},
		"of a Pod without a controller": {change: func(*objects.World, *corev1.Pod) {}},
		"with a controller of its own": {change: func(w *objects.World, original *corev1.Pod) {
			original.OwnerReferences, w.Pod.OwnerReferences = controller, controller
		}},
		"that shares a Listener": {change: func(w *objects.World, original *corev1.Pod) {
			w.Listener.OwnerReferences, original.OwnerReferences = nil, controller
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld((*world).withOwnListener)
			original := w.Pod.DeepCopy()
			original.Name, original.UID = "original", "original-uid"
			label := names.PodMountLabel(w.Listener.UID)
			w.Pod.Labels = map[string]string{"app": "web", label: w.Listener.Name}
			tc.change(w.World, original)
			if w.Listener.OwnerReferences == nil { // of a user
				w.Volume.Spec.CSI.VolumeAttributes = byName(w.Listener.Name)
			}
			c := w.start(t, interceptor.Funcs{}, original)
			for range 2 {
				c.reconcile()
			}
			pod, listener, pv := stored(t, c.client, w.Pod), stored(t, c.client, w.Listener), stored(t, c.client, w.Volume)
			want := map[string]string{"app": "web", label: w.Listener.Name}
			if tc.copied {
				delete(want, label)
			}
			check.Equal(t, "labels", want, pod.Labels)
			if tc.copied && (len(listener.Spec.Ports) > 0 || pv.Annotations[names.AnnotationNode] != "") {
				t.Errorf("the copy has changed ports %v, or the node of the volume: %v", listener.Spec.Ports, pv.Annotations)
			}
			if diff := cmp.Diff(nodeAddr, published(t, c.client).Listeners["listener"].IngressAddresses); diff != "" && tc.copied {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			all := strings.Join(drain(c.recorded), "\n")
			check.Equal(t, "number of events", map[bool]int{true: 1}[tc.copied], strings.Count(all, listenersv1alpha1.ReasonPodIsCopy))
		})
	}
}

// The copy has no claim in common with the original, but what only the original can have been given.
func TestCopyOfAPodWithAnInlineVolumeHasNoListener(t *testing.T) {
	controller := []metav1.OwnerReference{statefulSet}
	token := corev1.Volume{Name: "kube-api-access-x7k2p"}
	for name, tc := range map[string]struct {
		change func(w *world, original *corev1.Pod)
		copied bool
	}{
		"by the volume of its token": {func(w *world, original *corev1.Pod) {
			w.Pod.Spec.Volumes, original.Spec.Volumes = append(w.Pod.Spec.Volumes, token), append(original.Spec.Volumes, token)
		}, true},
		"by its host name": {func(w *world, original *corev1.Pod) { w.Pod.Spec.Hostname, original.Spec.Hostname = "web-0", "web-0" }, true},
		"after the original": {func(w *world, original *corev1.Pod) {
			w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "web-0-listener"})
			w.existing.Spec.Copies, original.Spec.Volumes = []string{"listener"}, nil
		}, true},
		"not by anything in common": {func(*world, *corev1.Pod) {}, false},
		"not with a controller of its own": {func(w *world, original *corev1.Pod) {
			w.Pod.Spec.Hostname, original.Spec.Hostname, w.Pod.OwnerReferences = "web-0", "web-0", controller
		}, false},
		"not with addresses of its own": {func(w *world, original *corev1.Pod) {
			w.Pod.Spec.Hostname, original.Spec.Hostname = "web-0", "web-0"
			w.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "debug-listener"})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.inline(byClass("public"))
			w.keep()
			original := w.Pod.DeepCopy()
			original.UID, original.OwnerReferences = "original-uid", controller
			ofInline(w.Listener).Annotations[names.AnnotationKeptFor] = "web-0"
			w.Pod.Name, w.Pod.Labels = "debug", map[string]string{names.PodMountLabel(w.Listener.UID): "web-0-listener"}
			tc.change(w, original)
			if !tc.copied {
				delete(w.Pod.Spec.Volumes[0].CSI.VolumeAttributes, names.AttributeKeep)
			}
			if w.existing != nil {
				w.existing.OwnerReferences[0].Name = w.Pod.Name
			}
			c := w.start(t, interceptor.Funcs{}, original)
			c.reconcile()
			var listeners listenersv1alpha1.ListenerList
			if err := c.client.List(t.Context(), &listeners); err != nil || (len(listeners.Items) == 1) != tc.copied {
				t.Errorf("Listeners %+v, error %v", listeners.Items, err)
			}
			check.Equal(t, "owners", w.Listener.OwnerReferences, listenerNamed(t, c.client, "web-0-listener").OwnerReferences)
			if labels := stored(t, c.client, w.Pod).Labels; tc.copied && len(labels) > 0 {
				t.Errorf("labels %v", labels)
			}
			if got := published(t, c.client); tc.copied {
				want := listenersv1alpha1.PodListener{Scope: "Node", IngressAddresses: nodeAddr, ListenerName: "web-0-listener"}
				check.Equal(t, "PodListeners", want, got.Listeners["listener"])
				check.Equal(t, "copies", []string{"listener"}, got.Copies)
			}
			if all := strings.Join(drain(c.recorded), "\n"); strings.Contains(all, listenersv1alpha1.ReasonPodIsCopy) != tc.copied {
				t.Errorf("events %q", all)
			}
		})
	}
}
