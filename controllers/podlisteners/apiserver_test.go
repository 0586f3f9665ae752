package podlisteners_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// The class that a claim names is followed as soon as it can be used, whatever keeps it from that, and whoever changes
// the Listener.
func TestTheClassThatAClaimNamesIsFollowedWhileItsPodRuns(t *testing.T) {
	b := &boundPod{apiserver.NewWorld(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	first, private, nameOfLate := b.class("first", false), b.class("private", false), b.Namespace+"-late"
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"test.example/admitted": b.Namespace}}
	b.change(private, func() { private.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Selector: selector} })
	b.node()
	pvc := b.claim("own", names.AnnotationListenerClass, first.Name)
	listener := b.ownListener(pvc, b.pod("own"))
	b.expose(listener, 30081)
	awaitClass := func(want *listenersv1alpha1.ListenerClass) {
		t.Helper()
		b.Eventually(func(g Gomega) string {
			g.Expect(b.Get(t.Context(), client.ObjectKeyFromObject(listener), listener)).To(Succeed())
			return listener.Class()
		}).Should(Equal(want.Name))
	}
	awaitEvent := func(reason string) {
		t.Helper()
		b.Eventually(b.events).Should(ContainElement(HavePrefix(reason + ": ")))
	}
	uid := listener.UID
	b.change(pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = nameOfLate })
	awaitEvent(listenersv1alpha1.ReasonClassNotFound)
	awaitClass(first)
	late := b.class("late", false)
	awaitClass(late)

	b.change(listener, func() { listener.Spec.ClassName = &first.Name })
	awaitClass(late)
	awaitEvent(listenersv1alpha1.ReasonClassOfClaim)

	b.change(pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = private.Name })
	awaitEvent(listenersv1alpha1.ReasonNamespaceNotAllowed)
	awaitClass(late)
	namespace := &corev1.Namespace{}
	b.Expect(b.Get(t.Context(), client.ObjectKey{Name: b.Namespace}, namespace)).To(Succeed())
	b.change(namespace, func() { metav1.SetMetaDataLabel(&namespace.ObjectMeta, "test.example/admitted", b.Namespace) })
	awaitClass(private)
	b.Expect(listener.UID).To(Equal(uid))
}

// A Pod whose inline volumes were refused waits, and continues as soon as the class or the Listener permits.
func TestAnInlineVolumeThatWasRefusedIsMountedWhenItsClassOrListenerIsChanged(t *testing.T) {
	b := &boundPod{apiserver.NewWorld(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	pinned, other, free := b.class("pinned", true), b.class("other", true), b.class("free", false)
	b.node()
	shared := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &other.Name}}
	b.create(shared)
	newPod := func(name, attribute, value string) *corev1.Pod {
		pod := b.podWith(name, objects.InlineVolume("listener", map[string]string{attribute: value}))
		created := pod.DeepCopy()
		pod.Status.StartTime = ptr.To(metav1.Now()) // as the kubelet accepts it
		b.Expect(b.Status().Patch(t.Context(), pod, client.MergeFrom(created))).To(Succeed())
		return pod
	}
	own, named := newPod("own", names.AnnotationListenerClass, pinned.Name), newPod("named", names.AnnotationListenerName, shared.Name)
	b.Eventually(func(g Gomega) int {
		return strings.Count(strings.Join(b.events(g), "\n"), listenersv1alpha1.ReasonInvalidVolume+": ")
	}).Should(Equal(2))

	b.change(shared, func() { shared.Spec.ClassName = &free.Name })
	b.expose(shared, 30081)
	ofListener := func(name string) OmegaMatcher { return HaveField("ListenerName", name) }
	b.Eventually(b.entry(named, "listener")).Should(ofListener(shared.Name))

	b.change(pinned, func() { pinned.Spec.PinnedNodePorts = false })
	b.Eventually(b.entry(own, "listener")).Should(ofListener("own-listener"))
}

// notes has the notes of events about objects of a namespace, by the name of their object and their reason.
type notes struct {
	namespace string
	mu        sync.Mutex
	all       map[[2]string][]string
}

// Eventf implements events.EventRecorder.
func (n *notes) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := regarding.(client.Object)
	if o.GetNamespace() != n.namespace {
		return
	}
	key := [2]string{o.GetName(), reason}
	n.all[key] = append(n.all[key], fmt.Sprintf(note, args...))
}

func (n *notes) of(name, reason string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[[2]string{name, reason}]
}

// permit creates or changes the ResourceQuota of the namespace, which permits so many of a resource. The controller of
// quotas, which writes the status, does not run here.
func (b *boundPod) permit(resourceName corev1.ResourceName, count int) {
	b.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "addresses"}}
	check.Must(b, client.IgnoreAlreadyExists(b.Create(b.Context(), quota)))
	hard := corev1.ResourceList{resourceName: resource.MustParse(fmt.Sprint(count))}
	check.Must(b, b.Get(b.Context(), client.ObjectKeyFromObject(quota), quota))
	quota.Spec.Hard = hard
	check.Must(b, b.Update(b.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{resourceName: resource.MustParse("0")}}
	b.updateStatus(quota)
}

// The users of the namespace have to act, so they are told, and the operator has no error.
func TestAQuotaThatForbidsWhatAPodNeedsIsReportedUntilItIsRaised(t *testing.T) {
	const errors = "controller_runtime_reconcile_errors_total"
	for name, tc := range map[string]struct {
		resource corev1.ResourceName
		reported []string // the objects that have the event
		text     string
	}{
		"Listeners":    {"count/listeners.listeners.stackable.tech", []string{"own", "web-0"}, "does not permit Listener"},
		"PodListeners": {"count/podlisteners.listeners.stackable.tech", []string{"web-0"}, "does not permit the object with the addresses of the Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &boundPod{apiserver.NewWorld(t)}
			recorded := &notes{namespace: b.Namespace, all: map[[2]string][]string{}}
			apiserver.StartManager(t, nil, "operators", setupWith(recorded))
			before := metric.Value(t, errors)
			class := b.class("own", false)
			b.node(objects.InternalIP("192.0.2.1"))
			b.permit(tc.resource, 0)
			pvc := b.claim("own", names.AnnotationListenerClass, class.Name)
			pod := b.pod("own")

			for _, name := range tc.reported {
				b.Eventually(func() []string { return recorded.of(name, listenersv1alpha1.ReasonQuotaExceeded) }).Should(
					HaveExactElements(And(ContainSubstring(tc.text), ContainSubstring("exceeded quota: addresses"), ContainSubstring("ask an administrator to"))), name)
			}
			if strings.HasPrefix(name, "Listeners") { // the node agent waits for what comes
				b.Eventually(b.entry(pod, "own")).ShouldNot(BeZero())
			}

			b.permit(tc.resource, 1)
			listener := &listenersv1alpha1.Listener{}
			b.Eventually(func() error { return b.Get(t.Context(), client.ObjectKeyFromObject(pvc), listener) }).Should(Succeed())
			b.expose(listener, 30082)
			b.Eventually(b.entry(pod, "own")).Should(HaveField("IngressAddresses", HaveLen(1)))
			b.Expect(metric.Value(t, errors)).To(Equal(before))
		})
	}
}
