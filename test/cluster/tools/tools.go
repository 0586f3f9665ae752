// Package tools builds the programs of the test cluster (Kubernetes, etcd, containerd, …) from pinned Go modules, once,
// into the user's cache directory.
//
// It must not depend on prebuilt binaries or images: Go and a module proxy are enough.
package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// Names returns the names of all sets that `make test` needs, in alphabetical order.
func Names() []string {
	return slices.Sorted(maps.Keys(sets))
}

// Ensure returns the directory with the programs of the named set, and builds them first if they are not in the cache.
// The cache key consists of everything that the programs depend on: the module's files, Go's version and the flags.
// Several processes may call it concurrently: one builds, the others wait. It reports progress to stderr.
func Ensure(ctx context.Context, name string) (string, error) {
	set, source, dir, err := locate(ctx, name)
	if err != nil {
		return "", err
	}
	return dir, set.ensure(ctx, name, dir, func(temp string) error { return set.compile(ctx, source, temp) })
}

// ensure calls compile, which writes the set's programs into a directory, unless dir has them.
func (s Set) ensure(ctx context.Context, name, dir string, compile func(dir string) error) error {
	if isDir(dir) {
		return nil
	}
	unlock, err := Lock(ctx, filepath.Join(filepath.Dir(dir), name+".lock"))
	if err != nil {
		return fmt.Errorf("waiting for another build of %s: %w", name, err)
	}
	defer unlock()
	if isDir(dir) { // built by another process
		return nil
	}
	if err := s.build(ctx, name, dir, compile); err != nil {
		return fmt.Errorf("building tool set %s: %w", name, err)
	}
	return nil
}

// locate returns the named set, the directory of its module and the directory of its programs, which need not exist.
func locate(ctx context.Context, name string) (set Set, source, dir string, err error) {
	set, ok := sets[name]
	if !ok {
		set, ok = seldom[name]
	}
	if !ok {
		return Set{}, "", "", fmt.Errorf("unknown tool set %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	root, err := checkout.Root()
	if err != nil {
		return Set{}, "", "", err
	}
	source = filepath.Join(root, "hack", "tools", name)
	hash, err := set.hash(ctx, source)
	if err != nil {
		return Set{}, "", "", fmt.Errorf("hashing tool set %s: %w", name, err)
	}
	cache, err := cacheDir()
	if err != nil {
		return Set{}, "", "", err
	}
	return set, source, filepath.Join(cache, name+"-"+hash), nil
}

// BuildLocal builds packages of a module of this repository as static programs into dir. The module is given by its
// directory, relative to the repository's root.
func BuildLocal(ctx context.Context, module, dir string, packages ...string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	args := append(buildArgs(Set{}, dir), packages...)
	return runGo(ctx, filepath.Join(root, module), args...)
}

// cacheDir returns the directory of all built sets, and creates it.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	dir := filepath.Join(base, "listener-operator", "tools")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the tool cache: %w", err)
	}
	return dir, nil
}

// hash returns the cache key of the programs that are built from source.
func (s Set) hash(ctx context.Context, source string) (string, error) {
	files, err := os.ReadDir(source)
	if err != nil {
		return "", fmt.Errorf("listing the module: %w", err)
	}
	h := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(source, file.Name()))
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", file.Name(), err)
		}
		fmt.Fprintf(h, "%s %d\n%s", file.Name(), len(data), data)
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = source
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("reading Go's version: %w", err)
	}
	fmt.Fprintln(h, string(version), runtime.GOOS, runtime.GOARCH, buildArgs(s, ""), s.Rename)
	if len(s.Missing) > 0 {
		fmt.Fprintln(h, s.Missing)
	}
	if len(s.Changed) > 0 {
		fmt.Fprintln(h, s.Changed)
	}
	if s.Module != "" {
		fmt.Fprintln(h, s.Module)
	}
	if s.Package != "" {
		fmt.Fprintln(h, s.Package)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// build calls compile for a temporary directory and renames that to dir, so that dir is complete if it exists.
func (s Set) build(ctx context.Context, name, dir string, compile func(dir string) error) error {
	temp, err := os.MkdirTemp(filepath.Dir(dir), "."+name+"-")
	if err != nil {
		return fmt.Errorf("creating a build directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := os.Chmod(temp, 0o755); err != nil {
		return fmt.Errorf("making the build directory readable: %w", err)
	}

	start := time.Now()
	fmt.Fprintf(os.Stderr, "building %s, which is needed once (%s)\n", name, s.Hint)
	stop := reportEvery(ctx, os.Stderr, 30*time.Second, func() string {
		return fmt.Sprintf("still building %s after %s", name, time.Since(start).Round(time.Second))
	})
	defer stop()
	if err := compile(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("renaming the build directory: %w", err)
	}
	fmt.Fprintf(os.Stderr, "built %s in %s\n", name, time.Since(start).Round(time.Second))
	return nil
}

// compile builds the set from its module into dir.
func (s Set) compile(ctx context.Context, source, dir string) error {
	args := buildArgs(s, dir)
	if len(s.Missing)+len(s.Changed) > 0 {
		modules, err := os.MkdirTemp("", "modules-")
		if err != nil {
			return fmt.Errorf("creating a directory for modules: %w", err)
		}
		defer func() { _ = os.RemoveAll(modules) }()
		modFile, err := s.withCopies(ctx, source, modules)
		if err != nil {
			return err
		}
		args = append(args, "-modfile", modFile)
	}
	packages := "tool"
	if s.Module != "" {
		module, err := downloadModule(ctx, source, s.Module)
		if err != nil {
			return err
		}
		source, packages = module, "./"+s.Package
	}
	if err := runGo(ctx, source, append(args, packages)...); err != nil {
		return err
	}
	for from, to := range s.Rename {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("naming %s: %w", to, err)
		}
	}
	return nil
}

// buildArgs returns the go command's arguments up to the packages.
func buildArgs(s Set, dir string) []string {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + s.LDFlags)}
	if len(s.Tags) > 0 {
		args = append(args, "-tags", strings.Join(s.Tags, ","))
	}
	return append(args, "-o", dir+string(filepath.Separator))
}

// runGo runs the go command in dir, without a workspace and the user's flags, which would change the result.
func runGo(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, output.String())
	}
	return nil
}

// reportEvery writes a line at each interval until the returned function is called.
func reportEvery(ctx context.Context, w io.Writer, interval time.Duration, line func() string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				fmt.Fprintln(w, line())
			}
		}
	}()
	return cancel
}

// isDir reports whether path is a directory.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
