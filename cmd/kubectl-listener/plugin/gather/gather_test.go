package gather

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestTheEndOfALogIsKept(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		log      string
		most     int
		err      error
		want     string
		complete bool
	}{
		"nothing":                           {most: 10, complete: true},
		"as much as is kept":                {log: "123\n56789\n", most: 10, want: "123\n56789\n", complete: true},
		"one byte more":                     {log: "123\n56789\na", most: 10, want: "56789\na"},
		"much more":                         {log: strings.Repeat("a line\n", 1000) + "last\n", most: 14, want: "a line\nlast\n"},
		"a long line":                       {log: "first\n" + strings.Repeat("a", 1000) + "b\n", most: 4, want: "aab\n"},
		"a long line without a break":       {log: strings.Repeat("a", 1000) + "bc", most: 4, want: "aabc"},
		"a failure keeps what was read":     {log: "a\nb\n", most: 10, err: broken, want: "a\nb\n", complete: true},
		"a failure keeps the end before it": {log: "first\nb\nc\n", most: 5, err: broken, want: "b\nc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := iotest.OneByteReader(strings.NewReader(tc.log))
			if tc.err != nil {
				stream = io.MultiReader(stream, iotest.ErrReader(tc.err))
			}
			got, complete, err := end(stream, tc.most)
			if string(got) != tc.want || complete != tc.complete || !errors.Is(err, tc.err) {
				t.Errorf("got %q, %t, error %v; want %q, %t", got, complete, err, tc.want, tc.complete)
			}
		})
	}
}
