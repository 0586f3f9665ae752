package reasons_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// declared returns the values of the constants of the API that are reasons, by their names.
func declared(t *testing.T) map[string]string {
	t.Helper()
	constants := map[string]string{}
	for _, file := range []string{"../v1alpha1/listener_types.go", "../operator/v1alpha1/listeneroperator_types.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		check.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
				constants[spec.Names[0].Name] = strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
			}
			return true
		})
	}
	if len(constants) < 100 {
		t.Fatalf("the API declares %d reasons", len(constants))
	}
	return constants
}

// product returns the source of the product without the API.
func product(t *testing.T) string {
	t.Helper()
	var source strings.Builder
	for _, dir := range []string{"controllers", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			source.Write(content)
			return err
		})
		check.Must(t, err)
	}
	return source.String()
}

// What the operator or the plugin says can be looked up, and nothing else.
func TestEachReasonHasARowAndEachRowIsUsed(t *testing.T) {
	rows := map[string]int{}
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			rows[r.Name]++
			harmless := r.Severity == reasons.Expected || r.Severity == reasons.Waiting
			if r.Meaning == "" || r.Severity == "" || !harmless && r.Remedy == "" || r.Actor != reasons.Nobody && r.Remedy == "" {
				t.Errorf("the row of %s is not complete: %+v", r.Name, r)
			}
		}
	}
	used, uses := map[string]bool{}, map[string]bool{}
	for _, match := range regexp.MustCompile(`(?:\breasons\.)?\b([A-Z]\w+)`).FindAllStringSubmatch(product(t), -1) {
		uses[match[0]], uses[match[1]] = true, true
	}
	for constant, reason := range declared(t) {
		used[reason] = uses[constant]
		if rows[reason] != 1 {
			t.Errorf("%s has %d rows", reason, rows[reason])
		}
	}
	for _, kind := range backends.All().Generated() {
		for _, reason := range []string{kind.ForeignReason(), kind.RejectedReason()} {
			if rows[reason] != 1 {
				t.Errorf("%s of kind %s has %d rows", reason, kind.Kind, rows[reason])
			}
			used[reason] = true
		}
		used[reasons.WaitingFor(kind.Kind)] = true
	}
	for reason := range rows {
		if !used[reason] && !uses["reasons."+reason] {
			t.Errorf("nothing uses the row of %s", reason)
		}
	}
}

// TestTypesOfEventsFollowTheTable reads the calls that name type and reason.
func TestTypesOfEventsFollowTheTable(t *testing.T) {
	constants := declared(t)
	calls := regexp.MustCompile(`corev1\.EventType(Warning|Normal), (?:listeners|operator)v1alpha1\.(Reason\w+)`).FindAllStringSubmatch(product(t), -1)
	if len(calls) == 0 {
		t.Fatal("there are no such calls")
	}
	for _, call := range calls {
		if want := reasons.EventType(constants[call[2]]); call[1] != want {
			t.Errorf("events of %s are %s, and %s in the table", call[2], call[1], want)
		}
	}
}

// test/docs looks at the links of the pages.
func TestRemediesNamePagesThatExist(t *testing.T) {
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			for _, page := range regexp.MustCompile(`docs/[\w-]+\.md`).FindAllString(r.Meaning+r.Remedy, -1) {
				if _, err := os.Stat(filepath.Join("..", "..", page)); err != nil {
					t.Errorf("%s: %v", r.Name, err)
				}
			}
		}
	}
}

func TestARemedyNamesItsObject(t *testing.T) {
	r := reasons.Of("PinnedToNode")
	if got := r.For("shop", "pv", "{claim}", "web"); !strings.HasSuffix(got, "kubectl listener release web --namespace shop --force") {
		t.Error(got)
	}
	unknown := reasons.Of("OfALaterVersion")
	if unknown.Severity != reasons.Warning || !slices.Equal(unknown.Causes, nil) || unknown.Remedy == "" {
		t.Errorf("%+v", unknown)
	}
}

// The command says this itself.
func TestNoRemedyIsToAskWhyAgain(t *testing.T) {
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			if strings.Contains(r.Remedy, "kubectl listener why") {
				t.Errorf("%s: %s", r.Name, r.Remedy)
			}
		}
	}
}
