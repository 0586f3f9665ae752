package volume

import (
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt brings a volume that the peer wrote, which has the tree at its root, into our layout, with the content that it
// has. Readers see the same all the time: what the default address led to before stays where both the old link and the
// new one lead. Any other volume is left alone, and after an error readers still see the same.
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

// exchange swaps what has this name at the root of the volume and in a directory of it, at once. os.Root cannot do
// that; the names given to the system are in directories that an os.Root has opened, and are followed nowhere.
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
