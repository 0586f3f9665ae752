package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestEachReasonHasAnAnchor: users look up the reason of a condition or an event in reasons.md, and other pages link to
// it.
func TestEachReasonHasAnAnchor(t *testing.T) {
	page := read(t, "reasons.md")
	for _, path := range []string{"../api/v1alpha1/listener_types.go", "../api/operator/v1alpha1/listeneroperator_types.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
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
			if anchored := `<a id="` + strings.ToLower(value) + "\"></a>`" + value + "`"; strings.Count(page, anchored) != 1 {
				t.Errorf("reasons.md does not have %s once", anchored)
			}
			return false
		})
		if reasons == 0 {
			t.Errorf("%s declares no reasons", path)
		}
	}
}
