//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// release is a version of the operator, built from this checkout for clusters whose mirror requires a password.
type release struct {
	version, operator, bundle string
	images                    images
	// dir contains the release's bundle/ and bundle.Dockerfile.
	dir string
}

// newRelease builds a release: binaries, image, bundle and bundle image. It writes the bundle to dir.
func newRelease(ctx context.Context, dir, version string) (release, error) {
	r := release{version: version, images: images{}, dir: dir}
	root, err := checkout.Root()
	if err != nil {
		return r, err
	}
	if err := buildOperator(ctx, root, "VERSION="+version); err != nil {
		return r, err
	}
	spec := operatorSpec(root, version)
	if r.operator, err = r.images.publish("listener-operator", spec); err != nil {
		return r, err
	}
	manifests, err := output(ctx, root, nil, "go", "tool", "-modfile=hack/tools/dev/go.mod", "kustomize", "build", "config/manifests")
	if err != nil {
		return r, err
	}
	if manifests, err = withPullSecret(manifests); err != nil {
		return r, err
	}
	if _, err := output(ctx, root, manifests, "go", "-C", "hack", "run", "./bundle", "-version="+version, "-image="+r.operator, "-output="+dir); err != nil {
		return r, err
	}
	if spec, err = image.FromDockerfile(filepath.Join(dir, "bundle.Dockerfile"), dir); err != nil {
		return r, err
	}
	r.bundle, err = r.images.publish("listener-operator-bundle", spec)
	return r, err
}

// newCatalog creates a catalog of releases, the oldest first, copies its image and all images that it refers to into
// the mirror, and returns the name of its image.
func newCatalog(ctx context.Context, dir string, releases ...release) (string, error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	programs, err := olm.Programs(ctx)
	if err != nil {
		return "", err
	}
	args := []string{"-C", "hack", "run", "./catalog", "-opm=" + filepath.Join(programs, "opm"), "-output=" + dir}
	for _, r := range releases {
		args = append(args, "-bundle="+filepath.Join(r.dir, "bundle")+"="+r.bundle)
	}
	if _, err := output(ctx, root, nil, "go", args...); err != nil {
		return "", err
	}
	spec, err := image.FromDockerfile(filepath.Join(dir, "catalog.Dockerfile"), dir)
	if err != nil {
		return "", err
	}
	all := images{}
	for _, r := range releases {
		maps.Copy(all, r.images)
	}
	catalog, err := all.publish("listener-operator-catalog", spec)
	if err != nil {
		return "", err
	}
	named, err := imagesOf(ctx, filepath.Join(dir, "configs"))
	if err != nil {
		return "", err
	}
	return catalog, all.mirror(ctx, append(named, catalog)...)
}

// output runs a program in the checkout, and returns its standard output.
func output(ctx context.Context, root string, input []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = root, bytes.NewReader(input), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
