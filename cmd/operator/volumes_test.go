package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// volumeOf is a Pod with a claim or an inline volume of the class "ports", and the Listener NAME-l.
type volumeOf struct {
	*mover
	inline bool
	pod    *corev1.Pod
}

// create creates the Pod, and its claim, which have what change gives them.
func (v *volumeOf) create(name string, attributes map[string]string, change func(*corev1.Pod)) {
	v.Helper()
	v.pod = v.mover.pod(0)
	v.pod.Name = name
	all := map[string]string{names.AnnotationListenerClass: v.named("ports")}
	maps.Copy(all, attributes)
	v.pod.Spec.Volumes[0] = objects.InlineVolume("l", all)
	if !v.inline {
		v.pod.Spec.Volumes[0] = objects.ClaimVolume("l", name+"-l")
	}
	if change != nil {
		change(v.pod)
	}
	if v.Expect(v.Create(v.Context(), v.pod)).To(Succeed()); v.inline || v.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != name+"-l" {
		return
	}
	pvc := claimOf(v.namespace, name+"-l")
	if certificate := all[names.LabelCertificate]; certificate != "" {
		pvc.Labels = map[string]string{names.LabelCertificate: certificate}
		delete(all, names.LabelCertificate)
	}
	maps.Copy(pvc.Annotations, all)
	if restore := v.pod.Labels[names.LabelRestore]; restore != "" {
		pvc.Labels = map[string]string{names.LabelRestore: restore}
	}
	v.Expect(v.Create(v.Context(), pvc)).To(Succeed())
}

// object returns the Listener of a Pod, or an empty one.
func (v *volumeOf) object(pod string) *listenersv1alpha1.Listener {
	return v.readListener(pod + "-l")
}

// awaitPublished returns what the PodListeners of the Pod say once it has addresses.
func (v *volumeOf) awaitPublished() (published listenersv1alpha1.PodListenersSpec) {
	v.Helper()
	v.Eventually(func() []listenersv1alpha1.IngressAddress {
		published = v.published(v.pod.UID)
		return published.Listeners["l"].IngressAddresses
	}).ShouldNot(BeEmpty())
	return published
}

// event waits for an event with the reason, and returns its note.
func (v *volumeOf) event(reason string) (note string) {
	v.Helper()
	v.Eventually(func() string {
		all := &eventsv1.EventList{}
		v.Expect(v.List(v.Context(), all, client.InNamespace(v.namespace))).To(Succeed())
		for i := range all.Items {
			if e := &all.Items[i]; e.Reason == reason && strings.HasPrefix(e.Regarding.Name, v.pod.Name) {
				note = e.Note
			}
		}
		return note
	}).ShouldNot(BeEmpty())
	return note
}

// after awaits that the operator has seen what was created before: a later Pod has its address.
func (v *volumeOf) after(earlier string) {
	v.Helper()
	later := &volumeOf{mover: v.mover, inline: v.inline}
	later.create(earlier+"-later", nil, nil)
	later.awaitPublished()
}

// owned creates a StatefulSet, and returns what makes it the controller of a Pod.
func (v *volumeOf) owned(name string) func(*corev1.Pod) {
	v.Helper()
	set := v.statefulSet(name)
	v.Expect(v.Create(v.Context(), set)).To(Succeed())
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = controlledBy(set)
		pod.Spec.Hostname = pod.Name
		pod.Labels = map[string]string{appsv1.StatefulSetPodNameLabel: pod.Name, appsv1.PodIndexLabel: "0"}
	}
}

// TestClaimsAndInlineVolumes has the rows of the table of docs/volumes.md that the controllers decide.
func TestClaimsAndInlineVolumes(t *testing.T) {
	rows := map[string]func(t *testing.T, v *volumeOf){
		"restored": func(t *testing.T, v *volumeOf) {
			v.create("restored", nil, nil)
			before := v.awaitPublished().Listeners["l"]
			v.Eventually(func() map[string]string { return v.object("restored").Annotations }).Should(HaveKey(names.AnnotationNumbers))
			backup := strip(v.object("restored"), false)
			for _, o := range []client.Object{v.pod, &corev1.PersistentVolumeClaim{ObjectMeta: v.meta("restored-l")}} {
				v.delete(o)
			}
			v.Eventually(func() string { return string(v.object("restored").UID) }).Should(BeEmpty())
			v.create("restored", nil, func(pod *corev1.Pod) { pod.Labels = map[string]string{names.LabelRestore: "monday"} })
			v.Expect(v.event(listenersv1alpha1.ReasonWaitingForRestore)).To(ContainSubstring("comes from a backup"))
			v.Expect(v.object("restored").UID).To(BeEmpty())
			v.Expect(v.Create(t.Context(), backup)).To(Succeed())
			v.Expect(v.awaitPublished().Listeners["l"].IngressAddresses).To(Equal(before.IngressAddresses))
		},
		"copies": func(t *testing.T, v *volumeOf) {
			v.create("web-0", nil, v.owned("web"))
			before := v.awaitPublished().Listeners["l"]
			v.create("debug", nil, func(pod *corev1.Pod) {
				if pod.Spec.Hostname = "web-0"; !v.inline {
					pod.Spec.Volumes[0] = objects.ClaimVolume("l", "web-0-l")
				}
			})
			copied := v.awaitPublished()
			v.Expect(copied.Listeners["l"]).To(Equal(before))
			v.Expect(copied.Copies).To(Equal([]string{"l"}))
			v.Expect(v.event(listenersv1alpha1.ReasonPodIsCopy)).To(ContainSubstring("requests do not lead to this Pod"))
			v.Expect(v.Get(t.Context(), client.ObjectKeyFromObject(v.pod), v.pod)).To(Succeed())
			v.Expect(v.pod.Labels).To(BeEmpty())
			v.Expect(v.object("debug").UID).To(BeEmpty())
		},
		"fails again and again": func(t *testing.T, v *volumeOf) {
			v.create("fails", nil, nil)
			before := v.awaitPublished()
			uid := v.object("fails").UID
			v.setStatus(v.pod, func() {
				v.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Image: "web", ImageID: "web", RestartCount: 7}}
			})
			v.after("fails")
			v.Expect(v.object("fails").UID).To(Equal(uid))
			v.Expect(v.awaitPublished().Listeners).To(Equal(before.Listeners))
		},
		"rejected by the kubelet": func(_ *testing.T, v *volumeOf) {
			for i := range 5 {
				v.create(fmt.Sprintf("rejected-%d", i), nil, func(pod *corev1.Pod) { pod.Annotations = map[string]string{rejected: "true"} })
			}
			v.Eventually(func() corev1.PodPhase {
				_ = v.Get(v.Context(), client.ObjectKeyFromObject(v.pod), v.pod)
				return v.pod.Status.Phase
			}).Should(Equal(corev1.PodFailed))
			v.after("rejected")
			for i := range 5 {
				if v.inline { // the Listener of a claim is kept for the next Pod of the claim
					v.Expect(v.object(fmt.Sprintf("rejected-%d", i)).UID).To(BeEmpty())
				}
			}
		},
		"scheduling gates": func(_ *testing.T, v *volumeOf) {
			for i := range 5 {
				v.create(fmt.Sprintf("gated-%d", i), nil, func(pod *corev1.Pod) {
					pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.example/queue"}}
				})
			}
			v.after("gated")
			for i := range 5 {
				v.Expect(v.object(fmt.Sprintf("gated-%d", i)).UID).To(BeEmpty())
			}
		},
		"finishes": func(t *testing.T, v *volumeOf) {
			v.create("job", nil, nil)
			v.awaitPublished()
			v.setStatus(v.pod, func() { v.pod.Status.Phase = corev1.PodSucceeded })
			if v.inline {
				v.Eventually(func() string { return string(v.object("job").UID) }).Should(BeEmpty())
				return
			}
			v.after("job")
			v.Expect(v.object("job").UID).NotTo(BeEmpty())
		},
		"quota": func(t *testing.T, v *volumeOf) {
			v.create("before", nil, nil)
			v.awaitPublished()
			quota := &corev1.ResourceQuota{ObjectMeta: v.meta("quota")}
			quota.Spec.Hard = corev1.ResourceList{"count/listeners.listeners.stackable.tech": resource.MustParse("1")}
			v.Expect(v.Create(t.Context(), quota)).To(Succeed())
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
			v.Expect(v.Status().Update(t.Context(), quota)).To(Succeed())
			v.create("beyond", nil, nil)
			v.Expect(v.event(listenersv1alpha1.ReasonQuotaExceeded)).To(ContainSubstring("quota"))
			v.delete(quota)
			v.awaitPublished()
		},
		"change of the class": func(t *testing.T, v *volumeOf) {
			v.create("moves", nil, nil)
			v.awaitPublished()
			if v.inline {
				unchanged := v.pod.DeepCopy()
				v.pod.Spec.Volumes[0].CSI.VolumeAttributes[names.AnnotationListenerClass] = v.named("internal")
				v.Expect(v.Patch(t.Context(), v.pod, client.MergeFrom(unchanged))).To(MatchError(ContainSubstring("pod updates may not change fields")))
				return
			}
			(&runs{mover: v.mover, name: "moves-l"}).annotateClaim(names.AnnotationListenerClass, v.named("internal"))
			v.Eventually(func() string { return v.object("moves").Class() }).Should(Equal(v.named("internal")))
		},
		"ports, labels and certificate": func(_ *testing.T, v *volumeOf) {
			own := v.owned("db")
			v.create("db-0", map[string]string{names.AnnotationPorts: "admin", names.LabelCertificate: "db"}, func(pod *corev1.Pod) {
				own(pod)
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "admin", ContainerPort: 81})
			})
			v.awaitPublished()
			listener := v.object("db-0")
			v.Expect(listener.Spec.Ports).To(ConsistOf(HaveField("Name", "admin")))
			v.Expect(listener.Labels).To(Equal(map[string]string{
				appsv1.StatefulSetPodNameLabel: "db-0", appsv1.PodIndexLabel: "0", names.LabelCertificate: "db",
			}))
		},
	}
	for kind, inline := range map[string]bool{"claim": false, "inline volume": true} {
		for row, test := range rows {
			t.Run(row+" of a Pod with a "+kind, func(t *testing.T) {
				test(t, &volumeOf{mover: newMover(t, map[string]listenersv1alpha1.ListenerClassSpec{
					"ports": {ServiceType: listenersv1alpha1.ServiceTypeNodePort}, "internal": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
				}), inline: inline})
			})
		}
	}
}
