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

func installPodsPolicy(t *testing.T, admin client.Client, namespace string) {
	t.Helper()
	for _, c := range Components() {
		if c.Name == names.PodsPolicy {
			mustApply(t, admin, c, namespace)
		}
	}
	NewWithT(t).Eventually(func() error {
		return admin.Create(t.Context(), podWith(namespace, 17, inlineVolume), client.DryRunAll)
	}, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring("at most 16 inline volumes")))
}

// The API server is compared with itself in a namespace without the policy.
func TestPodsHaveALimitedNumberOfInlineVolumes(t *testing.T) {
	admin, namespace := apiserver.Client(t), apiserver.Namespace(t)
	installPodsPolicy(t, admin, namespace)
	without := apiserver.NamespaceWithoutPolicies(t)
	NewWithT(t).Eventually(func() error {
		return admin.Create(t.Context(), podWith(without, 17, inlineVolume), client.DryRunAll)
	}, apiserver.Timeout, "50ms").Should(Succeed())
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
				if err := admin.Create(t.Context(), pod, client.DryRunAll); err != nil && !denied(err, "at most 16 inline volumes") {
					t.Fatal(err)
				}
			}
		}
		took, tookWithout, twice := apiserver.ComputesTwice(t, create(namespace), create(without))
		t.Logf("a Pod %s of %d KB: %s instead of %s", name, pod.Size()>>10, took, tookWithout)
		if twice {
			t.Errorf("a Pod %s needs %s, and %s without the policy", name, took, tookWithout)
		}
	}
	podsHaveALimitedNumberOfInlineVolumes(t, admin, namespace)
}

func podsHaveALimitedNumberOfInlineVolumes(t *testing.T, admin client.Client, namespace string) {
	t.Helper()
	if err := admin.Create(t.Context(), podWith(namespace, 11000, inlineVolume), client.DryRunAll); err == nil {
		t.Error("a Pod with 11,000 inline volumes was created")
	}
	mixed := podWith(namespace, 40, emptyVolume)
	for i := range listenersv1alpha1.MaxVolumes {
		mixed.Spec.Volumes = append(mixed.Spec.Volumes, inlineVolume(fmt.Sprint("listener-", i)))
	}
	ofAnother := podWith(namespace, 20, inlineVolume)
	for i := range ofAnother.Spec.Volumes {
		ofAnother.Spec.Volumes[i].CSI.Driver = "secrets.stackable.tech"
	}
	for name, pod := range map[string]*corev1.Pod{
		"as many as may exist": podWith(namespace, listenersv1alpha1.MaxVolumes, inlineVolume), "and many others": mixed,
		"of another driver": ofAnother,
		"claims":            podWith(namespace, 100, func(name string) corev1.Volume { return objects.ClaimVolume(name, name) }),
	} {
		if err := admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
