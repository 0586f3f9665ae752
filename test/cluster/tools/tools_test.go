package tools

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

func TestEverySetHasModuleWithChecksums(t *testing.T) {
	root, err := checkout.Root()
	check.Must(t, err)
	for _, name := range slices.Concat(Names(), slices.Collect(maps.Keys(seldom))) {
		for _, file := range []string{"go.mod", "go.sum"} {
			if _, err := os.Stat(filepath.Join(root, "hack", "tools", name, file)); err != nil {
				t.Errorf("tool set %s: %v", name, err)
			}
		}
		if set, _, _, err := locate(t.Context(), name); err != nil || set.Hint == "" {
			t.Errorf("tool set %s has no hint", name)
		}
	}
}

func TestUnknownSetIsAnError(t *testing.T) {
	if dir, err := Ensure(t.Context(), "no-such-set"); err == nil {
		t.Errorf("Ensure returned %s", dir)
	}
}

func TestHashDependsOnEverythingThatIsBuilt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	seen := map[string]string{}
	differs := func(what string, set Set) {
		t.Helper()
		hash, err := set.hash(t.Context(), dir)
		check.Must(t, err)
		if other, ok := seen[hash]; ok {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[hash] = what
	}
	write("go.mod", "module example.com/x\n")
	write("go.sum", "")
	differs("the first", Set{})
	differs("other flags", Set{LDFlags: "-X a.b=c"})
	differs("other tags", Set{Tags: []string{"x"}})
	differs("other names", Set{Rename: map[string]string{"a": "b"}})
	differs("another module", Set{Module: "example.com/z"})
	differs("missing files", Set{Missing: map[string][]string{"a": {"b"}}})
	differs("changed files", Set{Changed: map[string]map[string][]Change{"a": {"b": {{From: "c", To: "d"}}}}})
	write("go.sum", "x")
	differs("another go.sum", Set{})
	write("go.mod", "module example.com/y\n")
	differs("another go.mod", Set{})
	write("main.go", "package main\n")
	differs("a program of its own", Set{})
}

func TestCopyOfAModuleHasMissingFilesAndChanges(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "example.com", "copy")
	check.Must(t, os.WriteFile(filepath.Join(from, "go.mod"), []byte("module example.com/x\n"), 0o400))
	check.Must(t, os.WriteFile(filepath.Join(from, "main.go"), []byte("old, old (one, two)"), 0o400))
	changes := map[string][]Change{"main.go": {{From: "old", To: "new"}, {From: "(", Through: ")", To: "both"}}}
	check.Must(t, copyModule(from, to, []string{"ui/static/index.html"}, changes))
	for name, want := range map[string]string{"go.mod": "module example.com/x\n", "ui/static/index.html": "", "main.go": "new, new both"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestAChangeOfNothingIsAnError(t *testing.T) {
	from := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(from, "main.go"), []byte("other"), 0o600))
	for _, change := range []Change{{From: "old", To: "new"}, {From: "other", Through: "end"}} {
		err := copyModule(from, filepath.Join(t.TempDir(), "copy"), nil, map[string][]Change{"main.go": {change}})
		if !errors.Is(err, errUnchanged) {
			t.Errorf("%v: the error is %v", change, err)
		}
	}
}

// Otherwise programs that import client-go compile it again, which takes most of the time.
func TestSetsHaveTheModulesOfKubernetes(t *testing.T) {
	want := requirements(t, "kubernetes")
	for name, except := range map[string][]string{
		"coredns": {
			"github.com/prometheus/client_golang", "github.com/prometheus/common", "github.com/prometheus/procfs",
			"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc",
		},
		"helm":             nil,
		"metallb":          nil,
		"network-policies": {"github.com/opencontainers/runtime-spec"}, // NRI does not compile with that of Kubernetes
	} {
		for module, version := range requirements(t, name) {
			if v, ok := want[module]; ok && v != version && !slices.Contains(except, module) {
				t.Errorf("tool set %s has %s %s, Kubernetes %s", name, module, version, v)
			}
		}
	}
}

// requirements returns the versions of the modules that a tool set requires.
func requirements(t *testing.T, set string) map[string]string {
	t.Helper()
	_, source, _, err := locate(t.Context(), set)
	check.Must(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = source
	output, err := cmd.Output()
	check.Must(t, err)
	var file struct {
		Require []struct{ Path, Version string }
	}
	check.Must(t, json.Unmarshal(output, &file))
	versions := map[string]string{}
	for _, required := range file.Require {
		versions[required.Path] = required.Version
	}
	return versions
}

func TestLockIsExclusiveEvenIfItsFileIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	holders := make(chan struct{}, 1)
	for range 5 {
		group.Go(func() {
			unlock, err := Lock(ctx, path)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			select {
			case holders <- struct{}{}:
			default:
				t.Error("the lock has two holders")
				return
			}
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			<-holders
		})
	}
	group.Wait()
}

func TestLockReturnsWhenContextIsDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path)
	check.Must(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("second Lock: %v", err)
	}
}
