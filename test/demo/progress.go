package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// progress writes lines that tell what is being done, each with the time since the start.
type progress struct {
	writer io.Writer
	start  time.Time
}

// newProgress returns a progress that starts now.
func newProgress(w io.Writer) *progress {
	return &progress{writer: w, start: time.Now()}
}

// say writes one line.
func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.writer, "%5.1fs %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// indented marks lines as details of the step before. It gets whole lines only.
type indented struct{ io.Writer }

func (i indented) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if _, err := fmt.Fprintf(i.Writer, "       %s", line); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}
