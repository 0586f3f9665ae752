// Package chart generates the Helm chart of the operator, for tests.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// Generate generates the chart of a version with a default image, in dir, and returns its path. change may change the
// manifests that the chart is generated from; nil changes nothing.
func Generate(ctx context.Context, dir, version, image string, change func([]byte) []byte) (string, error) {
	manifests, err := run(ctx, nil, "go", "tool", "-modfile=hack/tools/dev/go.mod", "kustomize", "build", "config/default")
	if err != nil {
		return "", err
	}
	if change != nil {
		manifests = change(manifests)
	}
	if _, err := run(ctx, manifests, "go", "-C", "hack", "run", "./chart", "-version", version, "-image", image, "-output", dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, "listener-operator-"+version+".tgz"), nil
}

// run runs a program in the root of the checkout and returns its output.
func run(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = root, bytes.NewReader(stdin)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("running %s %v: %w: %s", name, args, err, exit.Stderr)
	}
	return out, err
}
