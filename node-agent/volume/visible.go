package volume

import (
	"io"
	"os"
	"path"
	"syscall"
)

// visible reports whether a volume already shows exactly this tree, in the layout of this package or in that of
// Stackable's listener operator. It reads no more than it expects, never blocks, and returns false in case of doubt.
func (t tree) visible(mount *os.Root) bool {
	if t.matches(mount, ".") {
		return true
	}
	for _, name := range links {
		if to, err := mount.Readlink(name); err != nil || to != path.Join(dataLink, name) {
			return false
		}
	}
	generation := currentGeneration(mount)
	if generation == "" || !t.matches(mount, generation) {
		return false
	}
	for _, f := range envFiles {
		if !hasContent(mount, path.Join(generation, f.name), t[0].env(f.quote)) {
			return false
		}
	}
	return true
}

// matches reports whether a directory of the volume contains exactly this tree.
func (t tree) matches(mount *os.Root, dir string) bool {
	entries := make([]string, len(t))
	for i := range t {
		entries[i] = t[i].address
	}
	to, err := mount.Readlink(path.Join(dir, defaultLink))
	if err != nil || to != t[0].path() || !hasEntries(mount, path.Join(dir, addressesDir), entries) {
		return false
	}
	for i := range t {
		if !t[i].matches(mount, dir) {
			return false
		}
	}
	return true
}

func (d *directory) matches(mount *os.Root, dir string) bool {
	dir = path.Join(dir, d.path())
	ports := path.Join(dir, portsDir)
	entries := make([]string, 0, len(d.ports))
	for name, number := range d.ports {
		if !hasContent(mount, path.Join(ports, name), number) {
			return false
		}
		entries = append(entries, name)
	}
	return hasEntries(mount, dir, []string{addressFile, portsDir}) && hasEntries(mount, ports, entries) &&
		hasContent(mount, path.Join(dir, addressFile), d.address)
}

// hasEntries reports whether a name is a directory, and not a link to one, with exactly these entries.
func hasEntries(root *os.Root, dir string, entries []string) bool {
	if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
		return false
	}
	want := make(map[string]bool, len(entries))
	for _, name := range entries {
		want[name] = true
	}
	complete := eachName(root, dir, func(name string) bool {
		known := want[name]
		delete(want, name)
		return known
	})
	return complete && len(want) == 0
}

// hasContent reports whether a name is a regular file, and not a link to one, with this content.
func hasContent(root *os.Root, name, content string) bool {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return false
	}
	// The Pod may have replaced it by a named pipe since, and opening that must not block.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	got, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && string(got) == content
}

// eachName calls f for each name in a directory until f returns false, and reports whether f was called for all names.
// It reads the names in chunks, because a directory may have any number of them.
func eachName(root *os.Root, dir string, f func(name string) bool) bool {
	d, err := openDir(root, dir)
	if err != nil {
		return false
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(128)
		for _, name := range names {
			if !f(name) {
				return false
			}
		}
		if err != nil {
			return err == io.EOF
		}
	}
}

// openDir opens a directory. Anything else is an error, and opening it does not block.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
}
