package image

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// dockerfile returns the last stage of a Dockerfile as a Spec without sources.
func dockerfile(t *testing.T, path string) Spec {
	t.Helper()
	data, err := os.ReadFile(path)
	check.Must(t, err)
	s := Spec{Files: map[string]File{}, Labels: map[string]string{}}
	stages := strings.Split(strings.ReplaceAll(string(data), "\\\n", " "), "\nFROM ")
	for line := range strings.Lines(stages[len(stages)-1]) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "COPY":
			words := strings.Fields(rest)
			s.Files[words[len(words)-1]] = File{}
		case "ENTRYPOINT":
			s.Entrypoint = []string{strings.Trim(rest, `[]"`)}
		case "USER":
			s.User = rest
		case "LABEL":
			for rest = strings.TrimSpace(rest); rest != ""; {
				name, value, _ := strings.Cut(rest, `="`)
				value, rest, _ = strings.Cut(value, `"`)
				s.Labels[strings.TrimSpace(name)] = value
				rest = strings.TrimSpace(rest)
			}
		}
	}
	return s
}

func TestDockerfilesDescribeTheSameImages(t *testing.T) {
	for path, want := range map[string]Spec{
		"../../Dockerfile":           Operator("", "", "${VERSION}", ""),
		"../../scorecard/Dockerfile": Scorecard("", "", ""),
	} {
		for name := range want.Files {
			want.Files[name] = File{}
		}
		if want.Labels == nil {
			want.Labels = map[string]string{}
		}
		if diff := cmp.Diff(want, dockerfile(t, path)); diff != "" {
			t.Errorf("%s differs (-spec +Dockerfile):\n%s", path, diff)
		}
	}
}

func TestOperatorsImageMeetsPreflightRequirements(t *testing.T) {
	spec := Operator("", "", "1.2.3", "amd64")
	for _, name := range []string{"name", "vendor", "maintainer", "version", "release", "summary", "description"} {
		if spec.Labels[name] == "" {
			t.Errorf("the label %s is missing", name)
		}
		if value := strings.ToLower(spec.Labels[name]); strings.Contains(value, "red hat") || name != "description" && strings.Contains(value, "openshift") {
			t.Errorf("the label %s contains a trademark: %q", name, value)
		}
	}
	if strings.Trim(spec.User, "0123456789") != "" || strings.Trim(spec.User, "0") == "" {
		t.Errorf("user is %q, want a UID other than 0", spec.User)
	}
	if _, ok := spec.Files["/licenses"]; !ok {
		t.Error("/licenses is missing")
	}
	if len(spec.Files) != 3 {
		t.Errorf("the image contains more than two programs and their licenses: %v", spec.Files)
	}
}

func TestBesideNamesTheImageAfterTheOperators(t *testing.T) {
	for operator, want := range map[string]string{
		"registry.example/a":               "registry.example/a-bundle:v1.2.3",
		"registry.example/a:1":             "registry.example/a-bundle:v1.2.3",
		"registry.example:5000/a":          "registry.example:5000/a-bundle:v1.2.3",
		"registry.example:5000/a:1":        "registry.example:5000/a-bundle:v1.2.3",
		"registry.example:5000/a@sha256:0": "registry.example:5000/a-bundle:v1.2.3",
		"registry.example/a/b:1@sha256:1a": "registry.example/a/b-bundle:v1.2.3",
	} {
		if got := Beside(operator, "bundle", "1.2.3"); got != want {
			t.Errorf("beside %s is %s, want %s", operator, got, want)
		}
	}
}
