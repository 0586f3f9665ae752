// Command reasons writes docs/reasons.md from the table of reasons in package api/reasons.
//
//	go -C hack run ./reasons -o docs/reasons.md
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/hack/command"
)

//go:embed intro.txt
var intro []byte

func main() {
	out := flag.String("o", "docs/reasons.md", "`file` to write, from the root of the repository")
	flag.Parse()
	command.Main(func(context.Context) error { return os.WriteFile(*out, page(), 0o644) }) //nolint:gosec // a page that everybody may read
}

// page returns the page.
func page() []byte {
	b := bytes.NewBuffer(bytes.Clone(intro))
	for _, section := range reasons.Sections() {
		fmt.Fprintf(b, "\n## %s\n\n", section.Title)
		if section.Intro != "" {
			fmt.Fprintf(b, "%s\n\n", section.Intro)
		}
		b.WriteString("| reason | meaning | who acts | what to do |\n|---|---|---|---|\n")
		for _, r := range section.Reasons {
			on := ""
			if len(r.On) > 0 {
				on = " (on " + strings.Join(r.On, ", ") + ")"
			}
			fmt.Fprintf(b, "| <a id=%q></a>`%s`%s | %s | %s | %s |\n", strings.ToLower(r.Name), r.Name, on, linked(r.Meaning), r.Actor, linked(code(r.Remedy)))
		}
	}
	return b.Bytes()
}

var (
	pages    = regexp.MustCompile(`docs/([\w-]+)\.md(#[\w-]+)?`)
	commands = regexp.MustCompile(`kubectl ('[^']*'|\.\w|[^.(),:'])+`)
)

// linked turns the names of pages into links.
func linked(text string) string { return pages.ReplaceAllString(text, "[$1]($1.md$2)") }

// code turns commands into code, with the names that the user has to insert in capitals.
func code(text string) string {
	text = strings.NewReplacer("{namespace}", "NAMESPACE", "{name}", "NAME", "{claim}", "CLAIM", "{node}", "NODE").Replace(text)
	return commands.ReplaceAllStringFunc(text, func(c string) string {
		trimmed := strings.TrimSpace(c)
		return "`" + trimmed + "`" + c[len(trimmed):]
	})
}
