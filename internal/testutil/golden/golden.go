// Package golden compares what a test generates with golden files: testdata/<name>.yaml beside the test. With the flag
// -update, tests overwrite the golden files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var update = flag.Bool("update", false, "overwrite the golden files")

func Compare(t *testing.T, name string, o any) {
	t.Helper()
	got, err := yaml.Marshal(o)
	check.Must(t, err)
	path := filepath.Join("testdata", name+".yaml")
	if *update {
		check.Must(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	check.Must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("differs from %s, which -update overwrites (-want +got):\n%s", path, diff)
	}
}
