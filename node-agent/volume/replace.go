package volume

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Names at the root of a volume that are reserved for this package. The kubelet's atomic writer uses the same prefix.
const (
	hidden           = ".."
	dataLink         = "..data"
	generationPrefix = "..generation-"
	linkPrefix       = "..link-"
	asidePrefix      = "..aside-"
	removingPrefix   = "..removing-"
)

// links are the names at the root of a volume that lead into the current tree.
var links = []string{defaultLink, addressesDir, envFile, quotedEnvFile}

const (
	dirMode  = 0o755
	fileMode = 0o444
)

// newGeneration returns a name for the directory of a new tree. The name contains the Pod's namespace, because an
// object in another namespace may claim the same Pod uid.
func newGeneration(namespace string) string {
	if namespace == "" {
		return generationPrefix + rand.Text()
	}
	return generationPrefix + namespace + "." + rand.Text()
}

// namespaceOf returns the namespace in the name of a generation, or "".
func namespaceOf(generation string) string {
	namespace, _, found := strings.Cut(strings.TrimPrefix(generation, generationPrefix), ".")
	if !found {
		return ""
	}
	return namespace
}

// replace replaces the content of a volume. Readers see the old tree or the new one. A reader that is still in the old
// tree finds it complete until the next replacement.
func replace(mount *os.Root, want tree, namespace string, label Labeller) error {
	clean(mount)
	// Some file systems do not support it. Then link moves a directory aside, and readers may miss it.
	_ = adopt(mount, label)
	generation := newGeneration(namespace)
	if err := want.build(mount, generation, label); err != nil {
		discard(mount, generation) // The disk may be full.
		return err
	}
	return relink(mount, generation)
}

// relink makes a tree visible. In a volume that was written before, the first link does so, and the others stay.
func relink(mount *os.Root, generation string) error {
	if err := link(mount, dataLink, generation); err != nil {
		return err
	}
	for _, name := range links {
		if err := link(mount, name, path.Join(dataLink, name)); err != nil {
			return err
		}
	}
	return nil
}

// build writes a tree into a new directory, to which no link points yet.
func (t tree) build(mount *os.Root, dir string, label Labeller) error {
	if err := errors.Join(mkdir(mount, dir, label), mkdir(mount, path.Join(dir, addressesDir), label)); err != nil {
		return err
	}
	for i := range t {
		if err := t[i].build(mount, dir, label); err != nil {
			return err
		}
	}
	for _, f := range envFiles {
		if err := writeFile(mount, path.Join(dir, f.name), t[0].env(f.quote), label); err != nil {
			return err
		}
	}
	return mount.Symlink(t[0].path(), path.Join(dir, defaultLink))
}

func (d *directory) build(mount *os.Root, dir string, label Labeller) error {
	dir = path.Join(dir, d.path())
	ports := path.Join(dir, portsDir)
	if err := errors.Join(mkdir(mount, dir, label), mkdir(mount, ports, label)); err != nil {
		return err
	}
	for name, number := range d.ports {
		if err := writeFile(mount, path.Join(ports, name), number, label); err != nil {
			return err
		}
	}
	return writeFile(mount, path.Join(dir, addressFile), d.address, label)
}

// mkdir creates a directory that all users may read, regardless of the process's umask.
func mkdir(root *os.Root, name string, label Labeller) error {
	if err := root.Mkdir(name, dirMode); err != nil {
		return err
	}
	dir, err := openDir(root, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := errors.Join(dir.Chmod(dirMode), label.apply(dir)); err != nil {
		return errors.Join(err, root.Remove(name)) // else the next attempt would consider it complete
	}
	return nil
}

// writeFile creates a file that all users may read, regardless of the process's umask.
func writeFile(root *os.Root, name, content string, label Labeller) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	return errors.Join(err, f.Chmod(fileMode), label.apply(f), f.Close())
}

// link makes name a link to a path. It replaces an existing link or file atomically. A directory cannot be replaced,
// and is moved aside before.
func link(mount *os.Root, name, to string) error {
	if now, err := mount.Readlink(name); err == nil && now == to {
		return nil
	}
	temporary := linkPrefix + rand.Text()
	if err := mount.Symlink(to, temporary); err != nil {
		return err
	}
	if info, err := mount.Lstat(name); err == nil && info.IsDir() {
		if err := mount.Rename(name, asidePrefix+rand.Text()); err != nil {
			return fmt.Errorf("moving directory %s aside: %w", name, err)
		}
	}
	return mount.Rename(temporary, name)
}

// clean removes what earlier writes have left: unfinished trees, the tree before the current one, and directories that
// were moved aside. It ignores errors, and removes only so much at once: what remains does no harm, and is removed by
// the next write, or with the volume.
func clean(mount *os.Root) {
	current := currentGeneration(mount)
	r := removal{root: mount, step: atMost(cleanings)}
	_ = r.run(func(name string) bool { return strings.HasPrefix(name, hidden) && name != dataLink && name != current })
}

// discard removes an entry of the volume like clean.
func discard(mount *os.Root, entry string) {
	r := removal{root: mount, step: atMost(cleanings)}
	_ = r.run(func(name string) bool { return name == entry })
}

// currentGeneration returns the name of the directory with the current tree, or "".
func currentGeneration(mount *os.Root) string {
	name, err := mount.Readlink(dataLink)
	if err != nil || !strings.HasPrefix(name, generationPrefix) || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// populated reports whether a volume was ever written, at least in part.
func populated(mount *os.Root) bool {
	for _, name := range []string{dataLink, defaultLink, addressesDir} {
		if _, err := mount.Lstat(name); err == nil {
			return true
		}
	}
	return false
}
