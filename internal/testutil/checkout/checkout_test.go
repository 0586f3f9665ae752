package checkout_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

func TestRootIsFoundFromNestedModule(t *testing.T) {
	want, err := filepath.Abs("../../..")
	check.Must(t, err)
	for _, dir := range []string{".", want, filepath.Join(want, "hack", "tools", "etcd")} {
		t.Chdir(dir)
		if got, err := checkout.Root(); err != nil || got != want {
			t.Errorf("in %s: Root() = %q, %v, want %q", dir, got, err, want)
		}
	}
}

func TestOutsideOfCheckoutIsAnError(t *testing.T) {
	t.Chdir(os.TempDir())
	if root, err := checkout.Root(); !errors.Is(err, checkout.ErrNotFound) {
		t.Errorf("Root() = %q, %v", root, err)
	}
}
