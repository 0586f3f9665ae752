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

// module is a module that is linked into a program.
type module struct {
	// Path and Version are as in go.mod.
	Path, Version string
	// Dir is the directory of its source.
	Dir string
	// packages are the directories, in Dir, of linked packages that may have licenses of their own.
	packages map[string]bool
}

// String returns the module as the go command prints it.
func (m *module) String() string { return m.Path + "@" + m.Version }

// ownModule is the module in the root of the repository. The other modules replace it with its directory.
const ownModule = "github.com/listener-operator/listener-operator"

// standardLibrary is the name of Go's standard library in bills of materials.
const standardLibrary = "stdlib"

// linked returns the modules, sorted by path, that are linked into packages of the module in dir on any of the
// platforms, such as linux/amd64. They include Go's standard library, but no module of this repository.
func linked(ctx context.Context, dir string, platforms, packages []string) ([]*module, error) {
	version, err := goCommand(ctx, dir, os.Environ(), "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goVersion := strings.TrimPrefix(strings.TrimSpace(string(version)), "go")
	modules := map[string]*module{}
	for _, platform := range platforms {
		listed, err := list(ctx, dir, platform, packages)
		if err != nil {
			return nil, fmt.Errorf("listing the packages for %s: %w", platform, err)
		}
		for _, p := range listed {
			m := p.module(goVersion)
			if m == nil {
				continue
			}
			if _, ok := modules[m.Path]; !ok {
				modules[m.Path] = m
			}
			// Other licenses in Go's directories are for object files that only cgo links.
			if !p.Standard {
				modules[m.Path].packages[p.Dir] = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// listed is the output of `go list` for a package.
type listed struct {
	Dir string
	// Root is GOROOT for a package of the standard library.
	Root     string
	Standard bool
	Module   *listedModule
}

// listedModule is the output of `go list` for a module.
type listedModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listedModule
}

// module returns the module of a package, or nil for a module of this repository.
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

// list returns the packages that are linked for a platform.
func list(ctx context.Context, dir, platform string, packages []string) ([]listed, error) {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("platform %q is not like linux/amd64", platform)
	}
	// The settings of a release. Others could add or remove packages.
	environment := append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture, "GOFLAGS=-trimpath -tags=grpcnotrace", "GOWORK=off", "GOFIPS140=off")
	out, err := goCommand(ctx, dir, environment, append([]string{"list", "-deps", "-json=Dir,Root,Standard,Module"}, packages...)...)
	if err != nil {
		return nil, err
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the output of go list: %w", err)
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
