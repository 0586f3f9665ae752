package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// withMissing writes a go.mod to dir that replaces the modules which lack files by copies that have them, and returns
// its path. An overlay would not do: the go command rejects those of files in the module cache.
func (s Set) withMissing(ctx context.Context, source, dir string) (modFile string, err error) {
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
	for module, missing := range s.Missing {
		original, err := downloadModule(ctx, source, module)
		if err != nil {
			return "", err
		}
		replacement := filepath.Join(dir, filepath.FromSlash(module))
		if err := copyModule(original, replacement, missing); err != nil {
			return "", fmt.Errorf("copying module %s: %w", module, err)
		}
		edit = append(edit, "-replace="+module+"="+replacement)
	}
	modFile = filepath.Join(dir, "go.mod")
	return modFile, runGo(ctx, dir, append(edit, modFile)...)
}

// copyModule copies the directory of a module, and adds empty files.
func copyModule(from, to string, files []string) error {
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
	return nil
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
