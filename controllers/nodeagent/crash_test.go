package nodeagent

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crash"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// installedKinds are the kinds of all objects that the operator installs without optional APIs.
var installedKinds = []client.ObjectList{
	&operatorv1alpha1.ListenerOperatorList{}, &appsv1.DaemonSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{},
	&networkingv1.NetworkPolicyList{}, &storagev1.CSIDriverList{}, &storagev1.StorageClassList{},
	&admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
}

// TestTheNodeAgentIsInstalledWhateverHappensToAWrite leaves out the faults in which a write is not done and the process
// goes on: TestEveryFailedWriteIsRetried has them.
func TestTheNodeAgentIsInstalledWhateverHappensToAWrite(t *testing.T) {
	crash.Run(t, crash.Scenario{
		Faults:        []crash.Fault{crash.TimedOut, crash.NotAnswered},
		ClusterScoped: true,
		Setup:         setup,
		Begin:         func(t *testing.T, c client.Client, namespace string) { operator.Clean(t, c, namespace) },
		Kinds:         installedKinds,
		Done:          func(ctx context.Context, c client.Client, _ string) bool { return isAvailable(ctx, c) },
	})
}

// TestTheNodeAgentIsRemovedWhateverHappensToAWrite leaves out the faults in which the process goes on, because each run
// needs an installation; the unit tests of the reconciler have them.
func TestTheNodeAgentIsRemovedWhateverHappensToAWrite(t *testing.T) {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: objectMeta(operatorv1alpha1.ListenerOperatorName)}
	crash.Run(t, crash.Scenario{
		Faults:        []crash.Fault{crash.NotAnswered},
		ClusterScoped: true,
		Setup:         setup,
		Begin: func(t *testing.T, c client.Client, namespace string) {
			operator.Clean(t, c, namespace)
			_, stop := apiserver.RunManager(t, nil, namespace, func(mgr ctrl.Manager) error { return setup(t, mgr, namespace) })
			g := NewWithT(t)
			g.Eventually(func() bool { return isAvailable(t.Context(), c) }).WithTimeout(apiserver.Timeout).Should(BeTrue())
			stop()
			g.Expect(c.Delete(t.Context(), config.DeepCopy())).To(Succeed())
			go collectAgents(t.Context(), c, namespace)
		},
		Kinds: installedKinds,
		Done: func(ctx context.Context, c client.Client, _ string) bool {
			return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(config), config.DeepCopy()))
		},
	})
}

func isAvailable(ctx context.Context, c client.Client) bool {
	config := &operatorv1alpha1.ListenerOperator{}
	err := c.Get(ctx, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config)
	return err == nil && meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable)
}

// collectAgents finishes the foreground deletion of the DaemonSet, as the garbage collector does, until ctx is done.
func collectAgents(ctx context.Context, c client.Client, namespace string) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		agents := daemonSet(namespace)
		err := c.Get(ctx, client.ObjectKeyFromObject(agents), agents)
		if err == nil && slices.Contains(agents.Finalizers, metav1.FinalizerDeleteDependents) {
			agents.Finalizers = nil
			_ = c.Update(ctx, agents) // a conflict is repeated
		}
	}, 20*time.Millisecond)
}
