// Package archive packs files so that the same files result in the same bytes.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// File is a file of an archive.
type File struct {
	// Name is the path in the archive.
	Name string
	// Mode are the permissions.
	Mode    int64
	Content []byte
}

// Below returns the files below a directory, sorted, with their paths below name in the archive. None is executable.
func Below(dir, name string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, source)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(source)
		files = append(files, File{path.Join(name, filepath.ToSlash(relative)), 0o644, content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the files below %s: %w", dir, err)
	}
	return files, nil
}

// Pack returns a compressed tar archive. The files belong to root and have no time.
func Pack(files []File) ([]byte, error) {
	var content bytes.Buffer
	compressed := gzip.NewWriter(&content)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), Format: tar.FormatPAX}); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
		if _, err := archive.Write(f.Content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return content.Bytes(), nil
}

// Unpack returns the files of a compressed tar archive.
func Unpack(packed []byte) ([]File, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	var files []File
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("unpacking %s: %w", header.Name, err)
		}
		files = append(files, File{header.Name, header.Mode, content})
	}
}
