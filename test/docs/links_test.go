package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	anchorID = regexp.MustCompile(`<a id="([^"]+)"></a>`)
)

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	checked := 0
	for _, page := range append(textFiles(t), "contract.md") {
		if filepath.Ext(page) != ".md" {
			continue
		}
		for _, m := range pageLink.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads to no file", page, m[1])
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: the link %s leads to no anchor", page, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were found", checked)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Clean(path))
	check.Must(t, err)
	return string(raw)
}

// anchors returns the anchors of a page, and those that GitHub gives to its headings.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range anchorID.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		title := linkText.ReplaceAllString(m[1], "$1")
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, title)] = true
	}
	return all
}
