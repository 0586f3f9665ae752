package walk

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
)

func TestWhatIsSaidAboutProbesThatFail(t *testing.T) {
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	for event, pod := range map[string]corev1.PodStatus{
		"Liveness probe failed: refused":  {Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{waiting}},
		"Readiness probe failed: refused": {Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: containersNotReady}}},
	} {
		t.Run(event, func(t *testing.T) {
			of := metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "uid"}
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).WithObjects(&corev1.Event{
				ObjectMeta: of, InvolvedObject: corev1.ObjectReference{UID: of.UID}, Reason: "Unhealthy", Message: event, LastTimestamp: metav1.Now(),
			}).Build()
			w := New(&check.Examination{Client: source.List(c)})
			f := w.podWithEvents(t.Context(), &corev1.Pod{ObjectMeta: of, Spec: corev1.PodSpec{NodeName: "node-1"}, Status: pod})
			if f.State != check.Failed || !strings.HasSuffix(f.Message, ": "+event) || !strings.Contains(f.Remedy, targetSame) || w.Err != nil {
				t.Errorf("got %+v, error %v", f, w.Err)
			}
		})
	}
}
