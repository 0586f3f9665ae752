package message_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
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
		{cause: "node", text: "lost", due: true, repeatAfter: message.Repeat},
		{after: message.Repeat - 1, cause: "node", text: "lost", repeatAfter: message.Repeat},
		{cause: "quota", text: "exceeded", due: true, repeatAfter: message.Repeat},
		{after: 1, cause: "node", text: "lost", due: true, repeatAfter: message.Repeat},
		{cause: "node", text: "back", due: true, repeatAfter: message.Repeat},
		{cause: "quota", repeatAfter: message.Repeat},
		{cause: "node"},
		{cause: "node", text: "lost", due: true, repeatAfter: message.Repeat},
	} {
		now = now.Add(step.after)
		if due, repeat := w.Due("claim", step.cause, step.text, now), w.RepeatAfter("claim"); due != step.due || repeat != step.repeatAfter {
			t.Errorf("step %d: got %t and %s", i, due, repeat)
		}
	}
	w.Due("claim", "quota", "exceeded", now)
	if w.Keep("claim", []string{"node", "other"}); w.Due("claim", "node", "lost", now) || !w.Due("claim", "quota", "exceeded", now) {
		t.Error("another cause than the others was kept")
	}
	if w.Keep("claim", nil); w.RepeatAfter("claim") != 0 {
		t.Error("a cause was kept")
	}
	if w.Keep("claim", nil); !w.Due("claim", "node", "lost", now) {
		t.Error("it is not due after the subject was forgotten")
	}
}

// All subjects share a lock.
func TestWarningsCostLinearTime(t *testing.T) {
	growth.CheckLinear(t, map[string]growth.Work{
		"Pod: causes of warnings": {Size: 1000, Do: func(n int) {
			var w message.Warnings[string, int]
			causes := make([]int, n)
			for i := range causes {
				causes[i] = i
				w.Due("pod", i, "text", time.Time{})
			}
			w.Keep("pod", causes)
		}},
	}, ".")
}

func TestOfALongListTheFirstEntriesAreNamed(t *testing.T) {
	ten := strings.Repeat("a, ", 9) + "a"
	for n, want := range map[int]string{0: "", 2: "a, a", 10: ten, 12: ten + " and 2 more"} {
		if got := message.List(slices.Repeat([]string{"a"}, n)); got != want {
			t.Errorf("%d entries: %q, want %q", n, got, want)
		}
	}
}
