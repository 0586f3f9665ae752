package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"github.com/listener-operator/listener-operator/hack/command"
)

// kustomize is the command that runs kustomize.
var kustomize = []string{"go", "tool", "-modfile=hack/tools/dev/go.mod", "kustomize"}

// writeManifests writes the plain manifests, with the digest of the image, and those that administrators may add.
func (r *release) writeManifests(ctx context.Context) error {
	manifests, err := command.Run(ctx, "hack/manifests.sh", r.images["operator"].Pinned())
	if err != nil {
		return err
	}
	policy, err := os.ReadFile("config/injection/policy.yaml")
	if err != nil {
		return fmt.Errorf("reading the policy for annotated Pods: %w", err)
	}
	return errors.Join(r.write("install.yaml", manifests), r.write("injection.yaml", policy))
}

// generateChart generates the Helm chart, with the digest of the image.
func (r *release) generateChart(ctx context.Context) error {
	manifests, err := command.Run(ctx, kustomize[0], append(kustomize[1:], "build", "config/default")...)
	if err != nil {
		return err
	}
	dir, err := r.mkdir("chart")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "-C", "hack", "run", "./chart", "-version", r.Version, "-image", r.images["operator"].Pinned(), "-output", dir)
	cmd.Stdin = bytes.NewReader(manifests)
	_, err = command.Output(cmd)
	return err
}

// generateBundle generates the bundle and builds its image.
func (r *release) generateBundle(ctx context.Context) error {
	manifests, err := command.Run(ctx, kustomize[0], append(kustomize[1:], "build", "config/manifests")...)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "-C", "hack", "run", "./bundle", "-version", r.Version, "-image", r.images["operator"].Pinned(),
		"-created", r.Created.Format(time.RFC3339), "-output", r.dir)
	cmd.Stdin = bytes.NewReader(manifests)
	if _, err := command.Output(cmd); err != nil {
		return err
	}
	return r.buildDataImage("bundle", "", "bundle.Dockerfile")
}

// generateCatalogue generates the catalogue, which includes this release, and builds its image.
func (r *release) generateCatalogue(ctx context.Context) error {
	if _, err := command.Run(ctx, "go", "-C", "hack", "run", "./catalog", "-opm", r.Opm,
		"-bundle", filepath.Join(r.dir, "bundle")+"="+r.images["bundle"].Pinned(), "-output", filepath.Join(r.dir, "catalog")); err != nil {
		return err
	}
	return r.buildDataImage("catalog", "catalog", "catalog.Dockerfile")
}

//go:embed README.md.tmpl
var readme string

// describe writes the README and the checksums of all files.
func (r *release) describe(context.Context) error {
	var content bytes.Buffer
	if err := template.Must(template.New("README").Option("missingkey=error").Parse(readme)).Execute(&content, map[string]any{
		"Version": r.Version, "Created": r.Created.Format(time.DateOnly), "Architectures": strings.Join(r.Architectures, ", "),
		"Images": r.sorted(), "Go": strings.TrimPrefix(runtime.Version(), "go"), "Image": r.Image, "URL": r.URL,
	}); err != nil {
		return fmt.Errorf("writing README.md: %w", err)
	}
	if err := r.write("README.md", content.Bytes()); err != nil {
		return err
	}
	sums, err := checksums(r.dir)
	if err != nil {
		return err
	}
	return r.write("SHA256SUMS", sums)
}

// checksums returns the checksums of all files in a directory, in the format of sha256sum.
func checksums(dir string) ([]byte, error) {
	var sums bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("computing the checksums: %w", err)
	}
	return sums.Bytes(), nil
}

// keepCRDs copies the CRDs of this release to the directory of those that the next one is compared with.
func keepCRDs(version string) error {
	paths, err := filepath.Glob("config/crd/bases/*.yaml")
	if err != nil {
		return fmt.Errorf("listing the CRDs: %w", err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		header := fmt.Sprintf("# As in release %s. `make release` replaces it; do not edit.\n", version)
		target := filepath.Join("test/bundle/released", filepath.Base(path))
		if err := os.WriteFile(target, append([]byte(header), content...), 0o644); err != nil {
			return fmt.Errorf("copying a CRD: %w", err)
		}
	}
	return nil
}
