package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	namedTest    = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// TestSecurityNamesATestForEachClaim checks that the tests that docs/security.md names exist, and that each row of a
// table whose last column is "shown by" names one.
func TestSecurityNamesATestForEachClaim(t *testing.T) {
	tests := map[string]bool{}
	for _, path := range textFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Clean(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(content), -1) {
			tests[match[1]] = true
		}
	}
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range namedTest.FindAllStringSubmatch(string(page), -1) {
		if !tests[match[1]] {
			t.Errorf("security.md names %s, which does not exist", match[1])
		}
	}
	claims, inTable := 0, false
	for line := range strings.SplitSeq(string(page), "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case strings.HasSuffix(line, "| shown by |"):
			inTable = true
		case inTable && !strings.HasPrefix(line, "|--"):
			claims++
			cells := strings.Split(strings.Trim(line, "|"), " | ")
			if !namedTest.MatchString(cells[len(cells)-1]) {
				t.Errorf("security.md names no test in the row %s", line)
			}
		}
	}
	if claims == 0 {
		t.Error("security.md has no table of claims")
	}
}
