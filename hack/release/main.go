// Command release builds a release in one directory: programs and images for every architecture, their licenses, bills
// of materials and provenance, the plain manifests, the Helm chart, bundle and catalogue for the Operator Lifecycle
// Manager, the kubectl plugin, and checksums. It needs no container engine. The same commit and the same version of Go
// result in the same files on every machine. It must never publish anything.
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/hack/image"
)

// Options describe the release.
type Options struct {
	// Version is the semantic version without a leading v.
	Version string
	// Image is the repository of the operator's image, like registry.example/listener-operator. The names of the other
	// images begin with it.
	Image string
	// URL is the address of the directory that the archives of the kubectl plugin will be published in, without a
	// trailing slash. Empty means the release in the repository.
	URL string
	// Opm is the path of the program opm, which renders catalogues.
	Opm string
	// Architectures are the GOARCH values of programs and images.
	Architectures []string
	// Created is the time of the commit.
	Created time.Time
	// Commit is the hash of the commit. It is empty if there are uncommitted changes.
	Commit string
}

func main() {
	options := Options{Architectures: image.Architectures()}
	flag.StringVar(&options.Version, "version", "", "semantic version of the release")
	flag.StringVar(&options.Image, "image", "", "repository of the operator's image, without a tag")
	flag.StringVar(&options.URL, "url", "", "where the archives of the kubectl plugin will be published (default: the release in the repository)")
	flag.StringVar(&options.Opm, "opm", "opm", "path of the program opm")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		if err := options.complete(ctx); err != nil {
			return err
		}
		return run(ctx, options)
	})
}

// complete validates the options, and sets the commit and its time.
func (o *Options) complete(ctx context.Context) error {
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	if o.URL == "" {
		o.URL = repository + "/releases/download/v" + o.Version
	}
	registry, name, ok := strings.Cut(o.Image, "/")
	if !ok || registry == "" || strings.ContainsAny(name, ":@") {
		return fmt.Errorf("image %q is not a registry and a repository without a tag, like registry.example/listener-operator", o.Image)
	}
	// https://reproducible-builds.org/specs/source-date-epoch
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := command.Run(ctx, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return fmt.Errorf("reading the time of the commit (without git, set SOURCE_DATE_EPOCH): %w", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q, want seconds since 1970: %w", seconds, err)
	}
	o.Created = time.Unix(unix, 0).UTC()
	o.Commit, err = commit(ctx)
	return err
}

// commit returns the hash of the commit, or an empty string if there are uncommitted changes.
func commit(ctx context.Context) (string, error) {
	if given := os.Getenv("SOURCE_COMMIT"); given != "" {
		if digits, err := hex.DecodeString(given); err != nil || len(digits) < 20 {
			return "", fmt.Errorf("SOURCE_COMMIT is %q, want the full hash of a commit", given)
		}
		return given, nil
	}
	id, err := command.Run(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", fmt.Errorf("reading the commit (without git, set SOURCE_COMMIT): %w", err)
	}
	// `make release` itself writes test/bundle/released, and does not read it.
	changes, err := command.Run(ctx, "git", "status", "--porcelain", "--", ":/", ":(top,exclude)test/bundle/released")
	if err != nil {
		return "", err
	}
	if len(changes) > 0 {
		fmt.Fprintf(os.Stderr, "warning: these changes are not committed, so the release cannot be reproduced, and its provenance names no commit:\n%s", changes)
		return "", nil
	}
	return strings.TrimSpace(string(id)), nil
}

// release is a release that is being built.
type release struct {
	Options
	// dir is the directory of its files.
	dir string
	// images are the images that were built, by the part of the release that they contain.
	images map[string]published
	// licenses are SPDX expressions, by path@version of the module, and stdlib@version for Go's standard library.
	licenses map[string]string
	// dependencies are the modules that its programs were built from, by package URL.
	dependencies map[string]*intoto.ResourceDescriptor
}

func newRelease(o Options, dir string) *release {
	return &release{Options: o, dir: dir, images: map[string]published{}, licenses: map[string]string{}, dependencies: map[string]*intoto.ResourceDescriptor{}}
}

// run builds the release in dist/<version>. If it fails, it leaves a previous release unchanged.
func run(ctx context.Context, o Options) error {
	started := time.Now()
	if err := os.MkdirAll("dist", 0o755); err != nil {
		return fmt.Errorf("creating dist: %w", err)
	}
	dir, err := os.MkdirTemp("dist", "."+o.Version+"-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("naming the directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("changing the mode of the directory: %w", err)
	}
	r := newRelease(o, dir)
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"building the programs for " + strings.Join(o.Architectures, ", "), r.buildPrograms},
		{"collecting the licenses of the linked modules", r.collectLicenses},
		{"building the operator's image", r.buildOperatorImage},
		{"building the image of the scorecard tests", r.buildScorecardImage},
		{"writing the bills of materials", r.writeBills},
		{"building the kubectl plugin", r.buildPlugin},
		{"taking the notes from the changelog", r.writeNotes},
		{"writing install.yaml", r.writeManifests},
		{"generating the Helm chart", r.generateChart},
		{"generating the bundle", r.generateBundle},
		{"generating the catalogue", r.generateCatalogue},
		{"writing the provenance", r.attest},
		{"writing README.md and the checksums", r.describe},
	} {
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(started).Seconds(), step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	final := filepath.Join("dist", o.Version)
	if err := os.RemoveAll(final); err != nil {
		return fmt.Errorf("removing the previous release: %w", err)
	}
	if err := os.Rename(dir, final); err != nil {
		return fmt.Errorf("moving the release: %w", err)
	}
	if err := keepCRDs(o.Version); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%4.0fs  done: see %s/README.md\n", time.Since(started).Seconds(), final)
	return nil
}

// mkdir creates a directory of the release and returns its path.
func (r *release) mkdir(name string) (string, error) {
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	return path, nil
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.dir, name), content, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
