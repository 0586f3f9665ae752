package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// withCopies writes a go.mod to dir that replaces modules by copies with the files that they lack and the changes of
// others, and returns its path. An overlay would not do: the go command rejects overlays of files in the module cache.
func (s Set) withCopies(ctx context.Context, source, dir string) (modFile string, err error) {
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", fmt.Errorf("copying %s: %w", name, err)
		}
	}
	edit := []string{"mod", "edit"}
	copied := slices.AppendSeq(slices.Collect(maps.Keys(s.Missing)), maps.Keys(s.Changed))
	slices.Sort(copied)
	for _, module := range slices.Compact(copied) {
		original, err := downloadModule(ctx, source, module)
		if err != nil {
			return "", err
		}
		replacement := filepath.Join(dir, filepath.FromSlash(module))
		if err := copyModule(original, replacement, s.Missing[module], s.Changed[module]); err != nil {
			return "", fmt.Errorf("copying module %s: %w", module, err)
		}
		edit = append(edit, "-replace="+module+"="+replacement)
	}
	modFile = filepath.Join(dir, "go.mod")
	return modFile, runGo(ctx, dir, append(edit, modFile)...)
}

// errUnchanged is returned if a file does not contain the text to replace.
var errUnchanged = errors.New("nothing to change")

// copyModule copies the directory of a module, adds empty files, and changes others.
func copyModule(from, to string, files []string, changes map[string][]Change) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	for _, name := range files {
		path := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
	}
	for name, list := range changes {
		if err := changeFile(filepath.Join(to, filepath.FromSlash(name)), list); err != nil {
			return err
		}
	}
	return nil
}

func changeFile(path string, changes []Change) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	for _, change := range changes {
		from := change.From
		if begin := strings.Index(text, from); change.Through != "" && begin >= 0 {
			inner, _, found := strings.Cut(text[begin:], change.Through)
			if !found {
				return fmt.Errorf("%s: %w: it does not contain %q after %q", path, errUnchanged, change.Through, from)
			}
			from = inner + change.Through
		}
		if !strings.Contains(text, from) {
			return fmt.Errorf("%s: %w: it does not contain %q", path, errUnchanged, from)
		}
		text = strings.ReplaceAll(text, from, change.To)
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// ModuleDir returns the directory of a module that the named set requires, and downloads it first if necessary.
func ModuleDir(ctx context.Context, set, module string) (string, error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	return downloadModule(ctx, filepath.Join(root, "hack", "tools", set), module)
}

// downloadModule returns the directory of a module that the module in source requires.
func downloadModule(ctx context.Context, source, module string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Stderr = source, &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("downloading module %s: %w: %s", module, err, stderr.String())
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil {
		return "", fmt.Errorf("reading where module %s is: %w", module, err)
	}
	return downloaded.Dir, nil
}
