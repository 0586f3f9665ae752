package v1alpha1_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func sample(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", name))
	check.Must(t, err)
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Users copy the samples, so the API server must accept each of them unchanged, with strict field validation. Applying
// all of them must not reset the operator's configuration.
func TestSamplesAreValid(t *testing.T) {
	var kustomization struct {
		APIVersion, Kind string
		Resources        []string
	}
	sample(t, "kustomization.yaml", &kustomization)
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "*.yaml"))
	check.Must(t, err)
	const configuration = "configuration/listeneroperator.yaml"
	if len(kustomization.Resources) != len(files)-1 || slices.ContainsFunc(kustomization.Resources, func(name string) bool { return filepath.Ext(name) != ".yaml" }) {
		t.Errorf("kustomization.yaml lists %q, want the %d files beside it", kustomization.Resources, len(files)-1)
	}
	c := client.WithFieldValidation(apiserver.Client(t), "Strict")
	namespace := apiserver.Namespace(t)
	for _, name := range append(kustomization.Resources, configuration) {
		o := &unstructured.Unstructured{}
		sample(t, name, &o.Object)
		given := o.DeepCopy()
		if namespaced, err := c.IsObjectNamespaced(o); err != nil {
			t.Fatal(err)
		} else if namespaced {
			o.SetNamespace(namespace)
		}
		if err := c.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if o.GetKind() != "ListenerOperator" {
			continue
		}
		bare := given.DeepCopy()
		delete(bare.Object, "spec")
		check.Must(t, c.Create(t.Context(), bare, client.DryRunAll))
		if diff := cmp.Diff(bare.Object["spec"], given.Object["spec"]); diff != "" {
			t.Errorf("%s differs from the defaults, which it claims to show (-defaults +sample):\n%s", name, diff)
		}
	}
}

// The samples form one example: each object that a sample refers to is another sample.
func TestSamplesReferToEachOther(t *testing.T) {
	var class, listener unstructured.Unstructured
	var set appsv1.StatefulSet
	sample(t, "listenerclass.yaml", &class.Object)
	sample(t, "listener.yaml", &listener.Object)
	sample(t, "statefulset.yaml", &set)
	want := map[string]map[string]string{
		"listener": {names.AnnotationListenerClass: class.GetName()},
		"shared":   {names.AnnotationListenerName: listener.GetName()},
	}
	got := map[string]map[string]string{}
	for i := range set.Spec.VolumeClaimTemplates {
		claim := &set.Spec.VolumeClaimTemplates[i]
		got[claim.Name] = claim.Annotations
		if *claim.Spec.StorageClassName != names.Driver {
			t.Errorf("claim template %s has storage class %s", claim.Name, *claim.Spec.StorageClassName)
		}
	}
	check.Equal(t, "annotations by claim template", want, got)
}

// Users copy the recipes, too: the API server must accept each of their objects.
func TestRecipesAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "recipes", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recipes: %v", err)
	}
	c := client.WithFieldValidation(apiserver.Client(t), "Strict")
	namespace := apiserver.Namespace(t)
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Clean(file))
		check.Must(t, err)
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if namespaced, err := c.IsObjectNamespaced(o); err != nil {
				t.Fatal(err)
			} else if namespaced {
				o.SetNamespace(namespace)
			}
			if err := c.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("%s, %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
		}
	}
}
