package podlisteners

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/names"
)

// A hint may come before its Pod is in the cache. Claims and volumes that change in between lead to no Pod then, so the
// Pod itself has to.
func TestWhichPodsAreLookedAt(t *testing.T) {
	mounting := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{},
	}}}}}
	labelled, leaving := mounting.DeepCopy(), mounting.DeepCopy()
	labelled.Labels = map[string]string{names.PodMountLabel("uid"): "web"}
	leaving.DeletionTimestamp = ptr.To(metav1.Now())
	type events struct{ Create, Update, Delete bool }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want events
	}{
		"mounts nothing":       {&corev1.Pod{}, events{}},
		"may mount a Listener": {&mounting, events{Create: true}},
		"mounts a Listener":    {labelled, events{Create: true, Update: true, Delete: true}},
		"goes away":            {leaving, events{Create: true, Update: true, Delete: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := mounted()
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
