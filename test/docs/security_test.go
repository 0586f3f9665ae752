package docs

import (
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
		content := read(t, path)
		for _, match := range testFunction.FindAllStringSubmatch(content, -1) {
			tests[match[1]] = true
		}
	}
	page := read(t, "security.md")
	for _, match := range namedTest.FindAllStringSubmatch(page, -1) {
		if !tests[match[1]] {
			t.Errorf("security.md names %s, which does not exist", match[1])
		}
	}
	claims, inTable := 0, false
	for line := range strings.SplitSeq(page, "\n") {
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
