// Package docs checks what the documentation and the code say about each other.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// A comment may break the line inside a citation.
	contractCitation = regexp.MustCompile(`\b[Cc]ontract(?:'s)?\s+(?:(?://|#|\*)\s*)?\(?(\d+\.\d+)(?:,\s+(?:(?://|#|\*)\s*)?rule\s+(\d+))?`)
	contractSection  = regexp.MustCompile(`(?m)^## (\d+\.\d+) `)
	contractRule     = regexp.MustCompile(`(?m)^(\d+)\. `)
)

func TestContractHasEachCitedSection(t *testing.T) {
	sections := contractSections(t)
	citations := 0
	for _, path := range textFiles(t) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range contractCitation.FindAllStringSubmatch(string(content), -1) {
			citations++
			section, rule := match[1], match[2]
			text, ok := sections[section]
			if !ok {
				t.Errorf("%s cites contract %s, which docs/contract.md does not have", path, section)
			} else if rule != "" && !slices.ContainsFunc(contractRule.FindAllStringSubmatch(text, -1), func(m []string) bool { return m[1] == rule }) {
				t.Errorf("%s cites contract %s, rule %s, which docs/contract.md does not have", path, section, rule)
			}
		}
	}
	if citations == 0 {
		t.Error("no file cites the contract")
	}
}

// contractSections returns the text of each numbered section by its number.
func contractSections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("contract.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	headings := contractSection.FindAllStringSubmatchIndex(string(page), -1)
	for i, heading := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		sections[string(page[heading[2]:heading[3]])] = string(page[heading[0]:end])
	}
	return sections
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
	if err != nil {
		t.Fatal(err)
	}
	return files
}
