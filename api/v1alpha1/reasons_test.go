package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Users look up the reason of a condition or an event in docs/usage.md.
func TestEveryReasonIsDocumented(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "usage.md"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "listener_types.go", nil, parser.SkipObjectResolution)
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
		value := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		if !strings.Contains(string(manual), "`"+value+"`") {
			t.Errorf("docs/usage.md does not describe the reason %s", value)
		}
		return false
	})
	if reasons == 0 {
		t.Error("listener_types.go declares no reasons")
	}
}
