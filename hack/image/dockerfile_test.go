package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestFromDockerfile(t *testing.T) {
	for name, tc := range map[string]struct {
		content, err string
		want         Spec
	}{
		"labels and files": {
			content: "# Comment.\nFROM scratch\n\nLABEL a=\"1\"\nLABEL b=/c\nCOPY x/y /y/\n",
			want:    Spec{Labels: map[string]string{"a": "1", "b": "/c"}, Files: map[string]File{"/y/": {Source: "dir/x/y", Mode: 0o644}}},
		},
		"a command":  {content: "FROM scratch\nRUN true\n", err: "unsupported instruction: RUN true"},
		"a base":     {content: "FROM base\n", err: "unsupported instruction: FROM base"},
		"two labels": {content: "FROM scratch\nLABEL a=1 b=2\n", err: "unsupported instruction: LABEL"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "Dockerfile")
			check.Must(t, os.WriteFile(path, []byte(tc.content), 0o600))
			got, err := FromDockerfile(path, "dir")
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			check.Equal(t, "spec", tc.want, got)
		})
	}
}
