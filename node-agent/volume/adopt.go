package volume

import (
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt converts a volume written by Stackable's listener operator, which has the tree at its root, to the layout of
// this package, and keeps its content. Readers see the same content throughout: the directory of the default address
// stays reachable by the old path and the new one. Other volumes are not changed. After an error readers still see the
// same.
func adopt(mount *os.Root, label Labeller) error {
	first, err := mount.Readlink(defaultLink)
	if err != nil || !strings.HasPrefix(first, addressesDir+"/") {
		return nil
	}
	if info, err := mount.Lstat(addressesDir); err != nil || !info.IsDir() {
		return nil
	}
	generation := generationPrefix + rand.Text()
	if err := mkdir(mount, generation, label); err != nil {
		return err
	}
	if err := mount.Symlink(first, path.Join(generation, defaultLink)); err != nil {
		return err
	}
	if err := mount.Symlink(path.Join(dataLink, addressesDir), path.Join(generation, addressesDir)); err != nil {
		return err
	}
	if err := link(mount, dataLink, generation); err != nil {
		return err
	}
	if err := exchange(mount, generation, addressesDir); err != nil {
		return err
	}
	return link(mount, defaultLink, path.Join(dataLink, defaultLink))
}

// exchange atomically swaps the entries of this name in the root of the volume and in one of its directories. os.Root
// has no such operation. It is still safe: the names are relative to directories that an os.Root has opened, and
// renaming does not follow links.
func exchange(mount *os.Root, dir, name string) error {
	root, err := openDir(mount, ".")
	if err != nil {
		return err
	}
	defer root.Close()
	other, err := openDir(mount, dir)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Renameat2(int(root.Fd()), name, int(other.Fd()), name, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchanging %s: %w", name, err)
	}
	return nil
}
