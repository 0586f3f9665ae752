package listener

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// The way of a Listener through this package is one descent: no two files use each other, nor through others.
func TestNoFileUsesOneAboveIt(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared, used := map[string]string{}, map[string]sets.Set[string]{} // names by file
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			for _, declaredName := range namesOf(declaration) {
				declared[declaredName] = name
			}
		}
		used[name] = sets.Set[string]{}
		for _, identifier := range file.Unresolved { // within the file
			used[name].Insert(identifier.Name)
		}
	}
	if declared["Reconciler"] != "reconciler.go" || !used["watches.go"].Has("Reconciler") {
		t.Fatal("the names in the files were not found")
	}
	for ground := true; ground; { // without the lowest files, others are the lowest
		ground = false
		for name, others := range used {
			below := sets.Set[string]{}
			for other := range others {
				if file := declared[other]; file != name && used[file] != nil {
					below.Insert(other)
				}
			}
			if used[name] = below; len(below) == 0 {
				delete(used, name)
				ground = true
			}
		}
	}
	for name, others := range used {
		t.Errorf("%s uses names of files that use it, or that such a file uses: %v", name, sets.List(others))
	}
}

// namesOf returns the names that a declaration declares in the package, without methods.
func namesOf(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
