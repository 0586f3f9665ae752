package index_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestVolumesAndPodListenersAreIndexedByTheirListener(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		names.LabelListenerNamespace: "shop", names.LabelListenerName: "web",
	}}}
	check.Equal(t, "of the volume", []string{"shop/web"}, index.VolumeListener(pv))
	delete(pv.Labels, names.LabelListenerName)
	if got := index.VolumeListener(pv); got != nil {
		t.Errorf("a volume with one of the two labels is indexed by %v", got)
	}
	podListeners := &listenersv1alpha1.PodListeners{Spec: listenersv1alpha1.PodListenersSpec{
		NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{"a": {ListenerName: "web"}, "b": {}},
	}}
	check.Equal(t, "of the PodListeners", []string{"web"}, index.PodListenersListeners(podListeners))
	indexer := extractors{}
	check.Must(t, index.Register(t.Context(), indexer))
	check.Equal(t, "by node", []string{"node-1"}, indexer[index.PodListenersByNode](podListeners))
}

// Most claims of a cluster have a volume. The class of those may change.
func TestClaimsAreIndexedByTheirClassAndWithoutAVolumeByTheirListener(t *testing.T) {
	indexer := extractors{}
	check.Must(t, index.Register(t.Context(), indexer))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		names.AnnotationListenerClass: "public", names.AnnotationListenerName: "web",
	}}}
	for name, want := range map[string]string{index.ClaimsByClass: "public", index.ClaimsByListener: "web"} {
		claim.Spec.VolumeName = ""
		if diff := cmp.Diff([]string{want}, indexer[name](claim)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		claim.Spec.VolumeName = "pvc-1"
		if got := indexer[name](claim); (got != nil) != (name == index.ClaimsByClass) {
			t.Errorf("a claim with a volume is indexed in %s by %v", name, got)
		}
	}
}

// Messages are for people.
func TestListenersAreIndexedByTheirRefusal(t *testing.T) {
	indexer := extractors{}
	check.Must(t, index.Register(t.Context(), indexer))
	for name, tc := range map[string]struct {
		change func(*listenersv1alpha1.Listener)
		want   []string
	}{
		"a value of another one": {func(*listenersv1alpha1.Listener) {}, []string{"InvalidHost", "Host/h"}},
		"one of a range":         {func(l *listenersv1alpha1.Listener) { l.Status.WaitingFor.Value = "" }, []string{"InvalidHost", "Host/"}},
		"nothing of others":      {func(l *listenersv1alpha1.Listener) { l.Status.WaitingFor = nil }, []string{"InvalidHost"}},
		"accepted":               {func(l *listenersv1alpha1.Listener) { l.Status.Conditions[0].Status = metav1.ConditionTrue }, nil},
		"new":                    {func(l *listenersv1alpha1.Listener) { l.Status = nil }, nil},
		"deleted":                {func(l *listenersv1alpha1.Listener) { l.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }, nil},
	} {
		l := &listenersv1alpha1.Listener{Status: &listenersv1alpha1.ListenerStatus{
			Conditions: []metav1.Condition{{
				Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: listenersv1alpha1.ReasonInvalidHost,
				Message: "the host is g, which Listener a/b has already",
			}},
			WaitingFor: &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindHost, Value: "h", Holder: "a/b"},
		}}
		if tc.change(l); !slices.Equal(indexer[index.ListenersByRefusal](l), tc.want) {
			t.Errorf("%s: indexed by %v, want %v", name, indexer[index.ListenersByRefusal](l), tc.want)
		}
	}
}

// extractors has the functions of the indexes, by name.
type extractors map[string]client.IndexerFunc

func (e extractors) IndexField(_ context.Context, _ client.Object, name string, extract client.IndexerFunc) error {
	e[name] = extract
	return nil
}
