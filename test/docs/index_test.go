package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIndexListsEachPage(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages %v, error %v", pages, err)
	}
	nested, err := filepath.Glob("*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, nested...) {
		if page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}
