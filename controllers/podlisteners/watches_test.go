package podlisteners

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/names"
)

// A hint may be in the cache before its Pod. Until then, changes of claims and volumes are not mapped to the Pod, so
// the Pod must be reconciled when it is added.
func TestMayNeedPodListeners(t *testing.T) {
	mounting := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{},
	}}}}}
	labelled, deleted := mounting.DeepCopy(), mounting.DeepCopy()
	labelled.Labels = map[string]string{names.PodMountLabel("uid"): "web"}
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	type events struct{ Create, Update, Delete bool }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want events
	}{
		"without claims":            {&corev1.Pod{}, events{}},
		"with a claim":              {&mounting, events{Create: true}},
		"with the label of a mount": {labelled, events{Create: true, Update: true, Delete: true}},
		"being deleted":             {deleted, events{Create: true, Update: true, Delete: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := mayNeedPodListeners()
			got := events{
				Create: p.Create(event.CreateEvent{Object: tc.pod}),
				Update: p.Update(event.UpdateEvent{ObjectOld: tc.pod, ObjectNew: tc.pod}),
				Delete: p.Delete(event.DeleteEvent{Object: tc.pod}),
			}
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
