package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// file is a file of an archive.
type file struct {
	name, source string
	mode         int64
}

// filesBelow returns the files below a directory, sorted, with their paths below name in the archive.
func filesBelow(dir, name string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(dir, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, source)
		files = append(files, file{path.Join(name, filepath.ToSlash(relative)), source, 0o644})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	return files, nil
}

// pack writes an archive with files that belong to root and have no time, and returns its SHA-256.
func pack(output string, files []file) (string, error) {
	var content bytes.Buffer
	compressed := gzip.NewWriter(&content)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		data, err := os.ReadFile(f.source)
		if err != nil {
			return "", fmt.Errorf("reading a file of the archive: %w", err)
		}
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
			return "", fmt.Errorf("packing %s: %w", f.name, err)
		}
		if _, err := archive.Write(data); err != nil {
			return "", fmt.Errorf("packing %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return "", fmt.Errorf("packing %s: %w", output, err)
	}
	if err := compressed.Close(); err != nil {
		return "", fmt.Errorf("compressing %s: %w", output, err)
	}
	if err := os.WriteFile(output, content.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("writing an archive: %w", err)
	}
	sum := sha256.Sum256(content.Bytes())
	return hex.EncodeToString(sum[:]), nil
}
