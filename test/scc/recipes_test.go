package scc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"
)

// stock returns constraints of OpenShift.
func stock(t *testing.T, name string) *securityv1.SecurityContextConstraints {
	t.Helper()
	for _, scc := range read[[]securityv1.SecurityContextConstraints](t, "stock.yaml") {
		if scc.Name == name {
			return &scc
		}
	}
	t.Fatalf("stock.yaml has no constraints %s", name)
	return nil
}

func TestTheSampleRunsInOrdinaryProjects(t *testing.T) {
	pods := podsOf(t, content(t, "../../config/samples/statefulset.yaml"))
	if len(pods) != 1 {
		t.Fatalf("the sample has %d Pods", len(pods))
	}
	assertAdmitted(t, "restricted-v2", pods[0], true)
	assertRestricted(t, pods[0])
	user := int64(1000)
	pods[0].Spec.SecurityContext.RunAsUser = &user
	assertAdmitted(t, "restricted-v2", pods[0], false)
}

// They run on OpenShift with the constraints nonroot-v2, or without users as in every project, and on other clusters in
// namespaces that enforce the level "restricted".
func TestRecipesRunAsTheirPageSays(t *testing.T) {
	expression := regexp.MustCompile(`sed -i.bak -E '([^']+)'`).FindSubmatch(content(t, "../../docs/recipes/README.md"))
	if expression == nil {
		t.Fatal("docs/recipes/README.md has no command that removes users")
	}
	recipes, err := filepath.Glob("../../config/samples/recipes/*.yaml")
	if err != nil || len(recipes) < 7 {
		t.Fatalf("%d recipes: %v", len(recipes), err)
	}
	for _, recipe := range recipes {
		t.Run(filepath.Base(recipe), func(t *testing.T) {
			manifest := content(t, recipe)
			pods := podsOf(t, manifest)
			if len(pods) == 0 {
				t.Fatal("the recipe has no Pods")
			}
			for _, pod := range pods {
				assertRestricted(t, pod)
				assertAdmitted(t, "nonroot-v2", pod, true)
				assertAdmitted(t, "restricted-v2", pod, false)
			}
			sed := exec.CommandContext(t.Context(), "sed", "-E", string(expression[1])) //nolint:gosec // of our own page
			sed.Stdin = bytes.NewReader(manifest)
			without, err := sed.Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range podsOf(t, without) {
				assertAdmitted(t, "restricted-v2", pod, true)
			}
		})
	}
}

func assertAdmitted(t *testing.T, constraints string, pod *corev1.Pod, want bool) {
	t.Helper()
	if why := violations(t, stock(t, constraints), pod); (len(why) == 0) != want {
		t.Errorf("the Pod of %s is admitted by %s: %t, want %t: %s", pod.Name, constraints, len(why) == 0, want, strings.Join(why, "; "))
	}
}

// assertRestricted checks that the level "restricted" of Pod Security admits a Pod.
func assertRestricted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if reasons := violatedPodSecurity(t, api.LevelRestricted, pod); len(reasons) > 0 {
		t.Errorf("the level restricted rejects the Pod of %s for %q", pod.Name, reasons)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// podsOf returns a Pod of each StatefulSet in a manifest, as its controller creates it. It has the name of the set.
func podsOf(t *testing.T, manifest []byte) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind != "StatefulSet" {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
		pod.Name = set.Name
		for _, claim := range set.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + set.Name + "-0"},
			}})
		}
		pods = append(pods, pod)
	}
	return pods
}
