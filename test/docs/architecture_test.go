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
	architectureRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|")
	codeSpan        = regexp.MustCompile("`([^`]+)`")
)

func TestArchitectureListsEachFolderWithCode(t *testing.T) {
	page := read(t, "architecture.md")
	var listed []string
	for _, row := range architectureRow.FindAllStringSubmatch(page, -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, expandBraces(strings.TrimSuffix(span[1], "/"))...)
		}
	}
	if len(listed) == 0 {
		t.Fatal("architecture.md has no table of folders")
	}
	for _, path := range listed {
		if _, err := os.Stat(filepath.Join("..", path)); err != nil {
			t.Errorf("architecture.md lists %s, which does not exist", path)
		}
	}
	folders := map[string]bool{}
	for _, path := range textFiles(t) {
		if filepath.Ext(path) == ".go" {
			folders[strings.TrimPrefix(filepath.Dir(path), "../")] = true
		}
	}
	for folder := range folders {
		contains := func(l string) bool { return folder == l || strings.HasPrefix(folder, l+"/") }
		if !slices.ContainsFunc(listed, contains) {
			t.Errorf("architecture.md does not list %s", folder)
		}
	}
}

// Each path in the page is looked up.
func TestArchitectureNamesFilesThatExist(t *testing.T) {
	page := read(t, "architecture.md")
	named := 0
	for _, span := range codeSpan.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(span[1], "/") || !slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(span[1])) {
			continue
		}
		named++
		if _, err := os.Stat(filepath.Join("..", span[1])); err != nil {
			t.Errorf("architecture.md names %s, which does not exist", span[1])
		}
	}
	if named < 12 {
		t.Errorf("architecture.md names only %d files", named)
	}
}

// That is where architecture.md sends readers.
func TestMetricsAreDefinedInFilesOfTheirName(t *testing.T) {
	for _, path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "metrics.go" {
			continue
		}
		content := read(t, path)
		if strings.Contains(content, "prometheus.New") {
			t.Errorf("%s defines a metric; define it in metrics.go beside it", path)
		}
	}
}

// expandBraces returns a/x and a/y for a/{x,y}.
func expandBraces(path string) []string {
	before, rest, ok := strings.Cut(path, "{")
	if !ok {
		return []string{path}
	}
	inside, after, _ := strings.Cut(rest, "}")
	var paths []string
	for alternative := range strings.SplitSeq(inside, ",") {
		paths = append(paths, before+alternative+after)
	}
	return paths
}
