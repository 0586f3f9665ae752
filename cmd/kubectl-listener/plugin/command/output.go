package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/message"
)

// marks are the marks of states, and their colours in terminals.
var marks = map[check.State]struct{ text, colour string }{
	check.OK: {"✓", "\x1b[32m"}, check.Failed: {"✗", "\x1b[31m"}, check.Warning: {"!", "\x1b[33m"}, check.Unknown: {"?", "\x1b[36m"},
}

// maxPrinted is the length of the longest text from an object that is printed, in bytes.
const maxPrinted = 4096

// Printable returns a text from objects as a terminal may show it.
func Printable(s string) string { return message.Printable(s, maxPrinted) }

// Print writes the result of an examination, which includes its report, in the format of --output. text writes it as
// text. The error is ErrProblem if something is wrong.
func (e *Environment) Print(x *check.Examination, result any, text func()) error {
	if x.Err != nil {
		return x.Err
	}
	x.Conclude()
	if err := e.Encode(result, text); err != nil {
		return err
	}
	if x.Problem != nil {
		return ErrProblem
	}
	return nil
}

// Encode writes a value in the format of --output. text writes it as text.
func (e *Environment) Encode(value any, text func()) error {
	if e.Output == "" {
		text()
		return nil
	}
	format := "%s\n"
	content, err := json.MarshalIndent(value, "", "  ")
	if e.Output == "yaml" {
		format = "---\n%s"
		content, err = yaml.Marshal(value)
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = fmt.Fprintf(e.Out, format, content)
	return err
}

// WriteError writes the error of a command.
func WriteError(out io.Writer, err error) {
	// Advice on how to call a command has several lines.
	for line := range strings.SplitSeq("error: "+err.Error(), "\n") {
		fmt.Fprintln(out, Printable(strings.ReplaceAll(line, "\t", "  ")))
	}
}

// WriteSteps writes all findings, and then the problem with its remedy.
func WriteSteps(out io.Writer, r *check.Report) {
	writeTable(out, r.Findings)
	if r.Problem != nil {
		writeProblem(out, r.Problem)
	} else {
		fmt.Fprintln(out, nothingWrong)
	}
}

// nothingWrong is written if there is no problem.
const nothingWrong = "\nNothing is wrong."

// WriteChecks writes all findings, and then those that are wrong, each with its remedy.
func WriteChecks(out io.Writer, r *check.Report) { WriteChecksOr(out, r, nothingWrong) }

// WriteChecksOr is WriteChecks with what is written if nothing is wrong.
func WriteChecksOr(out io.Writer, r *check.Report, none string) {
	writeTable(out, r.Findings)
	for i := range r.Findings {
		if f := &r.Findings[i]; f.State == check.Failed {
			writeProblem(out, f)
		}
	}
	if r.Problem == nil {
		fmt.Fprintln(out, none)
	}
}

// writeTable writes a line for each finding, in colour if out is a terminal, and the user does not object
// (https://no-color.org).
func writeTable(out io.Writer, findings []check.Finding) {
	file, ok := out.(*os.File)
	coloured := ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
	table := printers.GetNewTabWriter(out)
	for i := range findings {
		f := &findings[i]
		mark := marks[f.State].text
		if coloured {
			mark = marks[f.State].colour + mark + "\x1b[0m"
		}
		fmt.Fprintf(table, "%s %s\t%s\n", mark, Printable(f.Object()), Printable(f.Text()))
	}
	_ = table.Flush()
}

// writeProblem writes what is wrong, and what to do.
func writeProblem(out io.Writer, f *check.Finding) {
	fmt.Fprintf(out, "\n%s\n  %s\n  What to do: %s\n", Printable(f.Object()), Printable(f.Text()), Printable(f.Remedy))
}
