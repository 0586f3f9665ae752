package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// Print writes a report in the format of --output. write writes it as text. The error is ErrProblem if something is
// wrong.
func (e *Environment) Print(r *check.Report, write func(io.Writer, *check.Report)) error {
	r.Conclude()
	if err := e.Encode(r, func() { write(e.Out, r) }); err != nil {
		return err
	}
	if r.Problem != nil {
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
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && e.Output == outputYAML {
		content, err = yaml.JSONToYAML(content)
		content = append([]byte("---\n"), content...)
	} else {
		content = append(content, '\n')
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = e.Out.Write(content)
	return err
}

// mark is the mark of a state, and its colour in terminals.
type mark struct{ text, colour string }

// markOf returns the mark of a state.
func markOf(s check.State) mark {
	switch s {
	case check.OK:
		return mark{"✓", "\x1b[32m"}
	case check.Failed:
		return mark{"✗", "\x1b[31m"}
	case check.Warning:
		return mark{"!", "\x1b[33m"}
	default:
		return mark{"?", "\x1b[36m"}
	}
}

// Mark returns the mark of a state.
func Mark(s check.State) string { return markOf(s).text }

// paint returns the mark of a state, in colour if out is a terminal, and the user does not object
// (https://no-color.org).
func paint(out io.Writer, s check.State) string {
	m := markOf(s)
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("NO_COLOR") != "" {
		return m.text
	}
	return m.colour + m.text + "\x1b[0m"
}

// WriteSteps writes all findings, and then the problem with its remedy.
func WriteSteps(out io.Writer, r *check.Report) {
	WriteTable(out, r.Findings)
	switch {
	case r.Problem != nil:
		WriteProblem(out, r.Problem)
	default:
		fmt.Fprintln(out, "\nNothing is wrong.")
	}
}

// WriteChecks writes all findings, and then those that are wrong, each with its remedy.
func WriteChecks(out io.Writer, r *check.Report) {
	WriteTable(out, r.Findings)
	failed := 0
	for i := range r.Findings {
		if f := &r.Findings[i]; f.State == check.Failed {
			failed++
			WriteProblem(out, f)
		}
	}
	if failed == 0 {
		fmt.Fprintln(out, "\nNothing is wrong.")
	}
}

// WriteTable writes a line for each finding.
func WriteTable(out io.Writer, findings []check.Finding) {
	table := printers.GetNewTabWriter(out)
	for i := range findings {
		f := &findings[i]
		fmt.Fprintf(table, "%s %s\t%s\n", paint(out, f.State), Printable(f.Object()), Printable(f.Text()))
	}
	_ = table.Flush()
}

// WriteProblem writes what is wrong, and what to do.
func WriteProblem(out io.Writer, f *check.Finding) {
	fmt.Fprintf(out, "\n%s\n  %s\n  What to do: %s\n", Printable(f.Object()), Printable(f.Text()), Printable(f.Remedy))
}
