package volume

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
)

func TestAClaimIsProvisionedWhateverHappensToAWrite(t *testing.T) {
	crash.Run(t, crash.Scenario{
		Setup: func(_ *testing.T, mgr ctrl.Manager, _ string) error {
			return (&Reconciler{
				Client: mgr.GetClient(), Events: mgr.GetEventRecorder(names.EventReporter), Applier: apply.New(mgr.GetClient(), names.FieldManagerVolume), Clock: clock.RealClock{},
			}).SetupWithManager(mgr)
		},
		Begin: func(t *testing.T, c client.Client, namespace string) {
			cluster := &cluster{World: &apiserver.World{T: t, Gomega: NewWithT(t), Client: c, Namespace: namespace}}
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver}
			cluster.Expect(client.IgnoreAlreadyExists(c.Create(t.Context(), class))).To(Succeed())
			cluster.class(listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort})
			cluster.claim("listener-web-0", names.AnnotationListenerClass, namespace)
			cluster.pod("listener-web-0")
		},
		Kinds: []client.ObjectList{&corev1.PersistentVolumeList{}, &listenersv1alpha1.ListenerList{}, &corev1.PersistentVolumeClaimList{}},
		Done: func(ctx context.Context, c client.Client, namespace string) bool {
			var list corev1.PersistentVolumeList
			if err := c.List(ctx, &list); err != nil {
				return false
			}
			for i := range list.Items {
				if list.Items[i].Spec.ClaimRef != nil && list.Items[i].Spec.ClaimRef.Namespace == namespace {
					return true
				}
			}
			return false
		},
	})
}
