// Command krew builds the archives of the kubectl plugin for each platform in dist/plugin, and the manifest by which
// krew, the plugin manager of kubectl, installs it. The same commit and the same version of Go result in the same
// files. It must never publish anything.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/hack/command"
)

const (
	// module is the directory of the plugin's module.
	module = "cmd/kubectl-listener"
	// program is the name of the plugin's program.
	program = "kubectl-listener"
	// versionVariable has the version that the program prints.
	versionVariable = "github.com/listener-operator/listener-operator/internal/version.Version"
)

// Options describe what is built.
type Options struct {
	// Version is the semantic version without a leading v.
	Version string
	// URL is the address of the directory that the archives will be published in, without a trailing slash.
	URL string
	// Output is the directory for the result, which is replaced.
	Output string
}

func main() {
	var o Options
	flag.StringVar(&o.Version, "version", "", "semantic version of the plugin")
	flag.StringVar(&o.URL, "url", "", "address of the directory that the archives will be published in")
	flag.StringVar(&o.Output, "output", "dist/plugin", "directory for the archives and the manifest; it is replaced")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, o, platforms()) })
}

// platform is a system that the plugin is built for.
type platform struct{ os, arch string }

func platforms() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}
}

// program returns the name of the program's file.
func (p platform) program() string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// archive returns the name of the archive.
func (p platform) archive() string { return fmt.Sprintf("%s_%s_%s.tar.gz", program, p.os, p.arch) }

// run builds the archives for the platforms, and the manifest.
func run(ctx context.Context, o Options, list []platform) error {
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	if !strings.HasPrefix(o.URL, "https://") || strings.HasSuffix(o.URL, "/") {
		return errors.New("-url is required: where the archives will be published, an https address without a trailing slash")
	}
	if err := os.RemoveAll(o.Output); err != nil {
		return fmt.Errorf("removing the previous result: %w", err)
	}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	licenses, err := os.MkdirTemp("", "krew-licenses-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(licenses) }()
	if err := collectLicenses(ctx, list, licenses); err != nil {
		return err
	}
	built := map[platform]string{}
	for _, p := range list {
		sum, err := buildArchive(ctx, o, p, licenses)
		if err != nil {
			return fmt.Errorf("building for %s/%s: %w", p.os, p.arch, err)
		}
		built[p] = sum
	}
	manifest, err := manifest(o, list, built)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.Output, "listener.yaml"), manifest, 0o644); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return nil
}

// collectLicenses collects the licenses of what is linked on any of the platforms.
func collectLicenses(ctx context.Context, list []platform, dir string) error {
	platforms := make([]string, len(list))
	for i, p := range list {
		platforms[i] = p.os + "/" + p.arch
	}
	_, err := command.Run(ctx, "go", "-C", "hack", "run", "./licenses", "-C", module, "-platforms", strings.Join(platforms, ","), "-output", dir, ".")
	return err
}

// buildArchive builds the program for a platform, and packs it with the licenses of what is linked. It returns the
// checksum of the archive.
func buildArchive(ctx context.Context, o Options, p platform, licenses string) (string, error) {
	dir, err := os.MkdirTemp("", "krew-")
	if err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, p.program())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-ldflags", "-s -w -X "+versionVariable+"="+o.Version, "-o", binary, ".")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=-trimpath", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if _, err := command.Output(cmd); err != nil {
		return "", err
	}
	files, err := archive.Below(licenses, "licenses")
	if err != nil {
		return "", err
	}
	for _, f := range []struct {
		name, source string
		mode         int64
	}{
		{"LICENSE", "LICENSE", 0o644},
		{"kubectl_complete-listener", filepath.Join(module, "kubectl_complete-listener"), 0o755},
		{p.program(), binary, 0o755},
	} {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return "", fmt.Errorf("reading a file of the archive: %w", err)
		}
		files = append(files, archive.File{Name: f.name, Mode: f.mode, Content: content})
	}
	packed, err := archive.Pack(files)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(o.Output, p.archive()), packed, 0o644); err != nil {
		return "", fmt.Errorf("writing an archive: %w", err)
	}
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:]), nil
}
