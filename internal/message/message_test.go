package message_test

import (
	"strings"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/message"
)

func TestPrintable(t *testing.T) {
	for name, tc := range map[string]struct{ s, want string }{
		"short":              {"abc", "abc"},
		"as long as allowed": {"abcdefgh", "abcdefgh"},
		"too long":           {"abcdefghi", "abcde..."},
		"within a character": {"abcd" + strings.Repeat("é", 5), "abcd..."},
		"control sequence":   {"\x1b[2J", `\x1b[2J`},
		"within an escape":   {"abc\x1b\x1b", `abc\x...`},
		"two lines":          {"a\nb", `a\nb`},
		"another direction":  {"\u202e", `\u202e`},
		"not UTF-8":          {"a\xff", `a\xff`},
		"printed characters": {"«é»", "«é»"},
	} {
		if got := message.Printable(tc.s, 8); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAWarningIsDueWhenItsTextChangesAndHalfAnHourLater(t *testing.T) {
	var w message.Warnings[string, string]
	now := time.Now()
	for i, step := range []struct {
		after       time.Duration
		cause, text string
		due         bool
		repeatAfter time.Duration
	}{
		{0, "node", "lost", true, message.Repeat},
		{message.Repeat - 1, "node", "lost", false, message.Repeat},
		{0, "quota", "exceeded", true, message.Repeat},
		{1, "node", "lost", true, message.Repeat},
		{0, "node", "back", true, message.Repeat},
		{0, "quota", "", false, message.Repeat},
		{0, "node", "", false, 0},
		{0, "node", "lost", true, message.Repeat},
	} {
		now = now.Add(step.after)
		if due, repeat := w.Due("claim", step.cause, step.text, now), w.RepeatAfter("claim"); due != step.due || repeat != step.repeatAfter {
			t.Errorf("step %d: got %t and %s", i, due, repeat)
		}
	}
	if w.Forget("claim"); !w.Due("claim", "node", "lost", now) {
		t.Error("it is not due after the subject was forgotten")
	}
}
