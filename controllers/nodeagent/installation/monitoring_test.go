package installation

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEachAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, a := range alerts("somewhere") {
		known = append(known, a.name)
		if !strings.Contains(string(page), "\n## "+a.name+"\n") {
			t.Errorf("docs/alerts.md has no section %s", a.name)
		}
	}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## Listener"); ok && !slices.Contains(known, "Listener"+strings.TrimSpace(name)) {
			t.Errorf("docs/alerts.md explains %s, which does not exist", strings.TrimSpace(line))
		}
	}
}
