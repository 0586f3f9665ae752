// Package message limits the messages for users: their length to what the API server accepts, because a longer one
// loses the event or makes the status invalid; their characters to those that a terminal prints; and how often a
// warning is repeated. It never emits any.
package message

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths in bytes.
const (
	// MaxEvent is that of the note of an event.
	MaxEvent = 1024
	// MaxCondition is that of the message of a condition.
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
