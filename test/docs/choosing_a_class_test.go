package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var (
	exposureRow     = regexp.MustCompile(`(?m)^\| (?:\[)?([^|\]]+?)(?:\]\([^)]*\))?(?:, [^|]*)? \| `)
	exposureDiagram = regexp.MustCompile(`\*\*(.+)\*\* \(\[a class\]\(\.\./(config/samples/\S+\.yaml)\)\)\n\n!\[(.+)\]\((choosing-a-class/\S+\.svg)\)\n`)
)

// The types are the rows of the table in choosing-a-class.md, apart from the one for clients inside the cluster.
func TestEachExposureTypeHasADiagramAndASample(t *testing.T) {
	page := read(t, "choosing-a-class.md")
	var diagrams, files []string
	for _, match := range exposureDiagram.FindAllStringSubmatch(page, -1) {
		if match[1] != match[3] {
			t.Errorf("the diagram of %q is called %q", match[1], match[3])
		}
		for _, path := range []string{filepath.Join("..", match[2]), match[4]} {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		diagrams, files = append(diagrams, strings.ToLower(match[1])), append(files, match[4])
	}
	table, _, _ := strings.Cut(page, "## Diagrams")
	var rows []string
	for _, match := range exposureRow.FindAllStringSubmatch(table, -1) {
		if way := strings.ToLower(match[1]); way != "way" && way != "inside only" {
			rows = append(rows, way)
		}
	}
	if rows = slices.Compact(rows); len(rows) < 9 || !slices.Equal(rows, diagrams) {
		t.Errorf("the table has rows for %q, and there are diagrams of %q", rows, diagrams)
	}
	existing, err := filepath.Glob("choosing-a-class/*.svg")
	if slices.Sort(files); err != nil || !slices.Equal(existing, files) {
		t.Errorf("the diagrams are %q, %v; the page has %q", existing, err, files)
	}
}

// TestTheProbeOfAPodWithTargetSameStaysReadyWhenThePortChanges: the program listens on the port that it read, until it
// is restarted. If its Pods were not ready meanwhile, the rolling update of a StatefulSet would wait for ever.
func TestTheProbeOfAPodWithTargetSameStaysReadyWhenThePortChanges(t *testing.T) {
	page := read(t, "choosing-a-class.md")
	_, section, _ := strings.Cut(page, "## Node ports that the Pods listen on\n")
	_, after, _ := strings.Cut(section, "```yaml\n")
	block, _, _ := strings.Cut(after, "```")
	dir := t.TempDir()
	var container corev1.Container
	check.Must(t, yaml.UnmarshalStrict([]byte(strings.NewReplacer("/listener/", dir+"/listener/", "/tmp/", dir+"/tmp/").Replace(block)), &container))
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(dir, path)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		check.Must(t, os.WriteFile(path, []byte(content), 0o700)) //nolint:gosec // programs
	}
	run := func(command ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // of the page
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write("tmp/empty", "")
	write("bin/my-server", "#!/bin/sh\necho \"$2\"\n")
	write("bin/nc", "#!/bin/sh\necho \"$3\"\n")
	for _, port := range []string{"30866", "31234"} { // the second time after a restart
		write("listener/default-address/ports/data", port)
		if got := run(append(container.Command, container.Args...)...); got != port {
			t.Errorf("the program listens on %q, want %s", got, port)
		}
		write("listener/default-address/ports/data", "9866")
		if got := run(container.ReadinessProbe.Exec.Command...); got != port {
			t.Errorf("after the class has changed, the probe connects to %q, and the program listens on %s", got, port)
		}
	}
}
