package main

import (
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// object returns an object of a bundle.
func object(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// bundleOf returns a bundle that owns ListenerOperator and contains the objects.
func bundleOf(objects ...*unstructured.Unstructured) *manifests.Bundle {
	b := &manifests.Bundle{CSV: &operatorsv1alpha1.ClusterServiceVersion{}, Objects: objects}
	b.CSV.Spec.CustomResourceDefinitions.Owned = []operatorsv1alpha1.CRDDescription{{
		Name: "listeneroperators.listener-operator.dev", Kind: "ListenerOperator",
		Resources: []operatorsv1alpha1.APIResourceReference{{Kind: "DaemonSet", Name: "agent"}, {Kind: "CSIDriver", Name: "driver"}},
	}}
	return b
}

func TestBundleOfTheRepositoryIsInstallable(t *testing.T) {
	b, err := manifests.GetBundleFromDir("../../bundle")
	check.Must(t, err)
	if err := bundleIsInstallable(t.Context(), &environment{bundle: b}); err != nil {
		t.Error(err)
	}
}

func TestBundleWithUnsupportedObjectsFails(t *testing.T) {
	crd := object("CustomResourceDefinition", "", "listeneroperators.listener-operator.dev")
	for name, tc := range map[string]struct {
		objects []*unstructured.Unstructured
		want    string
	}{
		"a kind that OLM does not install":       {[]*unstructured.Unstructured{crd, object("DaemonSet", "", "a")}, "DaemonSet a"},
		"a kind that some clusters do not serve": {[]*unstructured.Unstructured{crd, object("ServiceMonitor", "", "a")}, "ServiceMonitor a"},
		"a kind that catalogues reject":          {[]*unstructured.Unstructured{crd, object("NetworkPolicy", "", "a")}, "NetworkPolicy a"},
		"an object in a namespace":               {[]*unstructured.Unstructured{crd, object("ConfigMap", "x", "a")}, "namespace x"},
		"an owned resource without a CRD":        {nil, "no CustomResourceDefinition"},
		"every error is reported":                {[]*unstructured.Unstructured{object("DaemonSet", "", "a")}, "DaemonSet a"},
	} {
		t.Run(name, func(t *testing.T) {
			err := bundleIsInstallable(t.Context(), &environment{bundle: bundleOf(tc.objects...)})
			if _, ok := err.(interface{ Unwrap() []error }); !ok || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a failure about %q", err, tc.want)
			}
		})
	}
}
