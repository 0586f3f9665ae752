package nodeagent

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

var noIntercept interceptor.Funcs

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// ours returns the object with the label of managed objects, and an owner: the configuration, unless another uid is
// given.
func ours[T client.Object](o T, uid types.UID) T {
	if uid == "" {
		uid = newConfig().UID
	}
	o.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.GroupVersion.String(), Kind: "ListenerOperator", Name: "cluster", UID: uid, Controller: ptr.To(true),
	}})
	return o
}

// leftovers returns objects of an earlier version, and similar ones that must not be pruned.
func leftovers() (stale, others []client.Object) {
	stale = []client.Object{
		ours(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old-agent"}}, ""),
		ours(&storagev1.StorageClass{ObjectMeta: objectMeta("old-class")}, ""),
		ours(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: objectMeta("old-binding")}, ""),
	}
	ownedOnly := ours(&storagev1.CSIDriver{ObjectMeta: objectMeta("owned")}, "")
	ownedOnly.Labels = nil
	labelledOnly := &storagev1.CSIDriver{ObjectMeta: objectMeta("labelled")}
	labelledOnly.Labels = map[string]string{names.LabelManagedBy: names.Operator}
	others = []client.Object{
		ownedOnly, labelledOnly,
		ours(&storagev1.StorageClass{ObjectMeta: objectMeta("of-another")}, "another"),
		ours(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "old-agent"}}, ""),
		ours(&listenersv1alpha1.ListenerClass{ObjectMeta: objectMeta("policy")}, ""),
	}
	return stale, others
}

func (h *harness) exists(o client.Object) bool {
	h.t.Helper()
	err := h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		h.t.Fatal(err)
	}
	return err == nil
}

func (h *harness) expectExist(objects []client.Object, exist bool) {
	h.t.Helper()
	for _, o := range objects {
		if h.exists(o) != exist {
			h.t.Errorf("%T %s exists: %t", o, o.GetName(), !exist)
		}
	}
}

func TestObjectsOfEarlierVersionsArePruned(t *testing.T) {
	stale, others := leftovers()
	h := newHarness(t, noIntercept, append(append(stale, others...), newConfig())...)
	h.setState(operatorv1alpha1.Unmanaged)
	h.mustReconcile()
	h.expectExist(stale, true)

	h.setState(operatorv1alpha1.Managed)
	h.mustReconcile()
	h.expectExist(stale, false)
	h.expectExist(others, true)
	h.expectInstalled(allKinds())
}

func TestRemovalPrunes(t *testing.T) {
	for way, begin := range removals {
		t.Run(way, func(t *testing.T) {
			h := newHarness(t, noIntercept, newConfig())
			h.mustReconcile()
			stale, others := leftovers()
			for _, o := range append(stale, others...) {
				if err := h.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			begin(h)
			for range requiredCount() + 1 {
				h.mustReconcile()
			}
			h.expectNothingInstalled()
			h.expectExist(stale, false)
			h.expectExist(others, true)
		})
	}
}

// It fails, for example because of a missing permission. All components are installed by then.
func TestPruningIsRetried(t *testing.T) {
	boom := errors.New("boom")
	stale, _ := leftovers()
	h := newHarness(t, fakeclient.FailWrite(1+len(alwaysInstalled()), boom), append(stale, newConfig())...)
	if _, err := h.reconcileOnce(); !errors.Is(err, boom) {
		t.Fatalf("error is %v, want boom", err)
	}
	h.expect(map[string]string{"Available": "True AsExpected", "Progressing": "True ApplyFailed", "Degraded": "True ApplyFailed"}, allKinds())
	h.mustReconcile()
	h.expectExist(stale, false)
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
		if err := h.delete(t.Context(), tc.kind, tc.object); err != nil {
			t.Errorf("%s: %v, although it does not exist", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: options (-want +got):\n%s", name, diff)
		}
	}
}

// The cache still has the object that it replaced.
func TestNamesakeIsNotDeleted(t *testing.T) {
	c, namespace := fresh(t)
	class := &storagev1.StorageClass{ObjectMeta: objectMeta(names.Driver), Provisioner: names.Driver}
	if err := c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	seen := class.DeepCopy()
	seen.UID = "before"
	err := reconciler(c, namespace).delete(t.Context(), "StorageClass", seen)
	if !apierrors.IsConflict(err) {
		t.Errorf("error is %v, want a conflict", err)
	}
}
