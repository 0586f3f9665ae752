package nodeagent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// A namesake that replaced it is never modified.
func TestWritesHaveTheUIDOfTheObservedObject(t *testing.T) {
	observedClass := class()
	observedClass.UID, observedClass.Provisioner = "observed-class", names.Driver
	condition := operator.Object(t, `{apiVersion: operators.coreos.com/v2, kind: OperatorCondition, metadata: {namespace: somewhere, name: listener-operator.v1.2.3, uid: observed-condition}}`)
	observed := map[string]string{
		"ListenerOperator": string(newConfig().UID), "ListenerOperator status": string(newConfig().UID),
		"StorageClass": "observed-class", "OperatorCondition": "observed-condition",
	}
	got := map[string]string{}
	h := newHarness(t, fakeclient.EachWrite(func(verb string, o any, send func() error) error {
		if applied, ok := o.(runtime.ApplyConfiguration); ok {
			content, err := apply.Unstructured(applied)
			check.Must(t, err)
			if key := content.GetKind() + strings.TrimPrefix(verb, "apply"); observed[key] != "" {
				got[key] = string(content.GetUID())
			}
		}
		return send()
	}), newConfig(), observedClass, condition)
	h.OperatorCondition = condition.GetName()
	h.mustReconcile()
	h.equal("uids of applies", observed, got)
}

// TestOptionsOfDeletions checks that only the observed object is deleted, once, and the Pods of a DaemonSet before it.
func TestOptionsOfDeletions(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "x", UID: "seen"}
	terminating := meta
	terminating.DeletionTimestamp = ptr.To(metav1.Now())
	uid := client.Preconditions{UID: ptr.To(meta.UID)}
	for name, tc := range map[string]struct {
		kind   string
		object client.Object
		want   []client.DeleteOption
	}{
		"a StorageClass":          {"StorageClass", &storagev1.StorageClass{ObjectMeta: meta}, []client.DeleteOption{uid}},
		"a DaemonSet":             {"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}, []client.DeleteOption{uid, client.PropagationPolicy("Foreground")}},
		"a terminating DaemonSet": {"DaemonSet", &appsv1.DaemonSet{ObjectMeta: terminating}, nil},
	} {
		var got []client.DeleteOption
		h := newHarness(t, interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				got = options
				return c.Delete(ctx, o, options...) // which returns that it does not exist
			},
		})
		h.must(h.delete(t.Context(), tc.kind, tc.object))
		h.equal(name+": options", tc.want, got)
	}
}

// The cache still has the object that it replaced.
func TestNamesakeIsNotDeleted(t *testing.T) {
	h, _ := onServer(t)
	seen := class()
	seen.Provisioner = names.Driver
	h.create(seen)
	seen.UID = "before"
	if err := h.delete(t.Context(), "StorageClass", seen); !apierrors.IsConflict(err) {
		t.Errorf("error is %v, want a conflict", err)
	}
}

// TestEveryFailedWriteIsRetried lets each write fail once: the error is returned and reported, and the next
// reconciliations complete the work.
func TestEveryFailedWriteIsRetried(t *testing.T) {
	writes := 1 + len(alwaysInstalled()) // the finalizer and each component, to install as to remove
	for n := range writes {
		t.Run(fmt.Sprintf("installing, write %d", n), func(t *testing.T) {
			h := newHarness(t, fakeclient.FailWrite(n, errBoom), newConfig())
			h.expectBoom()
			available := "False ApplyFailed"
			if done := n - 1; done >= 0 && alwaysInstalled()[done].Extra {
				available = "True AsExpected"
			}
			h.expect(available, "True ApplyFailed", "True ApplyFailed", upTo(n-1))
			h.mustReconcile()
			h.rollOut(1, 1, 1)
			h.mustReconcile()
			h.expect("True AsExpected", "False AgentsRolledOut", "False AsExpected", allKinds())
		})
		for way, begin := range removals {
			t.Run(fmt.Sprintf("removing %s, write %d", way, n), func(t *testing.T) {
				fail := n
				if way == "by deletion" {
					fail++ // the deletion itself
				}
				h := newHarness(t, fakeclient.FailWrite(writes+fail, errBoom), newConfig(), volume("other", "other", corev1.VolumeReleased))
				h.mustReconcile()
				begin(h)
				var err error
				for i := 0; i <= n && err == nil; i++ { // a reconciliation may have several writes
					_, err = h.reconcileOnce()
				}
				h.Expect(err).To(MatchError(errBoom))
				h.equal("Degraded", "True RemovalFailed", h.conditions()["Degraded"])
				for range writes {
					if h.hasConfig() {
						h.mustReconcile()
					}
				}
				h.Expect(h.hasConfig()).To(Equal(way != "by deletion"))
				h.expectNothingInstalled()
			})
		}
	}
}

func TestFailedStatusWriteIsReturned(t *testing.T) {
	h := newHarness(t, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
		if verb == fakeclient.ApplyStatus {
			return errBoom
		}
		return send()
	}), newConfig())
	h.expectBoom()
	h.expectInstalled(allKinds())
}

// countWrites restarts the operator, and counts its writes from then on, by their verbs.
func (h *harness) countWrites() map[string]int {
	writes := map[string]int{}
	c := fakeclient.Intercept(h.admin, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
		writes[verb]++
		return send()
	}))
	h.startWith(c, c, h.Namespace)
	return writes
}

func TestUnchangedComponentsAreNotWritten(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	writes := h.countWrites()
	h.mustReconcileTwice()
	want, installed := 1+len(alwaysInstalled()), driver()
	if h.read(installed); installed.Spec.PreventPodSchedulingIfMissing != nil {
		want++
	}
	h.equal("applies to install the finalizer, the components, and a field of Kubernetes 1.37", want, writes["create"]+writes["apply"])
	clear(writes)
	before := h.config().ResourceVersion
	h.mustReconcileTwice()
	h.equal("writes although nothing changed", map[string]int{}, writes)
	h.equal("version of the status", before, h.config().ResourceVersion)
}

// They cost no further request.
func TestChangesOfOthersThatAreHarmlessStay(t *testing.T) {
	h, _ := onServer(t)
	h.createConfig()
	writes := h.countWrites()
	h.mustReconcileTwice()
	harmless := `{"metadata":{"labels":{"team":"blue"},"annotations":{"note":"x"}},"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`
	h.must(h.admin.Patch(t.Context(), h.agents(), client.RawPatch(types.StrategicMergePatchType, []byte(harmless)), client.FieldOwner("kubectl-rollout")))
	h.mustReconcileTwice() // notices that something changed
	clear(writes)
	h.mustReconcileTwice()
	h.equal("writes of objects that are as desired", map[string]int{}, writes)
	h.startWith(h.admin, h.admin, h.Namespace)
	h.mustReconcileTwice()
	agents := h.agents()
	if agents.Labels["team"] != "blue" || agents.Annotations["note"] != "x" || agents.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != "now" || agents.Generation != 2 {
		t.Errorf("the DaemonSet has generation %d, labels %v, annotations %v, and annotations of Pods %v", agents.Generation, agents.Labels, agents.Annotations, agents.Spec.Template.Annotations)
	}
}
