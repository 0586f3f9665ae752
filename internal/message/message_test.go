package message_test

import (
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/message"
)

func TestTruncate(t *testing.T) {
	for name, tc := range map[string]struct{ s, want string }{
		"short":              {"abc", "abc"},
		"as long as allowed": {"abcdefgh", "abcdefgh"},
		"too long":           {"abcdefghi", "abcde..."},
		"within a character": {"abcd" + strings.Repeat("é", 5), "abcd..."},
	} {
		if got := message.Truncate(tc.s, 8); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
