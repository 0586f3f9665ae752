package podlisteners_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
)

// Another client may remove a label that the operator has added, which is added again at once.
// Of two writers that do not agree about the labels of a Pod, the operator is not the one that never pauses.
func TestLabelsThatAreRemovedAgainAndAgain(t *testing.T) {
	const counter, atOnce, longer = "listener_operator_repaired_pod_labels_total", 10, 5
	w := newWorld()
	c, now := w.start(t, interceptor.Funcs{}), clocktesting.NewFakePassiveClock(time.Now())
	c.Clock = now
	before := metric.Value(t, counter)
	labelled := func() bool {
		t.Helper()
		after := c.reconcile().RequeueAfter
		has := stored(t, c.client, w.Pod).Labels[names.PodMountLabel(w.Listener.UID)] != ""
		if !has && (after <= 0 || after > time.Second) {
			t.Errorf("a Pod without the label is looked at after %s", after)
		}
		return has
	}
	remove := func() {
		t.Helper()
		pod := stored(t, c.client, w.Pod)
		pod.Labels = nil
		c.must(c.client.Update(t.Context(), pod))
	}
	warnings := func() int {
		return strings.Count(strings.Join(drain(c.recorded), "\n"), listenersv1alpha1.ReasonLabelsRemoved)
	}
	if !labelled() {
		t.Fatal("the Pod has no label")
	}
	for i := range atOnce {
		if remove(); !labelled() {
			t.Errorf("repair %d is not made at once", i+1)
		}
		check.Equal(t, fmt.Sprintf("warnings of repair %d", i+1), map[int]int{1: 1, 3: 1, 7: 1}[i], warnings())
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
	check.Equal(t, "repairs that are counted", float64(atOnce+longer), metric.Value(t, counter)-before)
}

func TestTheWarningNamesWhoWritesLabels(t *testing.T) {
	b := &boundPod{apiserver.NewWorld(t)}
	apiserver.StartManager(t, nil, "operators", setup)
	b.node()
	pvc := b.claim("own", names.AnnotationListenerClass, b.class("own", false).Name)
	pod := b.pod("own")
	label := names.PodMountLabel(b.ownListener(pvc, pod).UID)
	labelled := func(g Gomega) {
		g.Expect(b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Labels).To(HaveKey(label))
	}
	for range 3 {
		b.Eventually(labelled).Should(Succeed())
		pod.Labels = map[string]string{"mesh.example.com/revision": pod.ResourceVersion}
		b.Expect(b.Update(t.Context(), pod, client.FieldOwner("mesh"))).To(Succeed())
	}
	b.Eventually(b.events).Should(ContainElement(And(
		HavePrefix(listenersv1alpha1.ReasonLabelsRemoved+": "), ContainSubstring("are written by mesh;"),
	)))
}
