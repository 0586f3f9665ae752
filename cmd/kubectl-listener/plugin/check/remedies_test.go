package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// TestEveryReasonOfAProblemHasARemedy reads the constants of the API, so that a new reason gets a remedy.
func TestEveryReasonOfAProblemHasARemedy(t *testing.T) {
	fine := []string{
		"Accepted", "AddressesAssigned", "NodeReturned", "VolumeMoved", "VolumeRestored", "NodePortsChanged", "SettingsIgnored", "Reserved",
		"AddressChanged", "PodDeleted",
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api", "v1alpha1", "listener_types.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		reasons++
		reason := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		if has := remedies()[reason] != ""; has == slices.Contains(fine, reason) {
			t.Errorf("reason %s has a remedy: %v", reason, has)
		}
		return true
	})
	if reasons < 40 {
		t.Errorf("found %d reasons", reasons)
	}
}

func TestARemedyIsNotSaidTwice(t *testing.T) {
	for _, reason := range []string{"NamespaceNotAllowed", "QuotaExceeded"} {
		if got := RemedyFor(reason, "class x does not allow it; name another class, or ask an administrator to allow it"); strings.Contains(got, "administrator") {
			t.Errorf("%s: %s", reason, got)
		}
		if got := RemedyFor(reason, "class x does not allow it"); got != Remedy(reason) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}
