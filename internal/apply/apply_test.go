package apply_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func configMap(namespace, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": "some"},
		"data":     map[string]any{"key": value},
	}}
}

func observe(t *testing.T, c client.Client, namespace string) *corev1.ConfigMap {
	t.Helper()
	observed := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "some"}, observed); err != nil {
		t.Fatal(err)
	}
	return observed
}

func TestSendsOnlyWhatCanChangeSomething(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	if err := applier.Apply(t.Context(), configMap(namespace, "a"), nil); err != nil {
		t.Fatal(err)
	}
	ours := observe(t, c, namespace)
	theirs := ours.DeepCopy()
	theirs.Data["key"] = "theirs"
	for _, tc := range []struct {
		name   string
		before func()
		value  string
		sent   bool
	}{
		{"the same as before", func() {}, "a", false},
		{"another value", func() {}, "b", true},
		{"the same again", func() {}, "b", false},
		{"a change by someone else", func() {
			if err := c.Patch(t.Context(), theirs, client.MergeFrom(ours)); err != nil {
				t.Fatal(err)
			}
		}, "b", true},
		{"a forgotten object", func() { applier.Forget(ours.UID) }, "b", true},
	} {
		tc.before()
		desired := configMap(namespace, tc.value)
		if err := applier.Apply(t.Context(), desired, observe(t, c, namespace)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := desired.GetResourceVersion() != ""; got != tc.sent {
			t.Errorf("%s: sent is %t, want %t", tc.name, got, tc.sent)
		}
		if got := observe(t, c, namespace).Data["key"]; got != tc.value {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.value)
		}
	}
}

func TestNamesakeOfTheObservedObjectIsNotWrittenTo(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	if err := applier.Apply(t.Context(), configMap(namespace, "a"), nil); err != nil {
		t.Fatal(err)
	}
	observed := observe(t, c, namespace)
	if err := c.Delete(t.Context(), observed); err != nil {
		t.Fatal(err)
	}
	if err := applier.Apply(t.Context(), configMap(namespace, "b"), observed); !apierrors.IsConflict(err) {
		t.Errorf("gone: got %v, want a conflict", err)
	}
	foreign := &corev1.ConfigMap{Data: map[string]string{"key": "theirs"}}
	foreign.Namespace, foreign.Name = namespace, "some"
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := applier.Apply(t.Context(), configMap(namespace, "b"), observed); !apierrors.IsConflict(err) {
		t.Errorf("replaced: got %v, want a conflict", err)
	}
	if got := observe(t, c, namespace).Data["key"]; got != "theirs" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyTheVersionThatIsAskedForIsWrittenTo(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	applier := apply.New(c, "tester")
	if err := applier.Apply(t.Context(), configMap(namespace, "a"), nil); err != nil {
		t.Fatal(err)
	}
	old := observe(t, c, namespace)
	at := func(value string) *unstructured.Unstructured {
		desired := configMap(namespace, value)
		desired.SetResourceVersion(old.ResourceVersion)
		return desired
	}
	same := at("a")
	if err := applier.Apply(t.Context(), same, old); err != nil || same.GetUID() != "" {
		t.Errorf("the same as before: error %v, answer %v", err, same)
	}
	if err := applier.Apply(t.Context(), at("b"), old); err != nil {
		t.Errorf("the version that there is: %v", err)
	}
	if err := applier.Apply(t.Context(), at("c"), old); !apierrors.IsConflict(err) {
		t.Errorf("an old version: got %v, want a conflict", err)
	}
	if got := observe(t, c, namespace).Data["key"]; got != "b" {
		t.Errorf("got %q", got)
	}
}
