package exposure_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// The hashes must not change: hosts of existing Routes contain them.
func TestLongNamesAreShortened(t *testing.T) {
	long := strings.Repeat("a", 70)
	for _, tc := range []struct {
		name  string
		limit int
		want  string
	}{
		{name: long[:63], limit: 63, want: long[:63]},
		{name: long[:64], limit: 63, want: long[:54] + "-ffe054fe"},
		{name: long, limit: 63, want: long[:54] + "-6bd5e503"},
		{name: long + "b", limit: 63, want: long[:54] + "-ffe7dc5b"},
		{name: long, limit: 20, want: long[:11] + "-6bd5e503"},
		{name: long[:50] + "-------" + long[:20], limit: 63, want: long[:50] + "-f384ca7a"},
	} {
		if got := exposure.Shorten(tc.name, tc.limit); got != tc.want {
			t.Errorf("%q to %d: got %q, want %q", tc.name, tc.limit, got, tc.want)
		}
	}
}

func TestLabelsOfNamesWithDotsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a-b-c", "a.b-c", "a-b.c", "a.b.c", strings.Repeat("a.", 100) + "a", strings.Repeat("a.", 100) + "b", "a", "a."} {
		label := exposure.Label(name)
		if problems := validation.IsDNS1123Label(label); len(problems) > 0 {
			t.Errorf("%q becomes %q: %v", name, label, problems)
		}
		if other, ok := seen[label]; ok {
			t.Errorf("%q and %q both become %q", other, name, label)
		}
		seen[label] = name
	}
	if got := exposure.Label("a-b-c"); got != "a-b-c" {
		t.Errorf("a name without dots becomes %q", got)
	}
}
