// Package message limits the length of messages to what the API server accepts: a longer one loses the event, or makes
// the status invalid.
package message

import (
	"strings"
	"time"
)

// Maximum lengths in bytes.
const (
	// MaxEvent is that of the note of an event.
	MaxEvent = 1024
	// MaxCondition is that of the message of a condition.
	MaxCondition = 32768
)

// Repeat is when a warning is repeated whose cause lasts: Kubernetes deletes events an hour after the last one, and
// users look at them later. So each cause has at most two events.
const Repeat = 30 * time.Minute

// Truncate returns s, or the beginning of an s that is too long.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "..."
}
