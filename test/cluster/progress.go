package cluster

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress writes lines that report the steps of a program, each with the time since the start. It is safe for
// concurrent use.
type Progress struct {
	mutex  sync.Mutex
	writer io.Writer
	start  time.Time
}

// NewProgress returns a Progress that starts now. A nil writer discards everything.
func NewProgress(w io.Writer) *Progress {
	if w == nil {
		w = io.Discard
	}
	return &Progress{writer: w, start: time.Now()}
}

// Printf writes one line.
func (p *Progress) Printf(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintf(p.writer, "%5.1fs %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
