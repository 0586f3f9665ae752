package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestIndexListsEachPage(t *testing.T) {
	index := read(t, "README.md")
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages %v, error %v", pages, err)
	}
	nested, err := filepath.Glob("*/README.md")
	check.Must(t, err)
	for _, page := range append(pages, nested...) {
		if page != "README.md" && !strings.Contains(index, "]("+page+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}
