package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Kustomize returns the manifests that a kustomization makes of those in a directory. It is a template of these
// variables and of {{.Manifests}}, that directory.
func (c *Cluster) Kustomize(ctx context.Context, kustomization, manifests string, variables map[string]string) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "kustomization-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("resolving a directory: %w", err)
	}
	if variables["Manifests"], err = filepath.Rel(dir, manifests); err != nil { // kustomize takes relative paths only
		return nil, fmt.Errorf("finding the manifests: %w", err)
	}
	rendered, err := Render(kustomization, variables)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), rendered, 0o600); err != nil {
		return nil, fmt.Errorf("writing the kustomization: %w", err)
	}
	var stderr bytes.Buffer
	build := exec.CommandContext(ctx, c.Kubectl(), "kustomize", dir)
	build.Stderr = &stderr
	output, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("building the manifests in %s: %w: %s", manifests, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}
