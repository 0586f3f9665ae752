package cluster

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/listener-operator/listener-operator/hack/image"
)

// mergedDirs are the directories at the root of a Debian system that are links to those in /usr.
var mergedDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// DebianImage returns the spec of an image with packages of this machine's release of Debian, and with what they depend
// on. Packages that the release takes for granted, such as a shell, have to be named. The scripts of packages do not
// run, so there are no users, caches or alternatives: a program has the path that is in its package, such as
// /usr/lib/jvm/java-17-openjdk-amd64/bin/java. apt-get downloads what is not in the user's cache yet.
func DebianImage(ctx context.Context, packages ...string) (image.Spec, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return image.Spec{}, fmt.Errorf("finding the cache: %w", err)
	}
	dir := filepath.Join(cache, "listener-operator", "debian")
	files, err := downloadPackages(ctx, dir, packages)
	if err != nil {
		// The package lists may be absent or too old.
		if err := aptGet(ctx, "update"); err != nil {
			return image.Spec{}, err
		}
		if files, err = downloadPackages(ctx, dir, packages); err != nil {
			return image.Spec{}, err
		}
	}
	spec := image.Spec{Files: map[string]image.File{}, Dirs: map[string]fs.FileMode{}, Links: map[string]string{}}
	for _, dir := range mergedDirs {
		spec.Dirs["/usr/"+dir], spec.Links["/"+dir] = 0o755, "usr/"+dir
	}
	spec.Dirs["/tmp"] = 0o777 | fs.ModeSticky
	for _, file := range files {
		if err := addPackage(ctx, &spec, filepath.Join(dir, file)); err != nil {
			return image.Spec{}, fmt.Errorf("unpacking %s: %w", file, err)
		}
	}
	return spec, nil
}

// downloadPackages downloads packages and what they depend on to a directory, and returns the names of their files.
func downloadPackages(ctx context.Context, dir string, packages []string) ([]string, error) {
	empty, err := os.MkdirTemp("", "debian-*")
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(empty) }()
	status := filepath.Join(empty, "status")
	if err := errors.Join(os.WriteFile(status, nil, 0o600), os.MkdirAll(filepath.Join(dir, "partial"), 0o755)); err != nil {
		return nil, fmt.Errorf("preparing the download of packages: %w", err)
	}
	// As if no package were installed.
	install := append([]string{
		"install", "--yes", "--no-install-recommends", "--option=Dir::State::status=" + status, "--option=Debug::NoLocking=1",
	}, packages...)
	list, err := aptGetOutput(ctx, append(install, "--print-uris", "--option=Dir::Cache::archives="+empty)...)
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasSuffix(fields[1], ".deb") {
			return nil, fmt.Errorf("apt-get printed %q instead of an address and a file", line)
		}
		files = append(files, fields[1])
	}
	return files, aptGet(ctx, append(install, "--download-only", "--option=Dir::Cache::archives="+dir, "--option=APT::Sandbox::User=root")...)
}

// addPackage adds the files of a package to the spec.
func addPackage(ctx context.Context, spec *image.Spec, file string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var messages strings.Builder
	cmd.Stderr = &messages
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = addArchive(spec, output)
	_, _ = io.Copy(io.Discard, output) // what is left after an error, so that dpkg-deb ends
	if waitErr := cmd.Wait(); waitErr != nil {
		return errors.Join(err, fmt.Errorf("%w: %s", waitErr, messages.String()))
	}
	return err
}

// addArchive adds the files of an archive to the spec. What is in /bin, /lib and their like comes to /usr.
func addArchive(spec *image.Spec, archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		name, mode := mergedPath(header.Name), header.FileInfo().Mode()
		switch header.Typeflag {
		case tar.TypeDir:
			if name != "/" && spec.Links[name] == "" {
				spec.Dirs[name] = mode &^ fs.ModeDir
			}
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			spec.Files[name] = image.File{Content: content, Mode: mode}
		case tar.TypeSymlink:
			spec.Links[name] = header.Linkname
		case tar.TypeLink:
			spec.Files[name] = spec.Files[mergedPath(header.Linkname)]
		default:
			return fmt.Errorf("%s is of the unsupported type %q", name, header.Typeflag)
		}
	}
}

// mergedPath returns the path in the image of a file in a package.
func mergedPath(name string) string {
	name = path.Clean("/" + name)
	top, rest, found := strings.Cut(name[1:], "/")
	if found && slices.Contains(mergedDirs, top) {
		return path.Join("/usr", top, rest)
	}
	return name
}
