package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestParagraphsBecomeLines(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"one line":          {"port is the port.", "port is the port."},
		"a sentence":        {"port is\nthe port.", "port is the port."},
		"two paragraphs":    {"port is\nthe port.\n\nIt is\na number.", "port is the port.\n\nIt is a number."},
		"a list":            {"One of:\n- a, which is\nlong\n- b", "One of:\n- a, which is long\n- b"},
		"an indented block": {"For example\nthis:\n  a: 1\n  b: 2\nIt means\nthat.", "For example this:\n  a: 1\n  b: 2\nIt means that."},
		"a link":            {"Limits are\nlimits.\nMore info: https://example.com/\nAnd more.", "Limits are limits.\nMore info: https://example.com/\nAnd more."},
	} {
		if diff := cmp.Diff(tc.want, joinLines(tc.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyDescriptionsChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	before := "---\npattern: |-\n  a\n  b\nproperties:\n  description:\n    description: |-\n      the\n      text\n    maxLength: 3\n    type: string\nversions:\n- description: |-\n    a\n    b\n"
	check.Must(t, os.WriteFile(file, []byte(before), 0o600))
	check.Must(t, run(filepath.Dir(file)))
	after, err := os.ReadFile(file)
	check.Must(t, err)
	want := "---\npattern: |-\n  a\n  b\nproperties:\n  description:\n    description: the text\n    maxLength: 3\n    type: string\nversions:\n- description: a b\n"
	check.Equal(t, "file", want, string(after))
}

// kubectl explain is where users look for the meaning of a field.
func TestDescriptionsAreNotBrokenInTheMiddleOfASentence(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		copied := filepath.Join(t.TempDir(), filepath.Base(file))
		before, err := os.ReadFile(file)
		check.Must(t, err)
		check.Must(t, os.WriteFile(copied, before, 0o600))
		check.Must(t, rewrite(copied))
		after, err := os.ReadFile(copied)
		check.Must(t, err)
		if diff := cmp.Diff(string(before), string(after)); diff != "" {
			t.Errorf("%s needs make generate (-want +got):\n%s", file, diff)
		}
	}
}
