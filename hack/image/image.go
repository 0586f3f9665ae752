// Package image builds container images from files, without a base image, a registry or a container engine. The same
// input results in the same digest on every machine. It must never run a program of the image.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing/fstest" // an in-memory file system, which archive/tar packs
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Spec describes an image of a single layer. Paths inside the image may be given with or without the leading slash.
type Spec struct {
	// Files maps a path in the image to a file, or to a directory with files. Parent directories are created with mode
	// 0755.
	Files map[string]File
	// Dirs maps a directory in the image to its mode, with setuid, setgid and sticky bits.
	Dirs map[string]fs.FileMode
	// Links maps the path of a symbolic link to its target.
	Links map[string]string
	// Entrypoint and Cmd are as in a Dockerfile.
	Entrypoint, Cmd []string
	// User is a name or "uid" or "uid:gid"; empty means root.
	User string
	// WorkingDir is where programs start. Empty means the root.
	WorkingDir string
	// Env is a list of NAME=value. PATH has a default.
	Env []string
	// Labels are the image's labels.
	Labels map[string]string
	// Architecture is a GOARCH. Empty means this machine's.
	Architecture string
	// Created is the creation time in the image's configuration. Zero means none.
	Created time.Time
}

// File is the content of a file in an image: the host's file Source or, if that is empty, Content. If Source is a
// directory, such as a root file system, File stands for all files, links and directories in it, without devices, pipes
// and sockets.
type File struct {
	Source  string
	Content []byte
	// Mode is the permission bits of each file. Zero means the bits of Source, of its directories, too, with setuid,
	// setgid and sticky bits, or 0644 for Content.
	Mode fs.FileMode
}

// defaultPath is the search path of programs in the image.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Build reads the files of the spec and returns the image.
func Build(spec Spec) (v1.Image, error) {
	layer, err := spec.layer()
	if err != nil {
		return nil, fmt.Errorf("packing the layer: %w", err)
	}
	// Uncompressed, because the image stays on this machine, and compression takes most of the time.
	return spec.complete(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
}

// complete returns img with the layer and the configuration of the spec.
func (s Spec) complete(img v1.Image, layer v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(img, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", cmp.Or(s.Architecture, runtime.GOARCH)
	config.Created = v1.Time{Time: s.Created}
	config.Config = v1.Config{
		Entrypoint: s.Entrypoint,
		Cmd:        s.Cmd,
		User:       s.User,
		WorkingDir: s.WorkingDir,
		Env:        slices.Clone(s.Env),
		Labels:     s.Labels,
	}
	if !slices.ContainsFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		config.Config.Env = append(config.Config.Env, defaultPath)
	}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return img, nil
}

// WriteTar writes the images, by their references, as an archive that container runtimes import. A reference without a
// registry has the same meaning as in a Pod.
func WriteTar(w io.Writer, images map[string]v1.Image) error {
	tagged := make(map[name.Reference]v1.Image, len(images))
	for ref, img := range images {
		// An empty default registry keeps short names, which the runtime completes.
		tag, err := name.NewTag(ref, name.WithDefaultRegistry(""))
		if err != nil {
			return fmt.Errorf("parsing image name %q: %w", ref, err)
		}
		tagged[tag] = img
	}
	if err := tarball.MultiRefWrite(tagged, w); err != nil {
		return fmt.Errorf("writing image archive: %w", err)
	}
	return nil
}

// layer returns the spec's files as a tar archive, whose bytes depend only on the files.
func (s Spec) layer() ([]byte, error) {
	files, err := s.tree()
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err := w.AddFS(files); err != nil {
		return nil, fmt.Errorf("packing the files: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// tree returns the content of the layer, with every parent directory. The files have no time and no owner.
func (s Spec) tree() (fstest.MapFS, error) {
	tree := fstest.MapFS{}
	for p, mode := range s.Dirs {
		if err := add(tree, p, fstest.MapFile{Mode: fs.ModeDir | mode}); err != nil {
			return nil, err
		}
	}
	for p, target := range s.Links {
		if err := add(tree, p, fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte(target)}); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.Files)) { // the first one decides the mode of a common directory
		if err := s.Files[p].add(tree, p); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Collect(maps.Keys(tree)) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if parent, ok := tree[dir]; !ok {
				tree[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			} else if !parent.Mode.IsDir() {
				return nil, fmt.Errorf("%s is in %s, which is not a directory", p, dir)
			}
		}
	}
	return tree, nil
}

// errOutside is returned for a path that the archive cannot contain.
var errOutside = errors.New("path is not in the image")

// add adds f at path p, which must be unused.
func add(tree fstest.MapFS, p string, f fstest.MapFile) error {
	name := strings.TrimPrefix(path.Clean("/"+p), "/")
	if name == "" {
		return fmt.Errorf("%q: %w", p, errOutside)
	}
	if _, ok := tree[name]; ok {
		return fmt.Errorf("%s is given twice", p)
	}
	tree[name] = &f
	return nil
}

// add adds the files that f stands for at path p.
func (f File) add(tree fstest.MapFS, p string) error {
	if f.Source == "" {
		return add(tree, p, fstest.MapFile{Mode: cmp.Or(f.Mode, 0o644), Data: f.Content})
	}
	root, err := filepath.EvalSymlinks(f.Source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(source string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, source)
		if err != nil {
			return err
		}
		p := path.Join(p, name)
		file, err := f.read(source, e, name == ".")
		if err != nil || file == nil {
			return err
		}
		if file.Mode.IsDir() {
			if other := tree[strings.TrimPrefix(path.Clean("/"+p), "/")]; f.Mode != 0 || name == "." || other != nil && other.Mode.IsDir() {
				return nil
			}
		}
		return add(tree, p, *file)
	})
}

// read returns a file, link or directory. Anything else, such as a pipe, is a file if it was named, or else nil.
func (f File) read(source string, e fs.DirEntry, named bool) (*fstest.MapFile, error) {
	if e.Type() == fs.ModeSymlink {
		target, err := os.Readlink(source)
		return &fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte(target)}, err
	}
	info, err := e.Info()
	if err != nil {
		return nil, err
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	switch {
	case info.IsDir():
		return &fstest.MapFile{Mode: fs.ModeDir | mode}, nil
	case !info.Mode().IsRegular() && !named:
		return nil, nil //nolint:nilnil // nothing of the image
	}
	content, err := os.ReadFile(source)
	return &fstest.MapFile{Mode: cmp.Or(f.Mode, mode), Data: content}, err
}
