package scc

import (
	"os"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestRestrictedConstraintsAdmitRecipesWithoutUser shows that the recipes whose pages say so run on OpenShift as they
// are, by the constraints that every user may use, and that a user of their own would be rejected.
func TestRestrictedConstraintsAdmitRecipesWithoutUser(t *testing.T) {
	var restricted *securityv1.SecurityContextConstraints
	for _, stock := range read[[]securityv1.SecurityContextConstraints](t, "stock.yaml") {
		if stock.Name == "restricted-v2" {
			restricted = &stock
		}
	}
	for _, name := range []string{"nats", "rabbitmq", "zookeeper"} {
		t.Run(name, func(t *testing.T) {
			pod := podOfRecipe(t, name)
			if why := violations(t, restricted, pod); len(why) > 0 {
				t.Errorf("the Pod is rejected: %s", strings.Join(why, "; "))
			}
			user := int64(1000)
			pod.Spec.SecurityContext.RunAsUser = &user
			if why := violations(t, restricted, pod); len(why) == 0 {
				t.Error("a Pod with a user is admitted")
			}
		})
	}
}

// podOfRecipe returns the Pod that the controller of StatefulSets creates.
func podOfRecipe(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	raw, err := os.ReadFile("../../config/samples/recipes/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, document, found := strings.Cut(string(raw), "\n---\napiVersion: apps/v1\n")
	if !found {
		t.Fatalf("the recipe %s has no StatefulSet", name)
	}
	var set appsv1.StatefulSet
	if err := yaml.UnmarshalStrict([]byte(document), &set); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + name + "-0"},
		}})
	}
	return pod
}
