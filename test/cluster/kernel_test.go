package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestLimitIsRaisedButNeverLowered(t *testing.T) {
	for name, tc := range map[string]struct{ before, want string }{
		"too low": {"128\n", "512"},
		"enough":  {"512\n", "512\n"},
		"plenty":  {"8192\n", "8192\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limit")
			check.Must(t, os.WriteFile(path, []byte(tc.before), 0o600))
			check.Must(t, ensureLimit(path, 512, NewProgress(nil)))
			if got := read(t, path); got != tc.want {
				t.Errorf("the limit is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestErrorNamesLimitThatIsNotANumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limit")
	check.Must(t, os.WriteFile(path, []byte("many"), 0o600))
	if err := ensureLimit(path, 512, NewProgress(nil)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("ensureLimit says %v, want an error that names %s", err, path)
	}
}
