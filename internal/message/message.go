// Package message limits the messages for users: their length to what the API server accepts, because a longer one
// loses the event or makes the status invalid, and how often a warning is repeated. It never emits any.
package message

import "strings"

// Maximum lengths in bytes.
const (
	// MaxEvent is that of the note of an event.
	MaxEvent = 1024
	// MaxCondition is that of the message of a condition.
	MaxCondition = 32768
)

// Truncate returns s, or the beginning of an s that is too long.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "..."
}
