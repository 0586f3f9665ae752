package listenerclass_test

import (
	"context"
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestAPresetIsCompleteWhateverHappensToAWrite(t *testing.T) {
	crash.Run(t, crash.Scenario{
		ClusterScoped: true,
		Setup: func(_ *testing.T, mgr ctrl.Manager, _ string) error {
			return (&listenerclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
		},
		Begin: func(t *testing.T, c client.Client, _ string) {
			if err := c.DeleteAllOf(t.Context(), &listenersv1alpha1.ListenerClass{}); err != nil {
				t.Fatal(err)
			}
			check.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), configuration(operatorv1alpha1.PresetStableNodes))))
		},
		Kinds: []client.ObjectList{&listenersv1alpha1.ListenerClassList{}},
		Done: func(ctx context.Context, c client.Client, _ string) bool {
			var list listenersv1alpha1.ListenerClassList
			return c.List(ctx, &list) == nil && len(list.Items) == 3
		},
	})
}
