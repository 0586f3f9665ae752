package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// source writes a file of the given age.
func source(t *testing.T, age time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	check.Must(t, os.WriteFile(path, []byte("content"), 0o755))
	when := time.Now().Add(-age)
	check.Must(t, os.Chtimes(path, when, when))
	return path
}

// example returns a spec with every field.
func example(program string) Spec {
	return Spec{
		Files: map[string]File{
			"/bin/program": {Source: program},
			"/etc/config":  {Content: []byte("x")},
			"bin/other":    {Source: program, Mode: 0o500},
		},
		Dirs:       map[string]fs.FileMode{"/tmp": 0o777 | fs.ModeSticky},
		Links:      map[string]string{"/bin/link": "program"},
		Entrypoint: []string{"/bin/program"},
		Cmd:        []string{"--flag"},
		User:       "65532",
		WorkingDir: "/tmp",
		Env:        []string{"A=b"},
		Labels:     map[string]string{"k": "v"},
		Created:    time.Unix(1, 0).UTC(),
	}
}

func TestDigestDependsOnlyOnInput(t *testing.T) {
	digests := map[v1.Hash]bool{}
	for _, age := range []time.Duration{0, time.Hour} {
		img, err := Build(example(source(t, age)))
		check.Must(t, err)
		digest, err := img.Digest()
		check.Must(t, err)
		digests[digest] = true
	}
	if len(digests) != 1 {
		t.Errorf("digests differ: %v", digests)
	}
}

// member is an entry of a layer.
type member struct {
	Name string
	Mode int64
	Link string
}

// members returns the entries of the image's layer.
func members(t *testing.T, spec Spec) []member {
	t.Helper()
	img, err := Build(spec)
	check.Must(t, err)
	layers, err := img.Layers()
	check.Must(t, err)
	reader, err := layers[0].Uncompressed()
	check.Must(t, err)
	var got []member
	for archive := tar.NewReader(reader); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		check.Must(t, err)
		got = append(got, member{header.Name, header.Mode, header.Linkname})
	}
}

func TestLayerContainsFilesDirectoriesAndLinks(t *testing.T) {
	want := []member{
		{"bin/", 0o755, ""},
		{"bin/link", 0o777, "program"},
		{"bin/other", 0o500, ""},
		{"bin/program", 0o755, ""},
		{"etc/", 0o755, ""},
		{"etc/config", 0o644, ""},
		{"tmp/", 0o1777, ""},
	}
	if diff := cmp.Diff(want, members(t, example(source(t, 0)))); diff != "" {
		t.Error(diff)
	}
}

func TestSourceDirectoryIsCopiedRecursively(t *testing.T) {
	dir := filepath.Dir(source(t, 0))
	check.Must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	check.Must(t, os.WriteFile(filepath.Join(dir, "a/b/c"), []byte("x"), 0o600))
	for to, want := range map[string][]member{
		"/etc/it": {
			{"etc/", 0o755, ""}, {"etc/it/", 0o755, ""}, {"etc/it/a/", 0o755, ""}, {"etc/it/a/b/", 0o755, ""}, {"etc/it/a/b/c", 0o644, ""},
			{"etc/it/program", 0o644, ""}, {"etc/other", 0o644, ""},
		},
		"/": {{"a/", 0o755, ""}, {"a/b/", 0o755, ""}, {"a/b/c", 0o644, ""}, {"etc/", 0o755, ""}, {"etc/other", 0o644, ""}, {"program", 0o644, ""}},
	} {
		got := members(t, Spec{Files: map[string]File{to: {Source: dir, Mode: 0o644}, "/etc/other": {}}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %s:\n%s", to, diff)
		}
	}
}

// Its links lead into the image, not to files of this machine.
func TestRootFileSystemIsCopiedAsItIs(t *testing.T) {
	root, program := t.TempDir(), source(t, 0)
	for dir, mode := range map[string]fs.FileMode{"dev": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o777 | fs.ModeSticky, "usr": 0o755, "usr/bin": 0o755} {
		check.Must(t, errors.Join(os.MkdirAll(filepath.Join(root, dir), 0o755), os.Chmod(filepath.Join(root, dir), mode)))
	}
	links := map[string]string{"bin": "usr/bin", "etc/mtab": "/proc/mounts", "usr/bin/pager": "/etc/alternatives/missing", "usr/bin/X11": "."}
	for link, target := range links {
		check.Must(t, os.Symlink(target, filepath.Join(root, link)))
	}
	su := filepath.Join(root, "usr/bin/su")
	check.Must(t, errors.Join(os.WriteFile(su, nil, 0o755), os.Chmod(su, 0o755|fs.ModeSetuid), syscall.Mkfifo(filepath.Join(root, "dev/initctl"), 0o600)))
	// A second directory at /etc, whose files are added to it.
	etc := filepath.Dir(source(t, 0))
	want := []member{
		{"app", 0o755, ""}, {"bin", 0o777, "usr/bin"}, {"dev/", 0o755, ""}, {"etc/", 0o755, ""}, {"etc/mtab", 0o777, "/proc/mounts"},
		{"etc/program", 0o755, ""}, {"root/", 0o700, ""}, {"tmp/", 0o1777, ""}, {"usr/", 0o755, ""}, {"usr/bin/", 0o755, ""},
		{"usr/bin/X11", 0o777, "."}, {"usr/bin/pager", 0o777, "/etc/alternatives/missing"}, {"usr/bin/su", 0o4755, ""},
	}
	got := members(t, Spec{Files: map[string]File{"/": {Source: root}, "/app": {Source: program}, "/etc": {Source: etc}}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfigurationIsThatOfTheSpec(t *testing.T) {
	img, err := Build(example(source(t, 0)))
	check.Must(t, err)
	file, err := img.ConfigFile()
	check.Must(t, err)
	want := v1.Config{
		Entrypoint: []string{"/bin/program"},
		Cmd:        []string{"--flag"},
		User:       "65532",
		WorkingDir: "/tmp",
		Env:        []string{"A=b", defaultPath},
		Labels:     map[string]string{"k": "v"},
	}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Error(diff)
	}
	if want := time.Unix(1, 0).UTC(); !file.Created.Equal(want) {
		t.Errorf("created %s, want %s", file.Created, want)
	}
	if file.OS != "linux" || file.Architecture == "" {
		t.Errorf("platform is %s/%s", file.OS, file.Architecture)
	}
}

func TestInvalidSpecsAreRejected(t *testing.T) {
	file := File{Content: []byte("x")}
	for name, spec := range map[string]Spec{
		"a file in a file":             {Files: map[string]File{"/a": file, "/a/b": file}},
		"the same path twice":          {Files: map[string]File{"/a": file, "a": file}},
		"a file and a directory":       {Files: map[string]File{"/a": file}, Dirs: map[string]fs.FileMode{"/a": 0o755}},
		"the root as a file":           {Files: map[string]File{"/": file}},
		"a source that does not exist": {Files: map[string]File{"/a": {Source: "/does/not/exist"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Build(spec); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestArchiveKeepsShortNames(t *testing.T) {
	img, err := Build(Spec{Files: map[string]File{"/a": {Content: []byte("x")}}})
	check.Must(t, err)
	var archive bytes.Buffer
	if err := WriteTar(&archive, map[string]v1.Image{"short:1": img, "localhost/long:2": img}); err != nil {
		t.Fatal(err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	check.Must(t, err)
	got := map[string]bool{}
	for _, entry := range manifest {
		for _, tag := range entry.RepoTags {
			got[tag] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"short:1": true, "localhost/long:2": true}, got); diff != "" {
		t.Error(diff)
	}
}
