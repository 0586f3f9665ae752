package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var decisionHeader = regexp.MustCompile(`^# (\d+)\. (.+)\n\nStatus: accepted, \d{4}-\d{2}-\d{2}(?:; changed, \d{4}-\d{2}-\d{2})?\n`)

func TestDecisionsHaveStatusAndDateAndAreListed(t *testing.T) {
	pages, err := filepath.Glob("decisions/[0-9]*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	list := read(t, "decisions/README.md")
	for _, page := range pages {
		content := read(t, page)
		header := decisionHeader.FindStringSubmatch(content)
		if header == nil {
			t.Errorf("%s does not begin with a number, a title, a status and a date", page)
			continue
		}
		name := filepath.Base(page)
		if number, _, _ := strings.Cut(name, "-"); strings.TrimLeft(number, "0") != header[1] {
			t.Errorf("%s has the number %s", page, header[1])
		}
		if row := fmt.Sprintf("- [%s. %s](%s)\n", header[1], header[2], name); !strings.Contains(list, row) {
			t.Errorf("decisions/README.md lacks the row %s", row)
		}
	}
}
