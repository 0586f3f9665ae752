package checkout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// read returns a file of the checkout, and the paths and tests that it has.
func read(t *testing.T, name string) (content string, paths, tests []string) {
	t.Helper()
	root, err := checkout.Root()
	check.Must(t, err)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	if err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var content []byte
			content, err = os.ReadFile(path)
			for _, match := range function.FindAllSubmatch(content, -1) {
				tests = append(tests, string(match[1]))
			}
		}
		paths = append(paths, strings.TrimPrefix(path, root+"/"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, name))
	check.Must(t, err)
	return string(raw), paths, tests
}

// A rule about a file that was renamed would be without effect.
func TestThePathsInTheConfigurationOfTheLintersExist(t *testing.T) {
	content, paths, _ := read(t, ".golangci.yml")
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct{ Files []string }
				}
			}
			Exclusions struct {
				Rules []struct{ Path string }
			}
		}
	}
	check.Must(t, yaml.Unmarshal([]byte(content), &config))
	glob := strings.NewReplacer("**/", "(.*/)?", "/**", "/.*", "*", "[^/]*", ".", `\.`)
	var patterns []string
	for _, rule := range config.Linters.Settings.Depguard.Rules {
		for _, file := range rule.Files {
			if file = strings.TrimPrefix(file, "!"); !strings.HasPrefix(file, "$") { // one of depguard's own names
				patterns = append(patterns, "^"+glob.Replace(file)+"$")
			}
		}
	}
	for _, rule := range config.Linters.Exclusions.Rules {
		inner := strings.TrimSuffix(strings.TrimPrefix(rule.Path, "("), ")")
		patterns = append(patterns, strings.Split(inner, "|^")...)
	}
	for _, pattern := range patterns {
		if !slices.ContainsFunc(paths, regexp.MustCompile(pattern).MatchString) {
			t.Errorf("no file has a path like %s", pattern)
		}
	}
	if len(patterns) < 20 {
		t.Errorf("found only %q", patterns)
	}
}

// A test that was renamed would not run any more. Groups of scenarios are lists of functions, see test/e2e.
func TestTheTestsThatTheMakefileNamesExist(t *testing.T) {
	content, _, tests := read(t, "Makefile")
	var names []string
	for _, match := range regexp.MustCompile(`-run '?([\w^|$]+)'? `).FindAllStringSubmatch(content, -1) {
		names = append(names, strings.Split(match[1], "|")...)
	}
	for _, name := range names {
		fragment := strings.Trim(name, "^$")
		if !slices.ContainsFunc(tests, func(test string) bool { return strings.Contains(test, fragment) }) {
			t.Errorf("no test has a name like %s", name)
		}
	}
	if len(names) < 12 {
		t.Errorf("found only %q", names)
	}
}
