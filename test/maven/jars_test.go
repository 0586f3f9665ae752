package maven

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestOnlyLockedJarsAreUsed(t *testing.T) {
	const sums = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  a.jar\n" // of "x"
	for name, tc := range map[string]struct {
		files map[string]string
		want  error
	}{
		"the locked ones": {files: map[string]string{"a.jar": "x"}},
		"another content": {files: map[string]string{"a.jar": "y"}, want: ErrOtherJars},
		"one more":        {files: map[string]string{"a.jar": "x", "b.jar": "x"}, want: ErrOtherJars},
		"none":            {want: ErrOtherJars},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.files {
				check.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			if err := checkJars(dir, sums); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

func TestEachProductHasChecksums(t *testing.T) {
	poms, err := fs.Glob(locked, "*/pom.xml")
	if err != nil || len(poms) == 0 {
		t.Fatalf("no products: %v", err)
	}
	for _, pom := range poms {
		if sums, err := locked.ReadFile(filepath.Dir(pom) + "/sha256sums"); err != nil || len(sums) == 0 {
			t.Errorf("%s has no checksums: %v", pom, err)
		}
	}
}
