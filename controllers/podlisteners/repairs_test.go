package podlisteners_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// Of two writers that do not agree about the labels of a Pod, the operator is not the one that never pauses.
func TestLabelsThatAreRemovedAgainAndAgain(t *testing.T) {
	const counter, atOnce, longer = "listener_operator_repaired_pod_labels_total", 10, 5
	w := newWorld()
	c, recorder := fakeclient.New(t, interceptor.Funcs{}, w.Objects()...), events.NewFakeRecorder(100)
	r, now := newReconciler(c, recorder), clocktesting.NewFakePassiveClock(time.Now())
	r.Clock = now
	pod, before := &corev1.Pod{}, metric.Value(t, counter)
	labelled := func() bool {
		t.Helper()
		result, err := r.Reconcile(t.Context(), r.Receive(t.Context(), w.Pod))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(w.Pod), pod); err != nil {
			t.Fatal(err)
		}
		has := pod.Labels[names.PodMountLabel(w.Listener.UID)] != ""
		if !has && (result.RequeueAfter <= 0 || result.RequeueAfter > time.Second) {
			t.Errorf("a Pod without the label is looked at after %s", result.RequeueAfter)
		}
		return has
	}
	remove := func() {
		t.Helper()
		pod.Labels = nil
		if err := c.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	warnings := func() (n int) {
		for _, e := range drain(recorder.Events) {
			if strings.Contains(e, listenersv1alpha1.ReasonLabelsRemoved) {
				n++
			}
		}
		return n
	}
	if !labelled() {
		t.Fatal("the Pod has no label")
	}
	for i := range atOnce {
		if remove(); !labelled() {
			t.Errorf("repair %d is not made at once", i+1)
		}
		if n, want := warnings(), map[int]int{1: 1, 3: 1, 7: 1}[i]; n != want {
			t.Errorf("repair %d: %d warnings, want %d", i+1, n, want)
		}
	}
	for range longer {
		remove()
		for range 3 {
			if labelled() {
				t.Error("repaired without a pause")
			}
		}
		if now.SetTime(now.Now().Add(time.Second)); !labelled() {
			t.Error("not repaired after a second")
		}
	}
	if n := metric.Value(t, counter) - before; n != atOnce+longer {
		t.Errorf("%v repairs are counted, want %d", n, atOnce+longer)
	}
}

func TestTheWarningNamesWhoWritesLabels(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(apiserver.Timeout)
	b := &boundPod{T: t, client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	b.create(objects.Node(b.namespace))
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace},
		Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
	}
	b.create(class)
	pvc := b.claim("own", names.AnnotationListenerClass, class.Name)
	pod := b.pod("own")
	label := names.PodMountLabel(b.ownListener(pvc, pod).UID)
	labelled := func(g Gomega) {
		g.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Labels).To(HaveKey(label))
	}
	for range 3 {
		g.Eventually(labelled).Should(Succeed())
		pod.Labels = map[string]string{"mesh.example.com/revision": pod.ResourceVersion}
		g.Expect(b.client.Update(t.Context(), pod, client.FieldOwner("mesh"))).To(Succeed())
	}
	g.Eventually(func(g Gomega) {
		var all eventsv1.EventList
		g.Expect(b.client.List(t.Context(), &all, client.InNamespace(b.namespace))).To(Succeed())
		g.Expect(all.Items).To(ContainElement(And(
			HaveField("Reason", listenersv1alpha1.ReasonLabelsRemoved), HaveField("Note", ContainSubstring("are written by mesh;")),
		)))
	}).Should(Succeed())
}
