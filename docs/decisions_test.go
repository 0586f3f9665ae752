package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var decisionHeader = regexp.MustCompile(`^# (\d+)\. (.+)\n\n(Status: (?:accepted|superseded by \d+), \d{4}-\d{2}-\d{2})\n`)

func TestDecisionsHaveStatusAndDateAndAreListed(t *testing.T) {
	pages, err := filepath.Glob("decisions/[0-9]*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	list, err := os.ReadFile("decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		header := decisionHeader.FindStringSubmatch(string(content))
		if header == nil {
			t.Errorf("%s does not begin with a number, a title, a status and a date", page)
			continue
		}
		name, number := filepath.Base(page), fmt.Sprint(i+1)
		if header[1] != number || !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("%s has the number %s, want %s", page, header[1], number)
		}
		status := strings.TrimPrefix(header[3], "Status: ")
		if row := fmt.Sprintf("| %s | [%s](%s) | %s |\n", header[1], header[2], name, status); !strings.Contains(string(list), row) {
			t.Errorf("decisions/README.md lacks the row %s", row)
		}
	}
}
