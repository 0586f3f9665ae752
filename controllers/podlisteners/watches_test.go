package podlisteners

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestPodToMountChanged(t *testing.T) {
	pending := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "listener", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{},
	}}}}}
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := pending.DeepCopy()
		pod.Spec.NodeName = "node-1"
		pod.Labels = map[string]string{names.PodMountLabel("uid"): "web", "app": "web"}
		if change != nil {
			change(pod)
		}
		return pod
	}
	p := podToMountChanged()
	for name, tc := range map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"without claims":      {&corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}}, false},
		"bound to a node":     {with(func(p *corev1.Pod) { p.Spec.NodeName = "" }), with(nil), true},
		"accepted":            {with(nil), with(func(p *corev1.Pod) { p.Status.StartTime = ptr.To(metav1.Now()) }), true},
		"started":             {with(nil), with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		"containers started":  {with(nil), with(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{}} }), false},
		"container restarted": {with(nil), with(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }), true},
		"finished":            {with(nil), with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		"another label":       {with(nil), with(func(p *corev1.Pod) { p.Labels["app"] = "shop" }), false},
		"mount label removed": {with(nil), with(func(p *corev1.Pod) { p.Labels = nil }), true},
		"mount label changed": {with(nil), with(func(p *corev1.Pod) { p.Labels[names.PodMountLabel("uid")] = "shop" }), true},
		// The reconciler has labelled it, and may not have its PodListeners in the cache yet.
		"mount label added": {with(func(p *corev1.Pod) { p.Labels = nil }), with(nil), false},
		"being deleted":     {with(nil), with(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }), true},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "passes", tc.want, p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}))
		})
	}
	// Until a Pod is in the cache, changes of other objects are not mapped to it.
	if !p.Create(event.CreateEvent{Object: pending}) || p.Create(event.CreateEvent{Object: &corev1.Pod{}}) {
		t.Error("added Pods pass if, and only if, they have claims")
	}
	if !p.Delete(event.DeleteEvent{Object: pending}) || p.Delete(event.DeleteEvent{Object: &corev1.Pod{}}) {
		t.Error("deleted Pods pass if, and only if, they have claims")
	}
}
