package listenerclass_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// A class that existing installations may have is stored, and an event says what has no effect.
func TestIgnoredSettingsOfAClassAreReportedWhenItIsWritten(t *testing.T) {
	g, c := NewWithT(t), apiserver.Client(t)
	g.SetDefaultEventuallyTimeout(apiserver.Timeout)
	g.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return (&listenerclass.Warner{Client: mgr.GetClient(), Events: mgr.GetEventRecorder(names.EventReporter)}).SetupWithManager(mgr)
	})
	notes := func(class string) func() []string {
		return func() []string {
			var list eventsv1.EventList
			g.Expect(c.List(t.Context(), &list)).To(Succeed())
			var all []string
			for _, e := range list.Items {
				if e.Regarding.Kind == "ListenerClass" && e.Regarding.Name == class && e.Reason == listenersv1alpha1.ReasonSettingsIgnored {
					all = append(all, e.Note)
				}
			}
			return all
		}
	}
	plain := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "plain-"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	}
	g.Expect(c.Create(t.Context(), plain)).To(Succeed())
	pinned := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pinned-"},
		Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, PinnedNodePorts: true},
	}
	g.Expect(c.Create(t.Context(), pinned)).To(Succeed())
	g.Eventually(notes(pinned.Name)).Should(ContainElement(ContainSubstring("pinnedNodePorts of ListenerClass " + pinned.Name + " has no effect")))
	g.Expect(notes(plain.Name)()).To(BeEmpty())

	before := plain.DeepCopy()
	lb := "example.com/lb"
	plain.Spec.LoadBalancerClass = &lb
	g.Expect(c.Patch(t.Context(), plain, client.MergeFrom(before))).To(Succeed())
	g.Eventually(notes(plain.Name)).Should(ContainElement(ContainSubstring("loadBalancerClass of ListenerClass " + plain.Name + " has no effect")))
}
