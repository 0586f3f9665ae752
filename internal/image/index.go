package image

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BuildIndex returns an image for each spec as one, from which a machine takes that of its own architecture. Its format is the Open Container
// Initiative's, with compressed layers: what is published.
func BuildIndex(specs ...Spec) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, spec := range specs {
		img, err := spec.published()
		if err != nil {
			return nil, fmt.Errorf("making the image for %s: %w", spec.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: spec.Architecture}},
		})
	}
	return index, nil
}

// published returns the image of the spec as it is published.
func (s Spec) published() (v1.Image, error) {
	content, err := s.layer()
	if err != nil {
		return nil, fmt.Errorf("packing the layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compressing the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return s.complete(base, layer)
}

// Names of an image in the index.json of an archive: its tag for most programs, its whole reference for containerd.
const (
	tagAnnotation       = "org.opencontainers.image.ref.name"
	referenceAnnotation = "io.containerd.image.name"
)

// WriteIndex writes the index as an archive of an OCI image layout, under a repository like registry.example/operator and a tag. The same index gives
// the same bytes.
func WriteIndex(w io.Writer, index v1.ImageIndex, repository, tag string) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	images, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	annotations := map[string]string{tagAnnotation: tag, referenceAnnotation: repository + ":" + tag}
	if err := images.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("writing the images: %w", err)
	}
	files := map[string]File{}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[name] = File{Source: path, Mode: 0o644}
		return err
	}); err != nil {
		return fmt.Errorf("listing the layout: %w", err)
	}
	content, err := Spec{Files: files}.layer()
	if err != nil {
		return fmt.Errorf("packing the layout: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
