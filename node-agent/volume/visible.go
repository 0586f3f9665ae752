package volume

import (
	"io"
	"os"
	"path"
	"syscall"
)

// visible tells whether a volume shows exactly this tree already, be it in our layout or as the plain directory that
// the peer writes. It reads no more than it expects, and never waits: in doubt the answer is no.
func (t tree) visible(mount *os.Root) bool {
	if t.in(mount, ".") {
		return true
	}
	for _, name := range []string{defaultLink, addressesDir} {
		if to, err := mount.Readlink(name); err != nil || to != path.Join(dataLink, name) {
			return false
		}
	}
	generation := currentGeneration(mount)
	return generation != "" && t.in(mount, generation)
}

// in tells whether a directory of the volume holds exactly this tree.
func (t tree) in(mount *os.Root, dir string) bool {
	entries := make([]string, len(t))
	for i := range t {
		entries[i] = t[i].address
	}
	to, err := mount.Readlink(path.Join(dir, defaultLink))
	if err != nil || to != t[0].path() || !holds(mount, path.Join(dir, addressesDir), entries) {
		return false
	}
	for i := range t {
		if !t[i].in(mount, dir) {
			return false
		}
	}
	return true
}

func (d *directory) in(mount *os.Root, dir string) bool {
	dir = path.Join(dir, d.path())
	ports := path.Join(dir, portsDir)
	entries := make([]string, 0, len(d.ports))
	for name, number := range d.ports {
		if !reads(mount, path.Join(ports, name), number) {
			return false
		}
		entries = append(entries, name)
	}
	return holds(mount, dir, []string{addressFile, portsDir}) && holds(mount, ports, entries) &&
		reads(mount, path.Join(dir, addressFile), d.address)
}

// holds tells whether a name is a directory, not a link to one, with exactly these entries.
func holds(root *os.Root, dir string, entries []string) bool {
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

// reads tells whether a name is a plain file with this content.
func reads(root *os.Root, name, content string) bool {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return false
	}
	// It may be another kind of file by now, whose opening must not wait for somebody at its other end.
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

// eachName calls f with the names in a directory, a few at a time because there may be any number of them, until f
// returns false. It tells whether all names were seen.
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

// openDir opens a directory. What has become something else is refused rather than waited for.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
}
