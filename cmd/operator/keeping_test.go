package main

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// replica is the Pod of a StatefulSet with ephemeral volumes, as the controllers of Kubernetes create it.
type replica struct {
	*mover
	set *appsv1.StatefulSet
	pod *corev1.Pod
}

// ephemeral is how many ephemeral volumes a replica has.
const ephemeral = 4

func newReplica(t *testing.T, classes map[string]listenersv1alpha1.ListenerClassSpec) *replica {
	t.Helper()
	m := newMover(t, classes)
	r := &replica{mover: m, set: m.statefulSet("web")}
	r.Expect(r.Create(t.Context(), r.set)).To(Succeed())
	return r
}

// start creates the Pod, and then a claim for each of its volumes.
func (r *replica) start(class string) {
	r.Helper()
	r.pod = r.mover.pod(0)
	r.pod.Name, r.pod.GenerateName, r.pod.Spec.Volumes = "web-0", "web-", nil
	r.pod.Labels = map[string]string{appsv1.StatefulSetPodNameLabel: r.pod.Name}
	r.pod.OwnerReferences = controlledBy(r.set)
	annotations := map[string]string{names.AnnotationListenerClass: r.named(class)}
	for i := range ephemeral {
		r.pod.Spec.Volumes = append(r.pod.Spec.Volumes, objects.EphemeralVolume(fmt.Sprintf("port-%d", i), annotations))
	}
	r.Expect(r.Create(r.Context(), r.pod)).To(Succeed())
	for i := range ephemeral {
		r.Expect(r.Create(r.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: r.claimName(i), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		}, Spec: objects.ClaimSpec("")})).To(Succeed())
	}
	r.Eventually(func() int {
		complete := 0
		for _, entry := range r.published(r.pod.UID).Listeners {
			complete += len(entry.IngressAddresses)
		}
		return complete
	}).Should(Equal(ephemeral))
}

func (r *replica) claimName(i int) string { return fmt.Sprintf("web-0-port-%d", i) }

// stop deletes the Pod, waits until Kubernetes has deleted claims and volumes, and then collects garbage. So the claims
// of the next Pod come late.
func (r *replica) stop() {
	r.Helper()
	r.delete(r.pod)
	c := &cluster{Client: r.Client, namespace: r.namespace}
	r.Eventually(func() (left int) {
		w, err := observe(r.Context(), r.Client, r.namespace)
		r.Expect(err).NotTo(HaveOccurred())
		return len(w.pods) + len(w.claims) + len(w.volumes)
	}).Should(BeZero())
	w, err := observe(r.Context(), r.Client, r.namespace)
	r.Expect(err).NotTo(HaveOccurred())
	c.collect(r.Context(), w)
}

// exposed returns the uid of each Listener, with the types of its Service and its ports.
func (r *replica) exposed() (all map[string]string) {
	r.Helper()
	all = map[string]string{}
	w, err := observe(r.Context(), r.Client, r.namespace)
	r.Expect(err).NotTo(HaveOccurred())
	for name, l := range w.listeners {
		service := ptr.Deref(w.services[name], corev1.Service{})
		all[name] = fmt.Sprintf("%s %s", l.UID, service.Spec.Type)
		for _, p := range service.Spec.Ports {
			all[name] += fmt.Sprintf(" %d", p.NodePort)
		}
	}
	return all
}

// TestAPodWithEphemeralClaimsKeepsItsNodePorts whenever its claims are created again, also if the operator restarts
// meanwhile. With its StatefulSet, the Listeners are deleted.
func TestAPodWithEphemeralClaimsKeepsItsNodePorts(t *testing.T) {
	r := newReplica(t, nodePortClass())
	r.start("ports")
	before := r.exposed()
	r.Expect(before).To(HaveLen(ephemeral))
	for i := range 6 {
		r.stop()
		if i == 3 {
			r.restart()
		}
		r.start("ports")
		r.Expect(r.exposed()).To(Equal(before))
	}
	r.Expect(r.Delete(t.Context(), r.set)).To(Succeed())
	r.delete(r.pod)
	r.Eventually(r.exposed).Should(BeEmpty())
}

// The earlier Pod had the same Listener, with the class of the earlier template.
func TestANewPodHasTheClassOfItsTemplate(t *testing.T) {
	r := newReplica(t, map[string]listenersv1alpha1.ListenerClassSpec{
		"ports": {ServiceType: listenersv1alpha1.ServiceTypeNodePort}, "internal": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	})
	r.start("ports")
	before := r.readListener(r.claimName(ephemeral - 1)).UID
	r.Expect(before).NotTo(BeEmpty())
	r.stop()
	r.start("internal")
	r.Expect(r.readListener(r.claimName(ephemeral - 1)).UID).To(Equal(before))
	for name, exposed := range r.exposed() {
		r.Expect(exposed).To(HaveSuffix(" ClusterIP 0"), name)
	}
	for volume, start := range r.published(r.pod.UID).StartAddresses {
		r.Expect(start).To(HaveLen(1), volume)
		r.Expect(start[0].Ports).To(Equal(map[string]int32{"http": 80}), volume)
	}
}

// keeper is a Pod of a StatefulSet with an inline volume whose Listener is kept.
type keeper struct {
	*runs
	set *appsv1.StatefulSet
}

func newKeeper(m *mover, set, volume string) *keeper {
	k := &keeper{&runs{mover: m, name: set}, m.statefulSet(set)}
	k.pod = k.mover.pod(0)
	k.pod.Spec.Volumes[0] = objects.InlineVolume(volume, map[string]string{
		names.AnnotationListenerClass: k.named("ports"), names.AttributeKeep: "true",
	})
	return k
}

// createSet creates the StatefulSet, which something may control.
func (k *keeper) createSet(above ...metav1.OwnerReference) {
	k.Helper()
	k.set.ResourceVersion, k.set.UID, k.set.OwnerReferences = "", "", above
	k.Expect(k.Create(k.Context(), k.set)).To(Succeed())
}

// run creates the Pod.
func (k *keeper) run() {
	k.Helper()
	k.pod.ObjectMeta = k.meta(k.name + "-0")
	k.pod.GenerateName, k.pod.Labels = k.name+"-", map[string]string{appsv1.StatefulSetPodNameLabel: k.pod.Name}
	k.pod.OwnerReferences = controlledBy(k.set)
	k.pod.Spec.NodeName = ""
	k.Expect(k.Create(k.Context(), k.pod)).To(Succeed())
}

// end deletes the Pod, and waits until the garbage collector has looked.
func (k *keeper) end() {
	k.Helper()
	k.delete(k.pod)
	k.Eventually(func() []metav1.OwnerReference { return k.listener().OwnerReferences }).ShouldNot(ContainElement(HaveField("UID", k.pod.UID)))
}

// orphan deletes the StatefulSet without its Pod, as the garbage collector does for --cascade=orphan.
func (k *keeper) orphan() {
	k.Helper()
	for _, o := range []client.Object{&corev1.Pod{ObjectMeta: k.meta(k.pod.Name)}, k.listener()} {
		k.change(o, func() {
			o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == k.set.UID }))
		})
	}
	k.Expect(k.Delete(k.Context(), k.set)).To(Succeed())
}

func (k *keeper) listener() *listenersv1alpha1.Listener {
	return k.readListener(k.pod.Name + "-" + k.pod.Spec.Volumes[0].Name)
}

// ports returns the uid of the Listener and the ports in the Pod's PodListeners.
func (k *keeper) ports() string {
	entry := k.published(k.pod.UID).Listeners[k.pod.Spec.Volumes[0].Name]
	if len(entry.IngressAddresses) == 0 {
		return ""
	}
	return fmt.Sprint(k.listener().UID, entry.IngressAddresses[0].Ports)
}

func nodePortClass() map[string]listenersv1alpha1.ListenerClassSpec {
	return map[string]listenersv1alpha1.ListenerClassSpec{"ports": {ServiceType: listenersv1alpha1.ServiceTypeNodePort}}
}

// A StatefulSet is deleted without its Pod, which ends before there is another StatefulSet. The operator may restart.
func TestAPodThatEndsBetweenTwoStatefulSetsKeepsItsNodePorts(t *testing.T) {
	k := newKeeper(newMover(t, nodePortClass()), "web", "l")
	k.createSet()
	k.run()
	k.Eventually(k.ports).ShouldNot(BeEmpty())
	before := k.ports()
	k.orphan()
	k.Eventually(func() []metav1.OwnerReference { return k.listener().OwnerReferences }).Should(BeEmpty())
	k.Expect(k.ports()).To(Equal(before))
	k.restart()
	k.end()
	k.createSet()
	k.run()
	k.Eventually(k.ports).Should(Equal(before))
	k.Eventually(func() []metav1.OwnerReference { return k.listener().OwnerReferences }).Should(ConsistOf(
		HaveField("UID", k.set.UID), HaveField("UID", k.pod.UID)))
}

// A product's operator deletes the StatefulSet with its Pod while the product hibernates, and creates it again.
func TestWhatControlsAStatefulSetKeepsTheNodePorts(t *testing.T) {
	m := newMover(t, nodePortClass())
	product := &corev1.ConfigMap{ObjectMeta: m.meta("product")}
	m.Expect(m.Create(t.Context(), product)).To(Succeed())
	k := newKeeper(m, "web", "l")
	above := *metav1.NewControllerRef(product, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	k.createSet(above)
	k.run()
	k.Eventually(k.ports).ShouldNot(BeEmpty())
	before := k.ports()
	k.Expect(k.Delete(t.Context(), k.set)).To(Succeed())
	k.end()
	k.Eventually(func() []metav1.OwnerReference { return k.listener().OwnerReferences }).Should(ConsistOf(HaveField("UID", product.UID)))
	k.createSet(above)
	k.run()
	k.Eventually(k.ports).Should(Equal(before))

	k.Expect(k.Delete(t.Context(), k.set)).To(Succeed())
	k.delete(k.pod)
	k.Expect(k.Delete(t.Context(), product)).To(Succeed())
	k.Eventually(func() types.UID { return k.listener().UID }).Should(BeEmpty())
}

// The volume a-0-l of web-0 and the volume l of web-0-a-0 both need Listener web-0-a-0-l.
func TestAListenerThatIsKeptForAPodIsGivenToNoOther(t *testing.T) {
	m := newMover(t, nodePortClass())
	first, second := newKeeper(m, "web", "a-0-l"), newKeeper(m, "web-0-a", "l")
	first.createSet()
	second.createSet()
	first.run()
	first.Eventually(first.ports).ShouldNot(BeEmpty())
	before := first.ports()
	first.end()
	second.reason = listenersv1alpha1.ReasonForeignListener
	second.run()
	second.Eventually(second.note).Should(ContainSubstring("Listener web-0-a-0-l exists but is kept for volume a-0-l of Pod web-0"))
	second.Expect(second.ports()).To(BeEmpty())
	first.run()
	first.Eventually(first.ports).Should(Equal(before))
	second.Expect(second.ports()).To(BeEmpty())
}
