// Package message limits the messages for users: their length to what the API server accepts in events and statuses,
// their characters to those that a terminal prints, and how often a warning is repeated. It never emits any.
package message

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Maximum lengths in bytes.
const (
	MaxEvent     = 1024
	MaxCondition = 32768
)

// Printable returns s, or the beginning of an s that is too long, in one line as a terminal may show it: with escapes
// in place of characters that are not printed, such as those of control sequences. Users of the cluster choose names
// and texts in messages, and administrators look at them.
func Printable(s string, limit int) string {
	var b strings.Builder
	for len(s) > 0 && b.Len() <= limit {
		r, size := utf8.DecodeRuneInString(s)
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(s[:size])
		} else {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	text := b.String()
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}

const maxListed = 10

// List returns the entries with commas in between, or the first ones and how many more there are.
func List(all []string) string {
	listed := strings.Join(all[:min(len(all), maxListed)], ", ")
	if more := len(all) - maxListed; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return listed
}

// Repeat is when a warning is repeated whose cause lasts: Kubernetes deletes events an hour after the last one, and
// users look at them later. So each cause has at most two events.
const Repeat = 30 * time.Minute

// Warnings remembers the last warning of each cause of a subject, because to the recorder an event about another
// version of an object is another event. It is safe for concurrent use; the zero value is empty.
type Warnings[Subject, Cause comparable] struct {
	mu   sync.Mutex
	last map[Subject]map[Cause]warning
}

// warning is the hash of a warning's text, which may be long, and when it was emitted.
type warning struct {
	text [sha256.Size]byte
	at   time.Time
}

// Due records a warning, and reports whether it is to be emitted now: it differs from the last one with its cause, or
// repeats it. An empty text means that the cause does not hold any more, and is never due.
func (w *Warnings[Subject, Cause]) Due(subject Subject, cause Cause, text string, now time.Time) bool {
	hash := sha256.Sum256([]byte(text))
	w.mu.Lock()
	defer w.mu.Unlock()
	warnings := w.last[subject]
	if text == "" {
		if delete(warnings, cause); len(warnings) == 0 {
			delete(w.last, subject)
		}
		return false
	}
	if last := warnings[cause]; last.text == hash && now.Sub(last.at) < Repeat {
		return false
	}
	if w.last == nil {
		w.last = map[Subject]map[Cause]warning{}
	}
	if warnings == nil {
		warnings = map[Cause]warning{}
		w.last[subject] = warnings
	}
	warnings[cause] = warning{hash, now}
	return true
}

// Keep removes the warnings of a subject except those with these causes. None are left of nil.
func (w *Warnings[Subject, Cause]) Keep(subject Subject, causes []Cause) {
	kept := sets.New(causes...)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.last[subject], func(cause Cause, _ warning) bool { return !kept.Has(cause) })
	if len(w.last[subject]) == 0 {
		delete(w.last, subject)
	}
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

// Differing returns how many bytes differ between the beginning and the end that two texts have in common.
func Differing(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}
