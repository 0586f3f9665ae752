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
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range architectureRow.FindAllStringSubmatch(string(page), -1) {
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
