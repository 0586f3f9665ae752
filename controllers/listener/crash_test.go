package listener_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
)

func TestAListenerIsExposedWhateverHappensToAWrite(t *testing.T) {
	stopProcess(t)
	crash.Run(t, crash.Scenario{
		Setup: setupForCrashes,
		Begin: func(t *testing.T, c client.Client, namespace string) {
			f := &fixture{World: &apiserver.World{T: t, Gomega: NewWithT(t), Client: c, Namespace: namespace}, key: client.ObjectKey{Namespace: namespace, Name: "web"}}
			f.class = &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: ofType(nodePort)}
			f.Expect(c.Create(t.Context(), f.class)).To(Succeed())
			f.createVolume(f.createNodeAs(metav1.ObjectMeta{Name: namespace}, "10.3.0.1").Name) // the status has its name
			f.createListener(nil)
		},
		Kinds: []client.ObjectList{&listenersv1alpha1.ListenerList{}, &corev1.ServiceList{}},
		Done: func(ctx context.Context, c client.Client, namespace string) bool {
			var l listenersv1alpha1.Listener
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, &l)
			return err == nil && l.Status != nil && len(l.Status.IngressAddresses) == 1
		},
	})
}

// setupForCrashes adds the controller to a manager.
func setupForCrashes(t *testing.T, mgr ctrl.Manager, _ string) error {
	apis, err := platform.Watch(t.Context(), apiserver.Config(t), backends.All().OptionalKinds()...)
	if err != nil {
		return err
	}
	return (&listener.Reconciler{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(names.EventReporter), Platform: apis, Backends: backends.All(),
	}).SetupWithManager(mgr)
}
