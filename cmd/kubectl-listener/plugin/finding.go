package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// state is what is known about an object.
type state string

const (
	stateOK state = "OK"
	// stateWarning needs no action, or not by the user who asks.
	stateWarning state = "Warning"
	// stateFailed is wrong.
	stateFailed state = "Failed"
	// stateUnknown is what the user may not read.
	stateUnknown state = "Unknown"
)

// finding is what is known about one object. Its JSON is part of the output.
type finding struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	State     state  `json:"state"`
	// Reason is a reason of conditions and events of the operator or of Kubernetes, or empty.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Remedy is what to do. It is set for what is wrong.
	Remedy string `json:"remedy,omitempty"`

	// symptom states that the cause may be another finding.
	symptom bool
}

// object returns the kind and the name of the object.
func (f *finding) object() string {
	switch {
	case f.Name == "":
		return f.Kind
	case f.Namespace == "":
		return f.Kind + " " + f.Name
	default:
		return f.Kind + " " + f.Namespace + "/" + f.Name
	}
}

// report is the result of a command.
type report struct {
	Findings []finding `json:"findings"`
	// Problem is the first finding that is wrong, and not the consequence of another one, or null.
	Problem *finding `json:"problem"`
}

// add adds a finding, unless the report has it already.
func (r *report) add(f finding) {
	if !slices.Contains(r.Findings, f) {
		r.Findings = append(r.Findings, f)
	}
}

// conclude sets Problem.
func (r *report) conclude() {
	for _, symptoms := range []bool{false, true} {
		for i := range r.Findings {
			if f := &r.Findings[i]; r.Problem == nil && f.State == stateFailed && f.symptom == symptoms {
				r.Problem = f
			}
		}
	}
}

// print writes a report in the format of --output. write writes it as text. The error is ErrProblem if something is
// wrong.
func (e *environment) print(r *report, write func(io.Writer, *report)) error {
	r.conclude()
	if err := e.encode(r, func() { write(e.Out, r) }); err != nil {
		return err
	}
	if r.Problem != nil {
		return ErrProblem
	}
	return nil
}

// encode writes a value in the format of --output. text writes it as text.
func (e *environment) encode(value any, text func()) error {
	if e.output == "" {
		text()
		return nil
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && e.output == outputYAML {
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

func (s state) mark() mark {
	switch s {
	case stateOK:
		return mark{"✓", "\x1b[32m"}
	case stateFailed:
		return mark{"✗", "\x1b[31m"}
	case stateWarning:
		return mark{"!", "\x1b[33m"}
	default:
		return mark{"?", "\x1b[36m"}
	}
}

// paint returns the mark of a state, in colour if out is a terminal, and the user does not object
// (https://no-color.org).
func paint(out io.Writer, s state) string {
	m := s.mark()
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("NO_COLOR") != "" {
		return m.text
	}
	return m.colour + m.text + "\x1b[0m"
}

// text returns the reason and the message.
func (f *finding) text() string {
	if f.Reason == "" {
		return f.Message
	}
	return f.Reason + ": " + f.Message
}

// writeSteps writes all findings, and then the problem with its remedy.
func writeSteps(out io.Writer, r *report) {
	writeTable(out, r.Findings)
	switch {
	case r.Problem != nil:
		writeProblem(out, r.Problem)
	default:
		fmt.Fprintln(out, "\nNothing is wrong.")
	}
}

// writeTable writes a line for each finding.
func writeTable(out io.Writer, findings []finding) {
	table := printers.GetNewTabWriter(out)
	for i := range findings {
		f := &findings[i]
		fmt.Fprintf(table, "%s %s\t%s\n", paint(out, f.State), printable(f.object()), printable(f.text()))
	}
	_ = table.Flush()
}

// writeProblem writes what is wrong, and what to do.
func writeProblem(out io.Writer, f *finding) {
	fmt.Fprintf(out, "\n%s\n  %s\n  What to do: %s\n", printable(f.object()), printable(f.text()), printable(f.Remedy))
}
