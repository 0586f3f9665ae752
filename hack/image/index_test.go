package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// published returns an index for two architectures, with a program of the given age.
func published(t *testing.T, age time.Duration) v1.ImageIndex {
	t.Helper()
	var specs []Spec
	for _, architecture := range []string{"amd64", "s390x"} {
		spec := example(source(t, age))
		spec.Architecture = architecture
		specs = append(specs, spec)
	}
	index, err := BuildIndex(specs...)
	check.Must(t, err)
	return index
}

func TestIndexContainsAnImageForEachArchitecture(t *testing.T) {
	index := published(t, 0)
	manifest, err := index.IndexManifest()
	check.Must(t, err)
	type described struct {
		MediaType          types.MediaType
		Platform           string
		Architecture, User string
	}
	var got []described
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		check.Must(t, err)
		config, err := img.ConfigFile()
		check.Must(t, err)
		got = append(got, described{m.MediaType, m.Platform.String(), config.Architecture, config.Config.User})
	}
	want := []described{
		{types.OCIManifestSchema1, "linux/amd64", "amd64", "65532"},
		{types.OCIManifestSchema1, "linux/s390x", "s390x", "65532"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDigestIsKeptWhenTheIndexIsEncodedAgain(t *testing.T) {
	index := published(t, 0)
	raw, err := index.RawManifest()
	check.Must(t, err)
	var decoded ocispec.Index
	check.Must(t, json.Unmarshal(raw, &decoded))
	again, err := json.Marshal(decoded)
	check.Must(t, err)
	if diff := cmp.Diff(string(raw), string(again)); diff != "" {
		t.Errorf("encoded again (-first +second):\n%s", diff)
	}
	digest, err := index.Digest()
	check.Must(t, err)
	if want, _, err := v1.SHA256(bytes.NewReader(again)); err != nil || digest != want {
		t.Errorf("digest is %s, want %s: %v", digest, want, err)
	}
}

func TestArchiveOfAnIndexDependsOnlyOnInput(t *testing.T) {
	var archives [2]bytes.Buffer
	for i := range archives {
		check.Must(t, WriteIndex(&archives[i], published(t, time.Duration(i)*time.Hour), "registry.example/a", "1.2.3"))
	}
	if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
		t.Error("the archives differ")
	}
}

func TestArchiveOfAnIndexIsANamedLayout(t *testing.T) {
	index := published(t, 0)
	var written bytes.Buffer
	check.Must(t, WriteIndex(&written, index, "registry.example/a", "1.2.3"))
	read, err := layout.ImageIndexFromPath(unpack(t, &written))
	check.Must(t, err)
	if err := validate.Index(read); err != nil {
		t.Error(err)
	}
	manifest, err := read.IndexManifest()
	check.Must(t, err)
	digest, err := index.Digest()
	check.Must(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest {
		t.Fatalf("the layout contains %v, want the index %s", manifest.Manifests, digest)
	}
	want := map[string]string{"org.opencontainers.image.ref.name": "1.2.3", "io.containerd.image.name": "registry.example/a:1.2.3"}
	if diff := cmp.Diff(want, manifest.Manifests[0].Annotations); diff != "" {
		t.Error(diff)
	}
}

// unpack returns a directory with the content of an archive.
func unpack(t *testing.T, r io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer func() { _ = root.Close() }()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		check.Must(t, err)
		if header.Typeflag == tar.TypeDir {
			err = root.MkdirAll(filepath.Clean(header.Name), 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = root.WriteFile(header.Name, content, 0o644)
			}
		}
		check.Must(t, err)
	}
}
