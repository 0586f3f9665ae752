package podlisteners_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// kubectl debug --copy-to creates a Pod without a controller, with the claims of the original, and with its labels if
// asked to.
func TestCopyOfAPodGetsFilesButNoRequests(t *testing.T) {
	controller := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "sts-uid", Controller: ptr.To(true)}}
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
			w := newWorld()
			w.Listener.Name = w.Claim.Name
			w.Listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: w.Claim.Name, UID: w.Claim.UID}}
			w.Volume.Spec.CSI.VolumeAttributes = map[string]string{names.AnnotationListenerClass: "public"}
			original := w.Pod.DeepCopy()
			original.Name, original.UID = "original", "original-uid"
			label := names.PodMountLabel(w.Listener.UID)
			w.Pod.Labels = map[string]string{"app": "web", label: w.Listener.Name}
			tc.change(w.World, original)
			if w.Listener.OwnerReferences == nil { // of a user
				w.Volume.Spec.CSI.VolumeAttributes = map[string]string{names.AnnotationListenerName: w.Listener.Name}
			}
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(original)...)
			recorder := events.NewFakeRecorder(10)
			r := newReconciler(c, recorder)
			r.Receive(t.Context(), w.Pod)
			for range 2 {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey}); err != nil {
					t.Fatal(err)
				}
			}
			pod, published, listener, pv := &corev1.Pod{}, &listenersv1alpha1.PodListeners{}, &listenersv1alpha1.Listener{}, &corev1.PersistentVolume{}
			for key, o := range map[client.ObjectKey]client.Object{
				client.ObjectKeyFromObject(w.Pod): pod, objectKey: published, client.ObjectKeyFromObject(w.Listener): listener, {Name: w.Volume.Name}: pv,
			} {
				if err := c.Get(t.Context(), key, o); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]string{"app": "web", label: w.Listener.Name}
			if tc.copied {
				delete(want, label)
			}
			if diff := cmp.Diff(want, pod.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if tc.copied && (len(listener.Spec.Ports) > 0 || pv.Annotations[names.AnnotationNode] != "") {
				t.Errorf("the copy has changed ports %v, or the node of the volume: %v", listener.Spec.Ports, pv.Annotations)
			}
			if diff := cmp.Diff(nodeAddr, published.Spec.Listeners["listener"].IngressAddresses); diff != "" && tc.copied {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			close(recorder.Events)
			got := 0
			for e := range recorder.Events {
				if strings.Contains(e, listenersv1alpha1.ReasonPodIsCopy) {
					got++
				}
			}
			if got != map[bool]int{true: 1}[tc.copied] {
				t.Errorf("%d events", got)
			}
		})
	}
}
