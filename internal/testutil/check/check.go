// Package check fails tests: at an error, and if something differs from what is expected. Only tests may import it.
package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test if got, which what describes, is not as expected.
func Equal(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
