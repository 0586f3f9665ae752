package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestInterpretReturnsWhatAShellWouldRun(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   [][]string
	}{
		"arguments":      {`kubectl get 'a b' "c d" \` + "\n  e  # comment", [][]string{{"kubectl", "get", "a b", "c d", "e"}}},
		"a pipe":         {"kubectl get pods | grep -v x", [][]string{{"kubectl", "get", "pods"}, {"grep", "-v", "x"}}},
		"a loop":         {"for n in a b; do\n  kubectl get $n\ndone", [][]string{{"kubectl", "get", "a"}, {"kubectl", "get", "b"}}},
		"a variable":     {"A=1 kubectl get x > y.yaml && make z", [][]string{{"kubectl", "get", "x"}, {"make", "z"}}},
		"a substitution": {`kubectl annotate x="$(date -u)"`, [][]string{{"date", "-u"}, {"kubectl", "annotate", "x="}}},
		"nothing":        {"# a comment", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][]string
			for _, c := range interpret(t, Place{}, tc.script) {
				got = append(got, c.Args)
			}
			if name == "a pipe" && len(got) == 2 && got[0][0] == "grep" { // both run at once
				got[0], got[1] = got[1], got[0]
			}
			check.Equal(t, "commands", tc.want, got)
		})
	}
}

func TestProgramsOfAPipeAreRecordedOneByOne(t *testing.T) {
	for range 200 {
		got := map[string]bool{}
		for _, c := range interpret(t, Place{}, "a 'two\nlines' | b 'two\nlines' | c 'two\nlines'") {
			got[c.String()] = true
		}
		if diff := cmp.Diff(map[string]bool{"a two\nlines": true, "b two\nlines": true, "c two\nlines": true}, got); diff != "" {
			t.Fatalf("commands (-want +got):\n%s", diff)
		}
	}
}

func TestPromptedReturnsCommandsWithoutOutput(t *testing.T) {
	if got, want := prompted("$ a \\\n  b\noutput\n$ c\n"), "a \\\n  b\nc\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
