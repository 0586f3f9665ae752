package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/listener-operator/listener-operator/hack/command"
)

// module is one that is linked into a program.
type module struct {
	// Path and Version are as in go.mod.
	Path, Version string
	// Dir is where its source is.
	Dir string
	// packages are the directories, all of them in Dir, of those packages that are linked and may have licenses of
	// their own.
	packages map[string]bool
}

// String names the module as the go command does.
func (m *module) String() string { return m.Path + "@" + m.Version }

// ownModule is the module of the checkout, which its other modules use from the directory that it is in.
const ownModule = "github.com/listener-operator/listener-operator"

// standardLibrary is what bills of material call Go's own packages.
const standardLibrary = "stdlib"

// linked returns the modules, sorted by path, that packages of the checkout in root are linked from on any of the
// architectures. Go's own library is among them, the checkout is not.
func linked(ctx context.Context, root string, architectures, packages []string) ([]*module, error) {
	version, err := goCommand(ctx, root, os.Environ(), "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goVersion := strings.TrimPrefix(strings.TrimSpace(string(version)), "go")
	modules := map[string]*module{}
	for _, architecture := range architectures {
		listed, err := list(ctx, root, architecture, packages)
		if err != nil {
			return nil, fmt.Errorf("listing the packages for %s: %w", architecture, err)
		}
		for _, p := range listed {
			m := p.module(goVersion)
			if m == nil {
				continue
			}
			if _, ok := modules[m.Path]; !ok {
				modules[m.Path] = m
			}
			// Where Go's own directories have licenses of their own, they are of object files that are linked with cgo
			// only.
			if !p.Standard {
				modules[m.Path].packages[p.Dir] = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// listed is what `go list` says of a package.
type listed struct {
	Dir string
	// Root is Go's own directory, for a package of Go's.
	Root     string
	Standard bool
	Module   *listedModule
}

// listedModule is what `go list` says of a module.
type listedModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listedModule
}

// module returns the module that a package belongs to, nil for the checkout's own.
func (l listed) module(goVersion string) *module {
	m := &module{packages: map[string]bool{}}
	switch {
	case l.Standard:
		m.Path, m.Version, m.Dir = standardLibrary, goVersion, l.Root
	case l.Module.Main, l.Module.Path == ownModule:
		return nil
	case l.Module.Replace != nil:
		m.Path, m.Version, m.Dir = l.Module.Replace.Path, l.Module.Replace.Version, l.Module.Replace.Dir
	default:
		m.Path, m.Version, m.Dir = l.Module.Path, l.Module.Version, l.Module.Dir
	}
	return m
}

// list returns the packages that are linked into programs for an architecture.
func list(ctx context.Context, root, architecture string, packages []string) ([]listed, error) {
	// What a release is built with; other flags of the user's could add packages or leave some out.
	environment := append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=-trimpath", "GOWORK=off", "GOFIPS140=off")
	out, err := goCommand(ctx, root, environment, append([]string{"list", "-deps", "-json=Dir,Root,Standard,Module"}, packages...)...)
	if err != nil {
		return nil, err
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing what go list prints: %w", err)
		}
		all = append(all, p)
	}
}

// goCommand runs the go command in dir and returns its output.
func goCommand(ctx context.Context, dir string, environment []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, environment
	return command.Output(cmd)
}
