// The command release makes all that a release consists of, in one directory: programs and images for every
// architecture, what they are made of, the plain manifests, bundle and catalogue for the Operator Lifecycle Manager,
// and checksums. It takes no container engine. The same checkout and the same version of Go give the same files on
// every machine. It must never publish anything.
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/hack/image"
)

// Options say what to release.
type Options struct {
	// Version is the semantic version without a leading v.
	Version string
	// Image is the repository that the operator's image will be published in, like registry.example/listener-operator.
	// Those of the bundle and of the catalogue lie beside it.
	Image string
	// Opm is the program that renders catalogues.
	Opm string
	// Architectures are those that programs and images are made for, as Go names them.
	Architectures []string
	// Created is when the source was last changed.
	Created time.Time
	// Commit is the source's, in hexadecimal digits; empty if there are changes that are not committed.
	Commit string
}

func main() {
	options := Options{Architectures: image.Architectures()}
	flag.StringVar(&options.Version, "version", "", "semantic version of the release")
	flag.StringVar(&options.Image, "image", "", "repository of the operator's image, without a tag")
	flag.StringVar(&options.Opm, "opm", "opm", "the program opm")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := os.Chdir("..") // `go -C hack run` starts it in hack/, and paths are relative to the repository's root.
	if err == nil {
		err = options.complete(ctx)
	}
	if err == nil {
		err = run(ctx, options)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// complete checks what is given, and finds out when the source was changed, and which it is.
func (o *Options) complete(ctx context.Context) error {
	if _, err := semver.Parse(o.Version); err != nil {
		return fmt.Errorf("the version %q is not a semantic version like 1.2.3: %w", o.Version, err)
	}
	registry, name, ok := strings.Cut(o.Image, "/")
	if !ok || registry == "" || strings.ContainsAny(name, ":@") {
		return fmt.Errorf("the image %q is not a registry and a repository without a tag, like registry.example/listener-operator", o.Image)
	}
	// https://reproducible-builds.org/specs/source-date-epoch
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := command.Run(ctx, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return fmt.Errorf("finding out when the source was changed (SOURCE_DATE_EPOCH says so where there is no git): %w", err)
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

// commit returns that of the source, empty if there are changes that are not committed.
func commit(ctx context.Context) (string, error) {
	if given := os.Getenv("SOURCE_COMMIT"); given != "" {
		if digits, err := hex.DecodeString(given); err != nil || len(digits) < 20 {
			return "", fmt.Errorf("SOURCE_COMMIT is %q, want all hexadecimal digits of a commit", given)
		}
		return given, nil
	}
	id, err := command.Run(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", fmt.Errorf("finding out which commit this is (SOURCE_COMMIT says so where there is no git): %w", err)
	}
	// A release writes test/bundle/released itself, and is not made from it.
	changes, err := command.Run(ctx, "git", "status", "--porcelain", "--", ":/", ":(top,exclude)test/bundle/released")
	if err != nil {
		return "", err
	}
	if len(changes) > 0 {
		fmt.Fprintf(os.Stderr, "warning: these changes are not committed, so nobody else can make this release again, and no commit is said to be its source:\n%s", changes)
		return "", nil
	}
	return strings.TrimSpace(string(id)), nil
}

// release is one that is being made.
type release struct {
	Options
	// dir is where its files go.
	dir string
	// images are those that are made, by what they are for.
	images map[string]published
	// licenses are SPDX expressions, by path@version of the module, and stdlib@version for Go's own library.
	licenses map[string]string
	// dependencies are what its programs were built from, by their package URLs.
	dependencies map[string]*intoto.ResourceDescriptor
}

func newRelease(o Options, dir string) *release {
	return &release{Options: o, dir: dir, images: map[string]published{}, dependencies: map[string]*intoto.ResourceDescriptor{}}
}

// run makes the release in dist/<version>, wholly or not at all.
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
		return fmt.Errorf("opening the directory to readers: %w", err)
	}
	r := newRelease(o, dir)
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"building the programs for " + strings.Join(o.Architectures, ", "), r.buildPrograms},
		{"gathering the licenses of what is linked into them", r.gatherLicenses},
		{"making the operator's image", r.makeOperatorImage},
		{"making the image of the scorecard's tests", r.makeScorecardImage},
		{"listing what is in it", r.listModules},
		{"writing install.yaml", r.writeManifests},
		{"making the bundle", r.makeBundle},
		{"making the catalogue", r.makeCatalogue},
		{"saying what it was made from", r.attest},
		{"writing README.md and the checksums", r.describe},
	} {
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(started).Seconds(), step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	final := filepath.Join("dist", o.Version)
	if err := os.RemoveAll(final); err != nil {
		return fmt.Errorf("removing the release that was there: %w", err)
	}
	if err := os.Rename(dir, final); err != nil {
		return fmt.Errorf("keeping the release: %w", err)
	}
	if err := keepKinds(o.Version); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%4.0fs  done: %s/README.md says what is there\n", time.Since(started).Seconds(), final)
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
