package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// BuildIndex returns a multi-architecture image with an image for each spec, in the OCI format with compressed layers,
// for publication.
func BuildIndex(specs ...Spec) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, spec := range specs {
		img, err := spec.published()
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", spec.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: spec.Architecture}},
		})
	}
	return portable(index)
}

// images is an alias for embedding: an embedded field ImageIndex would hide the method of that name.
type images = v1.ImageIndex

// portableIndex is an index with a manifest of its own.
type portableIndex struct {
	images
	manifest []byte
}

// portable returns the index with its manifest encoded by the types of the OCI. Programs like skopeo encode an index
// again when they copy it; with another order of fields, the copy would have another digest.
func portable(index v1.ImageIndex) (v1.ImageIndex, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	encoded := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, m := range manifest.Manifests {
		encoded.Manifests = append(encoded.Manifests, ocispec.Descriptor{
			MediaType: string(m.MediaType), Digest: digest.Digest(m.Digest.String()), Size: m.Size,
			Platform: &ocispec.Platform{OS: m.Platform.OS, Architecture: m.Platform.Architecture},
		})
	}
	raw, err := json.Marshal(encoded)
	if err != nil {
		return nil, fmt.Errorf("encoding the index: %w", err)
	}
	return portableIndex{images: index, manifest: raw}, nil
}

// RawManifest implements v1.ImageIndex.
func (i portableIndex) RawManifest() ([]byte, error) { return i.manifest, nil }

// IndexManifest implements v1.ImageIndex.
func (i portableIndex) IndexManifest() (*v1.IndexManifest, error) {
	return v1.ParseIndexManifest(bytes.NewReader(i.manifest))
}

// Digest implements v1.ImageIndex.
func (i portableIndex) Digest() (v1.Hash, error) { return partial.Digest(i) }

// Size implements v1.ImageIndex.
func (i portableIndex) Size() (int64, error) { return int64(len(i.manifest)), nil }

// published returns the image of the spec in the format of BuildIndex.
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

// Annotations in the index.json of an archive: the tag, and the whole reference for containerd.
const (
	tagAnnotation       = "org.opencontainers.image.ref.name"
	referenceAnnotation = "io.containerd.image.name"
)

// WriteIndex writes the index as an archive of an OCI image layout, with a repository like registry.example/operator
// and a tag. The same index results in the same bytes.
func WriteIndex(w io.Writer, index v1.ImageIndex, repository, tag string) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	annotations := map[string]string{tagAnnotation: tag, referenceAnnotation: repository + ":" + tag}
	if err := archive.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("writing the images: %w", err)
	}
	content, err := Spec{Files: map[string]File{"/": {Source: dir, Mode: 0o644}}}.layer()
	if err != nil {
		return fmt.Errorf("packing the layout: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
