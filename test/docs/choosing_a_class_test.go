package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	exposureRow     = regexp.MustCompile(`(?m)^\| (?:\[)?([^|\]]+?)(?:\]\([^)]*\))?(?:, [^|]*)? \| `)
	exposureDiagram = regexp.MustCompile(`\*\*(.+)\*\* \(\[a class\]\(\.\./(config/samples/\S+\.yaml)\)\)\n\n!\[(.+)\]\((choosing-a-class/\S+\.svg)\)\n`)
)

// The types are the rows of the table in choosing-a-class.md, apart from the one for clients inside the cluster.
func TestEachExposureTypeHasADiagramAndASample(t *testing.T) {
	page, err := os.ReadFile("choosing-a-class.md")
	if err != nil {
		t.Fatal(err)
	}
	var diagrams, files []string
	for _, match := range exposureDiagram.FindAllStringSubmatch(string(page), -1) {
		if match[1] != match[3] {
			t.Errorf("the diagram of %q is called %q", match[1], match[3])
		}
		for _, path := range []string{filepath.Join("..", match[2]), match[4]} {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		diagrams, files = append(diagrams, strings.ToLower(match[1])), append(files, match[4])
	}
	table, _, _ := strings.Cut(string(page), "## Diagrams")
	var rows []string
	for _, match := range exposureRow.FindAllStringSubmatch(table, -1) {
		if way := strings.ToLower(match[1]); way != "way" && way != "inside only" {
			rows = append(rows, way)
		}
	}
	if rows = slices.Compact(rows); len(rows) < 9 || !slices.Equal(rows, diagrams) {
		t.Errorf("the table has rows for %q, and there are diagrams of %q", rows, diagrams)
	}
	existing, err := filepath.Glob("choosing-a-class/*.svg")
	if slices.Sort(files); err != nil || !slices.Equal(existing, files) {
		t.Errorf("the diagrams are %q, %v; the page has %q", existing, err, files)
	}
}
