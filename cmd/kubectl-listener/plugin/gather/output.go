package gather

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
)

// to gathers into a directory, or by one into an archive, which is removed if it cannot be completed.
func (g *gatherer) to(output string, collect func() error) (err error) {
	if !strings.HasSuffix(output, ".tar.gz") {
		return g.into(output, collect)
	}
	file, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the user names it
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(output))
		}
	}()
	dir, err := os.MkdirTemp("", "listener-gather-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := g.into(dir, collect); err != nil {
		return err
	}
	return pack(file, dir)
}

// into gathers into a directory, which must be empty.
func (g *gatherer) into(dir string, collect func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	if g.dir, err = os.OpenRoot(dir); err != nil {
		return err
	}
	return errors.Join(collect(), g.dir.Close())
}

// pack writes a directory to an archive.
func pack(file *os.File, dir string) error {
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), zipped.Close())
}

// exists reports whether a file was written.
func (g *gatherer) exists(name string) bool {
	_, err := g.dir.Stat(name)
	return err == nil
}

// write writes a file, unless the result became too large.
func (g *gatherer) write(name string, content []byte) error {
	if g.size+len(content) > source.MaxSize {
		return fmt.Errorf("the result would have more than %d bytes", source.MaxSize)
	}
	g.size += len(content)
	if err := g.dir.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return g.dir.WriteFile(name, content, 0o600)
}
