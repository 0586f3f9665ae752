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
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

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
