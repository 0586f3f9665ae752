package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/listener-operator/listener-operator/hack/image"
)

// published is an image of a release.
type published struct {
	// Archive is its file in the release.
	Archive string
	// Repository, Tag and Digest identify the image after its publication.
	Repository, Tag, Digest string
	index                   v1.ImageIndex
}

// Pinned returns the reference by digest.
func (p published) Pinned() string {
	return p.Repository + "@" + p.Digest
}

// sorted returns the images, sorted by repository.
func (r *release) sorted() []published {
	return slices.SortedFunc(maps.Values(r.images), func(a, b published) int { return strings.Compare(a.Repository, b.Repository) })
}

// buildOperatorImage builds the image of the programs.
func (r *release) buildOperatorImage(context.Context) error {
	return r.buildImage("operator", r.Image, r.Version, func(architecture string) (image.Spec, error) {
		return image.Operator(filepath.Join(r.dir, "licenses"), filepath.Join(r.dir, programsOf(architecture)), r.Version, architecture), nil
	})
}

// buildScorecardImage builds the image of the operator's own scorecard tests, to which the bundle refers.
func (r *release) buildScorecardImage(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "scorecard-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	licenses := filepath.Join(dir, "licenses")
	if err := collect(ctx, "scorecard", licenses, "./tests"); err != nil {
		return err
	}
	return r.buildImage("scorecard", r.Image+"-scorecard", "v"+r.Version, func(architecture string) (image.Spec, error) {
		programs := filepath.Join(dir, architecture)
		if err := build(ctx, "scorecard", programs, r.Version, architecture, "./tests"); err != nil {
			return image.Spec{}, err
		}
		if err := r.depend(filepath.Join(programs, "tests")); err != nil {
			return image.Spec{}, err
		}
		return image.Scorecard(licenses, filepath.Join(programs, "tests"), architecture), nil
	})
}

// buildDataImage builds the image that dir/dockerfile describes. It contains no programs, but every image has an
// architecture.
func (r *release) buildDataImage(name, dir, dockerfile string) error {
	return r.buildImage(name, r.Image+"-"+name, "v"+r.Version, func(architecture string) (image.Spec, error) {
		spec, err := image.FromDockerfile(filepath.Join(r.dir, dir, dockerfile), filepath.Join(r.dir, dir))
		spec.Architecture = architecture
		return spec, err
	})
}

// buildImage builds the image that spec returns for each architecture, and writes its archive.
func (r *release) buildImage(name, repository, tag string, spec func(architecture string) (image.Spec, error)) error {
	var specs []image.Spec
	for _, architecture := range r.Architectures {
		s, err := spec(architecture)
		if err != nil {
			return err
		}
		s.Created = r.Created
		specs = append(specs, s)
	}
	index, err := image.BuildIndex(specs...)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	p := published{
		Archive: "images/" + path.Base(repository) + ".tar", Repository: repository, Tag: tag, Digest: digest.String(), index: index,
	}
	if _, err := r.mkdir("images"); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.dir, p.Archive))
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	defer file.Close()
	if err := image.WriteIndex(file, index, p.Repository, p.Tag); err != nil {
		return err
	}
	r.images[name] = p
	return file.Close()
}
