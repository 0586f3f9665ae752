// Package image makes container images from files, with no base image, no registry and no container engine. The same
// input gives the same digest on every machine. It must never run a program from the image that it makes.
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
	// Files maps a path in the image to what it holds, a directory for one that stands for files. Parent directories
	// come by themselves, with mode 0755.
	Files map[string]File
	// Dirs maps a directory in the image to its mode, with setuid, setgid and sticky bits.
	Dirs map[string]fs.FileMode
	// Links maps the path of a symbolic link to its target.
	Links map[string]string
	// Entrypoint and Cmd are as in a container file.
	Entrypoint, Cmd []string
	// User is a name or "uid" or "uid:gid"; empty means root.
	User string
	// Env is a list of NAME=value. PATH is set if it is not among them.
	Env []string
	// WorkingDir is empty for the root directory.
	WorkingDir string
	// Labels are the image's labels.
	Labels map[string]string
	// Architecture is what the image's programs are built for, as Go names it. Empty means that of this machine.
	Architecture string
	// Created is when the image was made. The zero time leaves that open.
	Created time.Time
}

// File is what a file in an image holds: the content of the host's file Source or, if that is empty, Content. Where
// Source is a directory, it stands for all files below.
type File struct {
	Source  string
	Content []byte
	// Mode is the permission bits of the file, or of each file. Zero means those of Source, or 0644 for Content.
	Mode fs.FileMode
}

// defaultPath is what programs in the image find other programs by.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Build reads the files that spec names and returns the image.
func Build(spec Spec) (v1.Image, error) {
	layer, err := spec.layer()
	if err != nil {
		return nil, fmt.Errorf("packing the layer: %w", err)
	}
	// Uncompressed: the image travels no further than this machine, and compressing is most of the work.
	return spec.complete(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
}

// complete returns img with the layer and what else spec says.
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
		Env:        slices.Clone(s.Env),
		WorkingDir: s.WorkingDir,
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

// WriteTar writes the images, by their references, as an archive that container runtimes import. A reference without
// a registry means what it means in a Pod.
func WriteTar(w io.Writer, images map[string]v1.Image) error {
	tagged := make(map[name.Reference]v1.Image, len(images))
	for ref, img := range images {
		// The empty default leaves short names as they are, for the runtime to complete in its own way.
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

// layer returns the spec's files as a tar archive whose bytes depend on nothing but the files.
func (s Spec) layer() ([]byte, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		e.header.Name, e.header.ModTime, e.header.Format = name, time.Unix(0, 0), tar.FormatPAX
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// entry is one member of the layer.
type entry struct {
	header  tar.Header
	content []byte
}

// entries returns the layer's members by their names in the archive, with every parent directory. Sorted by name, a
// directory (its name ends in a slash) comes before what it holds.
func (s Spec) entries() (map[string]entry, error) {
	entries := map[string]entry{}
	for p, mode := range s.Dirs {
		if err := add(entries, p, entry{header: tar.Header{Typeflag: tar.TypeDir, Mode: tarMode(mode)}}); err != nil {
			return nil, err
		}
	}
	for p, target := range s.Links {
		if err := add(entries, p, entry{header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}}); err != nil {
			return nil, err
		}
	}
	for p, file := range s.Files {
		if err := file.add(entries, p); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Collect(maps.Keys(entries)) {
		for dir := path.Dir(strings.TrimSuffix(p, "/")); dir != "."; dir = path.Dir(dir) {
			if _, ok := entries[dir]; ok {
				return nil, fmt.Errorf("%s lies in %s, which is no directory", p, dir)
			}
			if _, ok := entries[dir+"/"]; !ok {
				entries[dir+"/"] = entry{header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}
			}
		}
	}
	return entries, nil
}

// errOutside refuses a path that the archive cannot hold.
var errOutside = errors.New("path does not lie in the image")

// add puts e at path p, which nothing else may have.
func add(entries map[string]entry, p string, e entry) error {
	name := strings.TrimPrefix(path.Clean("/"+p), "/")
	if name == "" {
		return fmt.Errorf("%q: %w", p, errOutside)
	}
	for _, taken := range []string{name, name + "/"} {
		if _, ok := entries[taken]; ok {
			return fmt.Errorf("%s is given twice", p)
		}
	}
	if e.header.Typeflag == tar.TypeDir {
		name += "/"
	}
	entries[name] = e
	return nil
}

// add puts what f stands for at path p.
func (f File) add(entries map[string]entry, p string) error {
	files, err := f.expand(p)
	if err != nil {
		return fmt.Errorf("reading the source of %s: %w", p, err)
	}
	for p, file := range files {
		content, mode, err := file.read()
		if err != nil {
			return fmt.Errorf("reading the source of %s: %w", p, err)
		}
		header := tar.Header{Typeflag: tar.TypeReg, Mode: tarMode(mode), Size: int64(len(content))}
		if err := add(entries, p, entry{header: header, content: content}); err != nil {
			return err
		}
	}
	return nil
}

// expand returns the files that f stands for at path p, by their paths.
func (f File) expand(p string) (map[string]File, error) {
	if f.Source == "" {
		return map[string]File{p: f}, nil
	}
	files := map[string]File{}
	return files, filepath.WalkDir(f.Source, func(source string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(f.Source, source)
		files[path.Join(p, name)] = File{Source: source, Mode: f.Mode}
		return err
	})
}

// read returns the content and mode of a single file.
func (f File) read() ([]byte, fs.FileMode, error) {
	if f.Source == "" {
		mode := f.Mode
		if mode == 0 {
			mode = 0o644
		}
		return f.Content, mode, nil
	}
	info, err := os.Stat(f.Source)
	if err != nil {
		return nil, 0, err
	}
	mode := f.Mode
	if mode == 0 {
		mode = info.Mode().Perm()
	}
	content, err := os.ReadFile(f.Source)
	return content, mode, err
}

// tarMode translates Go's mode bits to those of an archive.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
