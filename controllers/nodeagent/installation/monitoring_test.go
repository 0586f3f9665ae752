package installation

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestEachAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	object, err := componentOf(t, "PrometheusRule").Desired(newConfig(), testSettings())
	if err != nil {
		t.Fatal(err)
	}
	groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
	if err != nil || len(groups) != 1 {
		t.Fatalf("groups %v (%v), want one", groups, err)
	}
	for _, rule := range groups[0].(map[string]any)["rules"].([]any) {
		name := rule.(map[string]any)["alert"].(string)
		known = append(known, name)
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("docs/alerts.md has no section %s", name)
		}
		link, _, _ := unstructured.NestedString(rule.(map[string]any), "annotations", "runbook_url")
		if !strings.HasSuffix(link, "docs/alerts.md#"+strings.ToLower(name)) {
			t.Errorf("the runbook of %s is %q", name, link)
		}
	}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## Listener"); ok && !slices.Contains(known, "Listener"+strings.TrimSpace(name)) {
			t.Errorf("docs/alerts.md explains %s, which does not exist", strings.TrimSpace(line))
		}
	}
}
