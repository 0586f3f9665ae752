package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// parse reads a YAML file of the repository.
func parse(t *testing.T, path string, into any) {
	t.Helper()
	content := read(t, filepath.Join("..", path))
	if err := yaml.Unmarshal([]byte(content), into); err != nil {
		t.Fatalf("parsing %s: %v", path, err)
	}
}

func TestDependabotUpdatesEachModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	parse(t, ".github/dependabot.yml", &config)
	var patterns []string
	for _, u := range config.Updates {
		if u.Ecosystem == "gomod" {
			patterns = append(patterns, u.Directories...)
		}
	}
	used := map[string]bool{}
	root := os.DirFS("..")
	if err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		dir := filepath.Join("/", filepath.Dir(path))
		i := slices.IndexFunc(patterns, func(p string) bool { ok, err := filepath.Match(p, dir); return ok && err == nil })
		if i < 0 {
			t.Errorf(".github/dependabot.yml does not have the module in %s", dir)
			return nil
		}
		used[patterns[i]] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range patterns {
		if !used[p] {
			t.Errorf(".github/dependabot.yml has %s, where no module is", p)
		}
	}
}

// What a workflow runs, a maintainer can run.
func TestWorkflowsRunTargets(t *testing.T) {
	targets := makefile(t, makeTarget)
	checked := 0
	files, err := filepath.Glob("../.github/workflows/*.yaml")
	check.Must(t, err)
	for _, file := range files {
		var workflow struct {
			Jobs map[string]struct {
				Strategy struct {
					Matrix struct {
						Target []string `json:"target"`
					} `json:"matrix"`
				} `json:"strategy"`
				Steps []struct {
					Run string `json:"run"`
				} `json:"steps"`
			} `json:"jobs"`
		}
		parse(t, strings.TrimPrefix(file, "../"), &workflow)
		for _, job := range workflow.Jobs {
			named := job.Strategy.Matrix.Target
			for _, step := range job.Steps {
				if _, arguments, ok := strings.Cut(step.Run, "make "); ok {
					named = append(named, strings.Fields(arguments)...)
				}
			}
			for _, name := range named {
				if strings.ContainsAny(name, `="$`) {
					continue // a variable
				}
				checked++
				if !targets[name] {
					t.Errorf("%s runs make %s, and the Makefile has no such target", file, name)
				}
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d targets were found", checked)
	}
}
