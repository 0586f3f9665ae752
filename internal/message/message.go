// Package message keeps what users are told within what the API server takes: it drops an event, and rejects a status,
// that has more.
package message

import "strings"

// Limits in bytes.
const (
	// Event is how long the note of an event may be.
	Event = 1024
	// Condition is how long the message of a condition may be.
	Condition = 32768
)

// Cut returns s, or the beginning of an s that is too long.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "..."
}
