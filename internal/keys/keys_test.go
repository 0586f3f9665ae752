package keys_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// What package names defines below a domain of the operator is a key, or is named here.
func TestTheTableHasEachKey(t *testing.T) {
	others := []string{
		names.Driver, names.Signer, names.FieldManagerDefault, names.FieldManagerVolume, names.FieldManagerService, names.FieldManagerListenerStatus,
		names.PodMountLabelPrefix, names.TrustBundlePrefix,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../names/names.go", nil, 0)
	check.Must(t, err)
	defined := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if domain, _, qualified := strings.Cut(value, "/"); err == nil && qualified && strings.HasPrefix(domain, "listener") && strings.Contains(domain, ".") {
			if !slices.Contains(others, value) && !strings.HasPrefix(value, "github.com") {
				defined[value] = true
			}
		}
		return true
	})
	for _, key := range keys.Table() {
		if !defined[key.Name] {
			t.Errorf("package names does not define %s", key.Name)
		}
		if len(key.On) == 0 {
			t.Errorf("%s belongs nowhere", key.Name)
		}
		delete(defined, key.Name)
	}
	check.Equal(t, "keys that are not in the table", map[string]bool{}, defined)
}

// Each key is right where it belongs, and is explained everywhere else, whatever is wrong with it.
func TestEachMistakeHasASentence(t *testing.T) {
	places := map[keys.Place]bool{{Field: "label", Kind: "a Pod"}: true}
	for _, key := range keys.Table() {
		for _, place := range key.On {
			places[place] = true
		}
	}
	for _, key := range keys.Table() {
		value := "x"
		if key.Values != "" {
			value, _, _ = strings.Cut(key.Values, " or ")
			if got := keys.Problem(key.On[0], key.Name, "xy"); !strings.Contains(got, `is "xy", and must be `+key.Values) {
				t.Errorf("%s: %q", key.Name, got)
			}
		}
		for place := range places {
			belongs := slices.Contains(key.On, place)
			for _, value := range []string{value, ""} {
				if got := keys.Problem(place, key.Name, value); belongs != (got == "") || !belongs && !strings.Contains(got, key.On[0].String()) {
					t.Errorf("%s of %s, %q: %q", key.Name, place, value, got)
				}
			}
			if !belongs || key.Meaning == "" {
				continue
			}
			// With a letter too few, under the other domain, and as another user would write it.
			domain, name, _ := strings.Cut(key.Name, "/")
			other := map[string]string{names.Driver: "listener-operator.dev", "listener-operator.dev": names.Driver}[domain]
			for _, wrong := range []string{key.Name[:len(key.Name)-1], other + "/" + name, domain + "/" + strings.ReplaceAll(name, "-", "")} {
				if wrong != key.Name && !keys.Known(wrong) {
					if got := keys.Problem(place, wrong, value); !strings.HasSuffix(got, "did you mean "+key.Name+"?") {
						t.Errorf("%s of %s: %q", wrong, place, got)
					}
				}
			}
		}
	}
}

func TestWhatPeopleWriteInstead(t *testing.T) {
	for _, tc := range []struct {
		place     keys.Place
		key, want string
	}{
		{keys.Pod, "listener-operator.dev/inject-containres", "did you mean listener-operator.dev/inject-containers?"},
		{keys.Pod, "listeners.stackable.tech/inject", "did you mean listener-operator.dev/inject?"},
		{keys.Pod, "listener-operator.dev/class", "did you mean listener-operator.dev/inject?"},
		{keys.Pod, names.AnnotationListenerClass, "it must be the annotation of a claim, or the attribute of an inline volume: did you mean listener-operator.dev/inject?"},
		{keys.Place{Field: "label", Kind: "a Pod"}, names.AnnotationInject, "has no effect on a Pod: it must be the annotation of a Pod"},
		{keys.Place{Field: "annotation", Kind: "a StatefulSet"}, names.AnnotationInject, "it must be the annotation of a Pod"},
		{keys.Place{Field: "annotation", Kind: "a Namespace"}, names.LabelInjection, "it must be the label of a Namespace"},
		{keys.Claim, "listener-operator.dev/port", "did you mean listener-operator.dev/ports?"},
		{keys.Claim, names.AttributeKeep, "it must be the attribute of an inline volume"},
		{keys.Claim, "listener-operator.dev/anything-else", "is unknown: docs/api.md#"},
		{keys.Volume, "ports", "did you mean listener-operator.dev/ports?"},
		{keys.Volume, "unrelated", "is unknown: docs/api.md#"},
		{keys.Volume, "example.com/ports", ""},
		{keys.Claim, "ports", ""},
		{keys.Claim, "example.com/class", ""},
		{keys.Claim, names.AnnotationProvisioner, ""},
		{keys.Pod, names.AnnotationServiceAccount, ""},
		{keys.Place{Field: "label", Kind: "a Pod"}, names.PodMountLabel("1"), ""},
		{keys.Claim, "", ""},
	} {
		if got := keys.Problem(tc.place, tc.key, ""); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s of %s: %q, want %q", tc.key, tc.place, got, tc.want)
		}
	}
	got := keys.Problems("a Pod", &metav1.ObjectMeta{
		Annotations: map[string]string{names.AttributeKeep: "yes", names.AnnotationPorts: "http"}, Labels: map[string]string{names.AnnotationInject: "x", "app": "web"},
	})
	if len(got) != 2 || !strings.HasPrefix(got[0], "the annotation "+names.AttributeKeep) || !strings.HasPrefix(got[1], "the label "+names.AnnotationInject) {
		t.Errorf("got %q", got)
	}
}

func TestCommasAndBlanksSeparateTheElementsOfAList(t *testing.T) {
	for value, want := range map[string][]string{"": nil, " ,\t": nil, "a": {"a"}, "a, b,,c\td\n e ": {"a", "b", "c", "d", "e"}} {
		if diff := cmp.Diff(want, keys.List(value)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
	}
}
