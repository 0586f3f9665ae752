package message

import (
	"sync"
	"time"
)

// Repeat is when a warning is repeated whose cause lasts: Kubernetes deletes events an hour after the last one, and
// users look at them later. So each cause has at most two events.
const Repeat = 30 * time.Minute

// Warnings remembers the last warning of each cause of a subject. The recorder does not suppress repetitions: to it, an
// event about another version of an object is another event. Warnings is safe for concurrent use; the zero value is
// empty.
type Warnings[Subject, Cause comparable] struct {
	mu   sync.Mutex
	last map[Subject]map[Cause]warning
}

// warning is the text of a warning, and when it was emitted.
type warning struct {
	text string
	at   time.Time
}

// Due records a warning, and reports whether it is to be emitted now: it differs from the last one with its cause, or
// repeats it. An empty text means that the cause does not hold any more, and is never due.
func (w *Warnings[Subject, Cause]) Due(subject Subject, cause Cause, text string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	warnings := w.last[subject]
	if text == "" {
		if delete(warnings, cause); len(warnings) == 0 {
			delete(w.last, subject)
		}
		return false
	}
	if last := warnings[cause]; last.text == text && now.Sub(last.at) < Repeat {
		return false
	}
	if w.last == nil {
		w.last = map[Subject]map[Cause]warning{}
	}
	if warnings == nil {
		warnings = map[Cause]warning{}
		w.last[subject] = warnings
	}
	warnings[cause] = warning{text, now}
	return true
}

// RepeatAfter returns when the warnings of a subject are repeated, or 0 if there are none.
func (w *Warnings[Subject, Cause]) RepeatAfter(subject Subject) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.last[subject]) == 0 {
		return 0
	}
	return Repeat
}

// Forget removes the warnings of a subject.
func (w *Warnings[Subject, Cause]) Forget(subject Subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, subject)
}
