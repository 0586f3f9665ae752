package podlisteners_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// The node affinity of a volume is immutable, and an address that was published must not become wrong. So a volume that
// a Pod mounts stays as it is, pinned or not, whatever its class becomes. The preferred type of address shows that the
// controller has seen the change.
func TestAVolumeInUseIsKeptWhenItsClassIsChangedToPinOrNotToPin(t *testing.T) {
	const host, ip = "node-1.example", "192.0.2.1"
	for name, pinned := range map[string]bool{"pinned": true, "not pinned": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := &boundPod{T: t, client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
			apiserver.StartManager(t, nil, "operators", setup)
			class := &listenersv1alpha1.ListenerClass{
				ObjectMeta: metav1.ObjectMeta{Name: b.namespace},
				Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: pinned},
			}
			b.create(class)
			node := objects.Node(b.namespace)
			b.create(node)
			node.Status.Addresses = []corev1.NodeAddress{objects.InternalIP(ip), {Type: corev1.NodeHostName, Address: host}}
			b.updateStatus(node)
			pvc := b.claim("own", names.AnnotationListenerClass, class.Name)
			pod := b.pod("own")
			listener := b.ownListener(pvc, pod)
			b.expose(listener, 30081)

			volume := func() *corev1.PersistentVolume {
				t.Helper()
				pv := &corev1.PersistentVolume{}
				g.Expect(b.client.Get(t.Context(), client.ObjectKey{Name: pvc.Spec.VolumeName}, pv)).To(Succeed())
				return pv
			}
			published := func(g Gomega) string {
				var object listenersv1alpha1.PodListeners
				key := types.NamespacedName{Namespace: b.namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
				g.Expect(b.client.Get(t.Context(), key, &object)).To(Succeed())
				addresses := object.Spec.Listeners["own"].IngressAddresses
				g.Expect(addresses).To(HaveLen(1))
				return addresses[0].Address
			}
			g.Eventually(published).WithTimeout(apiserver.Timeout).Should(Equal(ip))
			before := volume()
			g.Expect(len(claim.PinnedNodes(before)) > 0).To(Equal(pinned))
			g.Expect(claim.VolumeNodes(before)).To(Equal([]string{node.Name}))
			for _, change := range []struct {
				pins bool
				kind listenersv1alpha1.PreferredAddressType
				want string
			}{{!pinned, listenersv1alpha1.PreferredAddressTypeHostname, host}, {pinned, listenersv1alpha1.PreferredAddressTypeIP, ip}} {
				unchanged := class.DeepCopy()
				class.Spec.PinnedNodePorts, class.Spec.PreferredAddressType = change.pins, change.kind
				g.Expect(b.client.Patch(t.Context(), class, client.MergeFrom(unchanged))).To(Succeed())
				g.Eventually(published).WithTimeout(apiserver.Timeout).Should(Equal(change.want))
				g.Expect(volume()).To(Equal(before))
			}
		})
	}
}

// The class that a claim names is followed as soon as it can be used, whatever keeps it from that, and whoever changes
// the Listener.
func TestTheClassThatAClaimNamesIsFollowedWhileItsPodRuns(t *testing.T) {
	g := NewWithT(t)
	b := &boundPod{T: t, client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	class := func(name string) *listenersv1alpha1.ListenerClass {
		return &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + name},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		}
	}
	first, late, private := class("first"), class("late"), class("private")
	private.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"test.example/admitted": b.namespace}}}
	b.create(first)
	b.create(private)
	node := objects.Node(b.namespace)
	b.create(node)
	pvc := b.claim("own", names.AnnotationListenerClass, first.Name)
	pod := b.pod("own")
	listener := b.ownListener(pvc, pod)
	b.expose(listener, 30081)
	patch := func(o client.Object, change func()) {
		t.Helper()
		unchanged := o.DeepCopyObject().(client.Object)
		change()
		g.Expect(b.client.Patch(t.Context(), o, client.MergeFrom(unchanged))).To(Succeed())
	}
	awaitClass := func(want *listenersv1alpha1.ListenerClass) {
		t.Helper()
		g.Eventually(func(g Gomega) string {
			g.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(listener), listener)).To(Succeed())
			return listener.Class()
		}).WithTimeout(apiserver.Timeout).Should(Equal(want.Name))
	}
	awaitEvent := func(reason string) {
		t.Helper()
		g.Eventually(func(g Gomega) (found []string) {
			var list eventsv1.EventList
			g.Expect(b.client.List(t.Context(), &list, client.InNamespace(b.namespace))).To(Succeed())
			for i := range list.Items {
				found = append(found, list.Items[i].Reason)
			}
			return found
		}).WithTimeout(apiserver.Timeout).Should(ContainElement(reason))
	}
	uid := listener.UID
	patch(pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = late.Name })
	awaitEvent(listenersv1alpha1.ReasonClassNotFound)
	awaitClass(first)
	b.create(late)
	awaitClass(late)

	patch(listener, func() { listener.Spec.ClassName = &first.Name })
	awaitClass(late)
	awaitEvent(listenersv1alpha1.ReasonClassOfClaim)

	patch(pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = private.Name })
	awaitEvent(listenersv1alpha1.ReasonNamespaceNotAllowed)
	awaitClass(late)
	namespace := &corev1.Namespace{}
	g.Expect(b.client.Get(t.Context(), client.ObjectKey{Name: b.namespace}, namespace)).To(Succeed())
	patch(namespace, func() { metav1.SetMetaDataLabel(&namespace.ObjectMeta, "test.example/admitted", b.namespace) })
	awaitClass(private)
	g.Expect(listener.UID).To(Equal(uid))
}

// A Pod whose inline volumes were refused waits, and continues as soon as the class or the Listener permits.
func TestAnInlineVolumeThatWasRefusedIsMountedWhenItsClassOrListenerIsChanged(t *testing.T) {
	g := NewWithT(t)
	b := &boundPod{T: t, client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	class := func(name string, pinned bool) *listenersv1alpha1.ListenerClass {
		c := &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + name},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: pinned},
		}
		b.create(c)
		return c
	}
	pinned, other, free := class("pinned", true), class("other", true), class("free", false)
	node := objects.Node(b.namespace)
	b.create(node)
	shared := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &other.Name}}
	b.create(shared)
	newPod := func(name, attribute, value string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName:   b.namespace,
			Containers: []corev1.Container{{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}},
			Volumes:    []corev1.Volume{objects.InlineVolume("listener", map[string]string{attribute: value})},
		}}
		b.create(pod)
		created := pod.DeepCopy()
		pod.Status.StartTime = ptr.To(metav1.Now()) // as the kubelet accepts it
		g.Expect(b.client.Status().Patch(t.Context(), pod, client.MergeFrom(created))).To(Succeed())
		return pod
	}
	own, named := newPod("own", names.AnnotationListenerClass, pinned.Name), newPod("named", names.AnnotationListenerName, shared.Name)
	g.Eventually(func(g Gomega) (refused int) {
		var list eventsv1.EventList
		g.Expect(b.client.List(t.Context(), &list, client.InNamespace(b.namespace))).To(Succeed())
		for i := range list.Items {
			if list.Items[i].Reason == listenersv1alpha1.ReasonInvalidVolume {
				refused++
			}
		}
		return refused
	}).WithTimeout(apiserver.Timeout).Should(Equal(2))

	unchanged := shared.DeepCopy()
	shared.Spec.ClassName = &free.Name
	g.Expect(b.client.Patch(t.Context(), shared, client.MergeFrom(unchanged))).To(Succeed())
	b.expose(shared, 30081)
	published := func(pod *corev1.Pod) func(g Gomega) string {
		return func(g Gomega) string {
			var object listenersv1alpha1.PodListeners
			key := types.NamespacedName{Namespace: b.namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
			g.Expect(client.IgnoreNotFound(b.client.Get(t.Context(), key, &object))).To(Succeed())
			return object.Spec.Listeners["listener"].ListenerName
		}
	}
	g.Eventually(published(named)).WithTimeout(apiserver.Timeout).Should(Equal(shared.Name))

	before := pinned.DeepCopy()
	pinned.Spec.PinnedNodePorts = false
	g.Expect(b.client.Patch(t.Context(), pinned, client.MergeFrom(before))).To(Succeed())
	g.Eventually(published(own)).WithTimeout(apiserver.Timeout).Should(Equal("own-listener"))
}
