package cluster

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes lines that tell what is being done and how long it has been going on. It may be used concurrently.
type progress struct {
	mutex  sync.Mutex
	writer io.Writer
	start  time.Time
}

// newProgress returns a progress that starts now. A nil writer discards everything.
func newProgress(w io.Writer) *progress {
	if w == nil {
		w = io.Discard
	}
	return &progress{writer: w, start: time.Now()}
}

// say writes one line.
func (p *progress) say(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintf(p.writer, "%5.1fs %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
