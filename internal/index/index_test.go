package index_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestVolumeNodes(t *testing.T) {
	affinity := func(key string, operator corev1.NodeSelectorOperator, nodes ...string) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: nodes}},
		}}}}
	}
	recorded := map[string]string{names.AnnotationNode: "recorded"}
	for name, tc := range map[string]struct {
		driver      string
		affinity    *corev1.VolumeNodeAffinity
		annotations map[string]string
		want        []string
	}{
		"pinned":                 {names.Driver, affinity(names.TopologyKey, corev1.NodeSelectorOpIn, "pinned"), recorded, []string{"pinned"}},
		"mounted before":         {names.Driver, nil, recorded, []string{"recorded"}},
		"pinned by another key":  {names.Driver, affinity("zone", corev1.NodeSelectorOpIn, "a"), recorded, []string{"recorded"}},
		"excluded from a node":   {names.Driver, affinity(names.TopologyKey, corev1.NodeSelectorOpNotIn, "bad"), nil, nil},
		"never mounted":          {names.Driver, nil, nil, nil},
		"of another driver":      {"other.example", affinity(names.TopologyKey, corev1.NodeSelectorOpIn, "pinned"), recorded, nil},
		"with an empty affinity": {names.Driver, &corev1.VolumeNodeAffinity{}, recorded, []string{"recorded"}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations},
				Spec: corev1.PersistentVolumeSpec{
					NodeAffinity:           tc.affinity,
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: tc.driver}},
				},
			}
			if diff := cmp.Diff(tc.want, index.VolumeNodes(pv)); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodClaims(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			objects.ClaimVolume("named", "shared"),
		}},
	}
	if diff := cmp.Diff([]string{"web-0-own", "shared"}, index.PodClaims(pod)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestVolumesAndPodListenersAreIndexedByTheirListener(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		names.LabelListenerNamespace: "shop", names.LabelListenerName: "web",
	}}}
	if diff := cmp.Diff([]string{"shop/web"}, index.VolumeListener(pv)); diff != "" {
		t.Errorf("of the volume (-want +got):\n%s", diff)
	}
	delete(pv.Labels, names.LabelListenerName)
	if got := index.VolumeListener(pv); got != nil {
		t.Errorf("a volume with one of the two labels is indexed by %v", got)
	}
	podListeners := &listenersv1alpha1.PodListeners{Spec: listenersv1alpha1.PodListenersSpec{
		NodeName: "node-1", Listeners: map[string]listenersv1alpha1.PodListener{"a": {ListenerName: "web"}, "b": {}},
	}}
	if diff := cmp.Diff([]string{"web"}, index.PodListenersListeners(podListeners)); diff != "" {
		t.Errorf("of the PodListeners (-want +got):\n%s", diff)
	}
	indexer := extractors{}
	if err := index.Register(t.Context(), indexer); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"node-1"}, indexer[index.PodListenersByNode](podListeners)); diff != "" {
		t.Errorf("by node (-want +got):\n%s", diff)
	}
}

// Most claims of a cluster have a volume.
func TestBoundClaimsAreNotIndexed(t *testing.T) {
	indexer := extractors{}
	if err := index.Register(t.Context(), indexer); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		names.AnnotationListenerClass: "public", names.AnnotationListenerName: "web",
	}}}
	for name, want := range map[string]string{index.ClaimsByClass: "public", index.ClaimsByListener: "web"} {
		claim.Spec.VolumeName = ""
		if diff := cmp.Diff([]string{want}, indexer[name](claim)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		claim.Spec.VolumeName = "pvc-1"
		if got := indexer[name](claim); got != nil {
			t.Errorf("a claim with a volume is indexed in %s by %v", name, got)
		}
	}
}

// extractors has the functions of the indexes, by name.
type extractors map[string]client.IndexerFunc

func (e extractors) IndexField(_ context.Context, _ client.Object, name string, extract client.IndexerFunc) error {
	e[name] = extract
	return nil
}
