package installation

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// podWith returns a Pod with so many volumes of a kind.
func podWith(namespace string, n int, volume func(name string) corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	for i := range n {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume(fmt.Sprint("v", i)))
	}
	return pod
}

func inlineVolume(name string) corev1.Volume {
	return objects.InlineVolume(name, map[string]string{names.AnnotationListenerClass: "public"})
}

func emptyVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// The API server is compared with itself in a namespace without the policy.
func TestPodsHaveALimitedNumberOfInlineVolumes(t *testing.T) {
	w := apiserver.NewWorld(t)
	installPolicy(w, names.PodsPolicy)
	create17 := func(namespace string) func() error {
		return func() error { return w.Create(t.Context(), podWith(namespace, 17, inlineVolume), client.DryRunAll) }
	}
	w.Eventually(create17(w.Namespace)).Should(MatchError(ContainSubstring("at most 16 inline volumes")))
	without := apiserver.NamespaceWithoutPolicies(t)
	w.Eventually(create17(without)).Should(Succeed())
	large := podWith("", 1, emptyVolume)
	large.Annotations = map[string]string{"large": strings.Repeat("x", 256<<10-10)}
	for name, pod := range map[string]*corev1.Pod{
		"with one volume": podWith("", 1, emptyVolume), "with many volumes": podWith("", 8000, emptyVolume),
		"with a large annotation": large, "that is denied": podWith("", 11000, inlineVolume),
	} {
		create := func(namespace string) func() {
			return func() {
				pod := pod.DeepCopy()
				pod.Namespace = namespace
				if err := w.Create(t.Context(), pod, client.DryRunAll); err != nil && !denied(err, "at most 16 inline volumes") {
					t.Fatal(err)
				}
			}
		}
		took, tookWithout, twice := apiserver.ComputesTwice(t, create(w.Namespace), create(without))
		t.Logf("a Pod %s of %d KB: %s instead of %s", name, pod.Size()>>10, took, tookWithout)
		if twice {
			t.Errorf("a Pod %s needs %s, and %s without the policy", name, took, tookWithout)
		}
	}
	if err := w.Create(t.Context(), podWith(w.Namespace, 11000, inlineVolume), client.DryRunAll); err == nil {
		t.Error("a Pod with 11,000 inline volumes was created")
	}
	mixed := podWith(w.Namespace, 40, emptyVolume)
	for i := range listenersv1alpha1.MaxVolumes {
		mixed.Spec.Volumes = append(mixed.Spec.Volumes, inlineVolume(fmt.Sprint("listener-", i)))
	}
	ofAnother := podWith(w.Namespace, 20, inlineVolume)
	for i := range ofAnother.Spec.Volumes {
		ofAnother.Spec.Volumes[i].CSI.Driver = "secrets.stackable.tech"
	}
	for name, pod := range map[string]*corev1.Pod{
		"as many as may exist": podWith(w.Namespace, listenersv1alpha1.MaxVolumes, inlineVolume), "and many others": mixed,
		"of another driver": ofAnother,
		"claims":            podWith(w.Namespace, 100, func(name string) corev1.Volume { return objects.ClaimVolume(name, name) }),
	} {
		if err := w.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
