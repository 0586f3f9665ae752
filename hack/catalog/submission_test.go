package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

func TestSubmission(t *testing.T) {
	for name, template := range map[string]string{"submission-of-the-first-release": empty, "submission-of-the-next-release": published} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "", Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "candidate,fast,stable")})
			o.Template = filepath.Join(files(t, map[string]string{
				"template.yaml":       template,
				"openshift/ci.yaml":   "fbc: {enabled: true, catalog_mapping: [{template_name: basic.yaml, type: olm.template.basic, catalog_names: [v5.0]}]}\n",
				"operatorhub/ci.yaml": "updateGraph: semver-mode\n",
			}), "template.yaml")
			check.Must(t, run(t.Context(), o, renderArguments))
			got := map[string]string{}
			check.Must(t, readFiles(filepath.Join(o.Output, "submission"), "", got))
			golden.Compare(t, name, got)
		})
	}
}

func TestUnknownFieldsOfPipelinesAreRejected(t *testing.T) {
	o := options(t, "", Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "stable")})
	o.Template = filepath.Join(files(t, map[string]string{"template.yaml": empty, "openshift/ci.yaml": "fbc: {catalogs: []}"}), "template.yaml")
	if err := run(t.Context(), o, renderArguments); err == nil || !strings.Contains(err.Error(), `unknown field "catalogs"`) {
		t.Errorf("error %v, want one of the unknown field", err)
	}
}

// TestPipelinesAcceptTheirConfiguration checks the committed ci.yaml by the rules of
// https://github.com/redhat-openshift-ecosystem/operator-pipelines: ci-schema.json, check_catalog_usage_ci_config and
// the task read-config. test/docs checks the versions of OpenShift.
func TestPipelinesAcceptTheirConfiguration(t *testing.T) {
	paths, err := filepath.Glob("../../config/catalog/*/ci.yaml")
	if err != nil || len(paths) != 2 {
		t.Fatalf("found %v: %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		check.Must(t, err)
		var c ci
		if err := yaml.UnmarshalStrict(content, &c); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		updates := []string{"replaces-mode", "semver-mode"}
		if c.FBC.Enabled {
			updates = []string{""}
		}
		if !slices.Contains(updates, c.UpdateGraph) || c.FBC.Enabled != (len(c.FBC.CatalogMapping) > 0) {
			t.Errorf("%s: want either a template or updateGraph, got %+v", path, c)
		}
		if strategies := []string{"", "review-needed", "always", "never"}; !slices.Contains(strategies, c.FBC.VersionPromotionStrategy) {
			t.Errorf("%s: version_promotion_strategy is %q, want one of %q", path, c.FBC.VersionPromotionStrategy, strategies)
		}
		var catalogs []string
		for _, mapping := range c.FBC.CatalogMapping {
			catalogs = append(catalogs, mapping.CatalogNames...)
			if mapping.Type != schemaTemplate || filepath.Ext(mapping.TemplateName) != ".yaml" || len(mapping.CatalogNames) == 0 {
				t.Errorf("%s: want a file of type %s with catalogues, got %+v", path, schemaTemplate, mapping)
			}
		}
		if n := len(catalogs); len(slices.Compact(slices.Sorted(slices.Values(catalogs)))) != n {
			t.Errorf("%s: a catalogue is repeated in %v", path, catalogs)
		}
	}
}
