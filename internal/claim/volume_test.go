package claim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
			check.Equal(t, "nodes", tc.want, claim.VolumeNodes(pv))
		})
	}
}

func TestNamesOfClaimsOfAPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			objects.ClaimVolume("named", "shared"),
		}},
	}
	check.Equal(t, "claims", []string{"web-0-own", "shared"}, claim.NamesOf(pod))
}
