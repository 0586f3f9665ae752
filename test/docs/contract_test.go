// Package docs checks what the documentation and the code say about each other.
package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var (
	// A comment may break the line inside a citation.
	contractCitation = regexp.MustCompile(`\bcontract: ([A-Za-z]+(?:\s+(?://\s*)?[A-Za-z]+)*)[).]`)
	contractRule     = regexp.MustCompile(`(?m)^## (.+)$|\*\*([^*]+)\*\*`)
	lineBreak        = regexp.MustCompile(`\s+(?://\s*)?`)
)

// Comments cite headings and bold words of the page.
func TestContractHasEachCitedRule(t *testing.T) {
	page := read(t, "contract.md")
	var rules []string
	for _, match := range contractRule.FindAllStringSubmatch(page, -1) {
		rules = append(rules, strings.ToLower(lineBreak.ReplaceAllString(strings.ReplaceAll(match[1]+match[2], "`", ""), " ")))
	}
	citations := 0
	for _, path := range textFiles(t) {
		content := read(t, path)
		for _, match := range contractCitation.FindAllStringSubmatch(content, -1) {
			citations++
			cited := strings.ToLower(lineBreak.ReplaceAllString(match[1], " "))
			if !slices.ContainsFunc(rules, func(rule string) bool { return strings.Contains(rule, cited) }) {
				t.Errorf("%s cites the rule %q of the contract, and docs/contract.md has no such heading or bold words", path, cited)
			}
		}
	}
	if citations < 20 {
		t.Errorf("only %d citations of the contract are found", citations)
	}
}

// textFiles returns the source files and pages of the repository, except for the contract and this test.
func textFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || path == "../bin" || path == "../dist"):
			return filepath.SkipDir
		case path == "../docs/contract.md" || path == "../test/docs/contract_test.go":
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".yaml", ".sh", ".tmpl", ".svg":
			files = append(files, path)
		}
		return nil
	})
	check.Must(t, err)
	return files
}
