package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// Building Kubernetes takes longer than the 30 seconds after which controller-runtime prints a stack trace.
func TestNothingComplainsAboutAMissingLoggerAfterALongBuild(t *testing.T) {
	read, write, err := os.Pipe()
	check.Must(t, err)
	stderr, start := os.Stderr, time.Now()
	os.Stderr = write
	t.Cleanup(func() { os.Stderr = stderr })
	synctest.Test(t, func(t *testing.T) {
		_ = run(t.Context(), nil, io.Discard, io.Discard) // prints its usage
		time.Sleep(time.Until(start) + time.Hour)         // the clock of a bubble starts in 2000, and does not wait
		log.Log.Info("What a client logs")
	})
	_ = write.Close()
	printed, err := io.ReadAll(read)
	if err != nil || len(printed) > 0 {
		t.Errorf("printed %q, %v", printed, err)
	}
}

func TestProgramsWithControllerRuntimeSetALogger(t *testing.T) {
	const deps = `{{if eq .Name "main"}}{{.Dir}}{{range .Deps}} {{.}}{{end}}{{end}}`
	checked := 0
	for _, module := range []string{".", "cmd/kubectl-listener", "hack", "scorecard", "test"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-f", deps, "./...")
		list.Dir = filepath.Join("../..", module)
		out, err := list.Output()
		check.Must(t, err)
		for program := range strings.Lines(string(out)) {
			dir, imports, _ := strings.Cut(strings.TrimSpace(program), " ")
			if !strings.Contains(imports+" ", "sigs.k8s.io/controller-runtime/pkg/log ") {
				continue
			}
			checked++
			source, err := os.ReadFile(filepath.Join(dir, "main.go"))
			if err != nil || !strings.Contains(string(source), ".SetLogger(") {
				t.Errorf("%s sets no logger for controller-runtime: %v", dir, err)
			}
		}
	}
	if checked < 6 {
		t.Errorf("only %d programs were found", checked)
	}
}
