package command

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/version"
)

var marks = map[check.State]struct{ text, colour string }{
	check.OK: {"✓", "\x1b[32m"}, check.Failed: {"✗", "\x1b[31m"}, check.Warning: {"!", "\x1b[33m"},
	check.Unknown: {"?", "\x1b[36m"},
}

// maxPrinted is the length of the longest text from an object that is printed, in bytes.
const maxPrinted = 4096

func Printable(s string) string { return message.Printable(s, maxPrinted) }

func WriteError(out io.Writer, err error) {
	// Advice on how to call a command has several lines.
	for line := range strings.SplitSeq(version.Link("error: "+err.Error()), "\n") {
		fmt.Fprintln(out, Printable(strings.ReplaceAll(line, "\t", "  ")))
	}
}

func WriteSteps(out io.Writer, r *check.Report) {
	writeTable(out, Once(r, "see below"))
	if r.Problem != nil {
		writeProblem(out, r.Problem)
	} else {
		fmt.Fprintf(out, "\n%s\n", Printable(r.AllClear()))
	}
}

// repeated is how long a message is, in bytes, that is written only once.
const repeated = 30

// Once returns the findings, with references to earlier ones for what these say. where refers to the problem. What is
// said about several objects of a kind is said about each.
func Once(r *check.Report, where string) []check.Finding {
	of, several := map[[2]string]string{}, map[string]bool{}
	for f := range check.Each(r.Findings) {
		key := [2]string{f.Kind, f.Message}
		several[f.Message] = several[f.Message] || of[key] != "" && of[key] != f.Object()
		of[key] = f.Object()
	}
	var said []string // each text, and where it is
	add := func(f *check.Finding, where string) {
		if len(f.Message) >= repeated && !several[f.Message] {
			said = append(said, f.Message, where)
		}
	}
	if r.Problem != nil {
		add(r.Problem, where)
	}
	rows := slices.Clone(r.Findings)
	for i := range rows {
		rows[i].Message = strings.NewReplacer(said...).Replace(rows[i].Message)
		add(&r.Findings[i], "see "+rows[i].Object())
	}
	return rows
}

// WriteChecks writes what is not wrong, and then the problems with their remedies, those for administrators first.
func WriteChecks(out io.Writer, r *check.Report) { WriteChecksOr(out, r, r.AllClear()) }

// WriteChecksOr is WriteChecks with what is written if nothing is wrong; nothing if none is empty.
func WriteChecksOr(out io.Writer, r *check.Report, none string) {
	var fine, administrators, users []check.Finding
	for _, f := range r.Findings {
		switch {
		case f.State != check.Failed:
			fine = append(fine, f)
		case f.ForUsers:
			users = append(users, f)
		default:
			administrators = append(administrators, f)
		}
	}
	writeTable(out, fine)
	writeProblems(out, administrators)
	if len(users) > 0 {
		fmt.Fprintf(out, "\nFor the users of namespaces: %d\n", len(users))
	}
	writeProblems(out, users)
	if r.Problem == nil && none != "" {
		fmt.Fprintf(out, "\n%s\n", Printable(version.Link(none)))
	}
}

// maxProblems is how many problems of a group are written, so that the next group can be found.
const maxProblems = 10

// writeProblems writes the first problems of a list, and how many others there are for each reason.
func writeProblems(out io.Writer, list []check.Finding) {
	for i := range list[:min(len(list), maxProblems)] {
		writeProblem(out, &list[i])
	}
	if len(list) <= maxProblems {
		return
	}
	others := map[string]int{}
	for _, f := range list[maxProblems:] {
		others[cmp.Or(f.Reason, f.Kind)]++
	}
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(others)) {
		counts = append(counts, fmt.Sprintf("%d %s", others[reason], Printable(reason)))
	}
	fmt.Fprintf(out, "\n%d more (%s): see all with --output json\n", len(list)-maxProblems, strings.Join(counts, ", "))
}

func Mark(s check.State) string { return marks[s].text }

// mark returns the mark of a state, in colour on a terminal unless the user objects (https://no-color.org).
func mark(out io.Writer, s check.State) string {
	m := marks[s]
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("NO_COLOR") != "" {
		return m.text
	}
	return m.colour + m.text + "\x1b[0m"
}

func writeTable(out io.Writer, findings []check.Finding) {
	table := printers.GetNewTabWriter(out)
	for f := range check.Each(findings) {
		fmt.Fprintf(table, "%s %s\t%s\n", mark(out, f.State), Printable(f.Object()), Printable(f.Text()))
	}
	_ = table.Flush()
}

func writeProblem(out io.Writer, f *check.Finding) {
	fmt.Fprintf(out, "\n%s %s\n  %s\n  What to do: %s\n", mark(out, f.State), Printable(f.Object()),
		Printable(f.Text()), Printable(f.Remedy))
}
