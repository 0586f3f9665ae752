package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// agentCapabilities are the capabilities that the DaemonSet keeps. They are needed because a Pod may change the owners
// and modes of the files in its volume, and make directories sticky.
var agentCapabilities = []int{unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER}

// asAgent runs f with the capabilities of the node agent only. It has to be called as root.
func asAgent(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which the node agent runs as, to handle files of other users")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has to end with the goroutine, as it cannot regain capabilities
		err := restrictThread(agentCapabilities)
		if err == nil {
			f()
		}
		done <- err
	}()
	must(t, <-done)
}

func restrictThread(capabilities []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range capabilities {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return unix.Capset(&header, &data[0])
}

// hostile is what a Pod may do as root to its volume, which has the address 192.0.2.1 with port http. outside is a
// directory outside of the volume that must not change.
var hostile = map[string]func(mount, outside string) error{
	"nothing": func(_, _ string) error { return nil },
	"data is a directory": func(mount, _ string) error {
		data := filepath.Join(mount, "..data")
		return errors.Join(os.Remove(data), os.MkdirAll(filepath.Join(data, "addresses", "192.0.2.66"), 0o755))
	},
	"data is a file": func(mount, _ string) error {
		data := filepath.Join(mount, "..data")
		return errors.Join(os.Remove(data), os.WriteFile(data, []byte("x"), 0o600))
	},
	"data points outside": func(mount, outside string) error {
		return relink(outside, filepath.Join(mount, "..data"))
	},
	"data points outside on a relative path": func(mount, outside string) error {
		to, err := filepath.Rel(mount, outside)
		return errors.Join(err, relink(to, filepath.Join(mount, "..data")))
	},
	"data points to the parent": func(mount, _ string) error { return relink("..", filepath.Join(mount, "..data")) },
	"data points to itself":     func(mount, _ string) error { return relink("..data", filepath.Join(mount, "..data")) },
	"addresses points outside": func(mount, outside string) error {
		return relink(outside, filepath.Join(mount, "addresses"))
	},
	"the default address points outside": func(mount, outside string) error {
		return relink(outside, filepath.Join(mount, "default-address"))
	},
	"the default address is a full directory": func(mount, _ string) error {
		link := filepath.Join(mount, "default-address")
		return errors.Join(os.Remove(link), os.MkdirAll(filepath.Join(link, "a", "b"), 0o755))
	},
	"the default address is a pipe": func(mount, _ string) error {
		link := filepath.Join(mount, "default-address")
		return errors.Join(os.Remove(link), syscall.Mkfifo(link, 0o600))
	},
	"a file is a pipe": func(mount, _ string) error {
		file := filepath.Join(mount, "addresses", "192.0.2.1", "address")
		return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600))
	},
	"a directory is a pipe": func(mount, _ string) error {
		dir := filepath.Join(mount, "addresses", "192.0.2.1", "ports")
		return errors.Join(os.RemoveAll(dir), syscall.Mkfifo(dir, 0o600))
	},
	"the tree is a pipe": func(mount, _ string) error {
		tree, err := filepath.EvalSymlinks(filepath.Join(mount, "..data"))
		return errors.Join(err, os.RemoveAll(tree), syscall.Mkfifo(tree, 0o600))
	},
	"the tree is outside": func(mount, outside string) error {
		tree, err := filepath.EvalSymlinks(filepath.Join(mount, "..data"))
		return errors.Join(err, os.RemoveAll(tree), os.Symlink(outside, tree))
	},
	"an address is outside": func(mount, outside string) error {
		dir := filepath.Join(mount, "addresses", "192.0.2.1")
		return errors.Join(os.RemoveAll(dir), os.Symlink(outside, dir))
	},
	"a file is outside": func(mount, outside string) error {
		return relink(filepath.Join(outside, "canary"), filepath.Join(mount, "addresses", "192.0.2.1", "address"))
	},
	"leftovers point outside": func(mount, outside string) error {
		return errors.Join(os.Symlink(outside, filepath.Join(mount, "..generation-EVIL")),
			os.MkdirAll(filepath.Join(mount, "..aside-EVIL"), 0o755), os.Symlink(outside, filepath.Join(mount, "..aside-EVIL", "link")))
	},
	"everything is deleted": func(mount, _ string) error {
		names, err := filepath.Glob(filepath.Join(mount, "*"))
		hidden, err2 := filepath.Glob(filepath.Join(mount, "..*"))
		errs := []error{err, err2}
		for _, name := range append(names, hidden...) {
			if filepath.Dir(name) == mount {
				errs = append(errs, os.RemoveAll(name))
			}
		}
		return errors.Join(errs...)
	},
	"the volume is another user's": func(mount, _ string) error {
		return errors.Join(os.Chown(mount, 1000, 1000), os.Chmod(mount, 0o700))
	},
	"the volume has mode 0": func(mount, _ string) error { return os.Chmod(mount, 0) },
	"the volume is sticky, and all in it another user's": func(mount, _ string) error {
		return filepath.WalkDir(mount, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(path, 0o777|fs.ModeSticky)
			}
			return errors.Join(err, os.Lchown(path, 1000, 1000))
		})
	},
	"addresses is a private directory of another user": func(mount, _ string) error {
		dir := filepath.Join(mount, "addresses")
		return errors.Join(os.Remove(dir), os.MkdirAll(filepath.Join(dir, "sub"), 0o700),
			os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600), os.Chown(dir, 1000, 1000), os.Chmod(dir, 0))
	},
	"a private directory of another user looks like Stackable's layout": func(mount, _ string) error {
		dir := filepath.Join(mount, "addresses")
		return errors.Join(os.Remove(dir), os.MkdirAll(filepath.Join(dir, "192.0.2.1"), 0o700), relink("addresses/192.0.2.1", filepath.Join(mount, "default-address")),
			os.Chown(dir, 1000, 1000), os.Chmod(dir, 0), os.Chmod(mount, 0o777|fs.ModeSticky), os.Chown(mount, 1000, 1000))
	},
	"a default address that looks like Stackable's layout points outside": func(mount, outside string) error {
		to, err := filepath.Rel(mount, outside)
		dir := filepath.Join(mount, "addresses")
		return errors.Join(err, os.Remove(dir), os.Mkdir(dir, 0o755), relink("addresses/../"+to, filepath.Join(mount, "default-address")))
	},
	"the tree is a private directory of another user": func(mount, _ string) error {
		tree, err := filepath.EvalSymlinks(filepath.Join(mount, "..data"))
		return errors.Join(err, os.Chown(tree, 1000, 1000), os.Chmod(tree, 0o700))
	},
	"a directory that looks like a temporary one": func(mount, _ string) error {
		return os.MkdirAll(filepath.Join(mount, "..link-EVIL", "deep", "er"), 0)
	},
	"links in a circle": func(mount, _ string) error {
		return errors.Join(relink("default-address", filepath.Join(mount, "addresses")), relink("addresses", filepath.Join(mount, "default-address")))
	},
}

func relink(to, name string) error { return errors.Join(os.Remove(name), os.Symlink(to, name)) }

func TestHostilePodCannotEscapeOrBlockItsVolume(t *testing.T) {
	fresh := newNode(t)
	fresh.write(ip("192.0.2.2", map[string]int32{"http": 81}))
	want := seen(t, fresh)
	for name, act := range hostile {
		for again, second := range map[string]listenersv1alpha1.IngressAddress{
			"new content":  ip("192.0.2.2", map[string]int32{"http": 81}),
			"same content": ip("192.0.2.1", map[string]int32{"http": 80}),
		} {
			t.Run(name+", "+again, func(t *testing.T) {
				n := newNode(t)
				outside := canary(t, n.dir)
				n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
				must(t, act(n.mount, outside))
				asAgent(t, func() {
					if _, err := n.host.Write(n.target, []listenersv1alpha1.IngressAddress{second}); err != nil {
						t.Errorf("writing: %v", err)
					}
				})
				checkCanary(t, outside)
				if got := n.read("default-address/address"); got != second.Address {
					t.Errorf("the default address is %q", got)
				}
				if again == "new content" {
					check.Equal(t, "differs from a fresh volume", want, seen(t, n))
				}
				asAgent(t, func() {
					if err := n.host.Remove(t.Context(), n.target); err != nil {
						t.Errorf("removing: %v", err)
					}
				})
				checkCanary(t, outside)
				if _, err := os.Lstat(n.mount); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the volume still exists: %v", err)
				}
			})
		}
	}
}

func TestLinksToCopiesAreReplaced(t *testing.T) {
	for _, name := range []string{"address", "ports"} {
		n := newNode(t)
		n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
		path := filepath.Join(n.mount, "addresses", "192.0.2.1", name)
		must(t, errors.Join(os.Rename(path, filepath.Join(n.mount, "copy")), os.Symlink("../../../copy", path)))
		if !n.write(ip("192.0.2.1", map[string]int32{"http": 80})).Changed {
			t.Errorf("%s is a link, and is not replaced", name)
		}
	}
}

func TestFilledDirectoryIsReplaced(t *testing.T) {
	// When a node crashes, its volumes are not unpublished, and still have their content when it is back.
	n, fresh := newNode(t), newNode(t)
	writeLikeStackable(t, n.mount, "192.0.2.9", "9")
	must(t, os.WriteFile(filepath.Join(n.mount, "of the Pod"), []byte("kept"), 0o644))
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	fresh.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	check.Equal(t, "differs from a fresh volume", seen(t, fresh), seen(t, n))
	if got := n.read("of the Pod"); got != "kept" {
		t.Errorf("the Pod's own file reads %q", got)
	}
}

func TestVolumeThatIsALinkIsRefused(t *testing.T) {
	for name, to := range map[string]func(outside string) string{
		"outside":          func(outside string) string { return outside },
		"below the parent": func(string) string { return "sibling" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			outside, sibling := canary(t, n.dir), filepath.Join(filepath.Dir(n.mount), "sibling")
			must(t, os.Mkdir(sibling, 0o755))
			must(t, os.Symlink(to(outside), n.mount))
			if _, err := n.host.Write(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)}); !errors.Is(err, volume.ErrInvalidTarget) {
				t.Errorf("error is %v", err)
			}
			must(t, n.host.Remove(t.Context(), n.target))
			checkCanary(t, outside)
			if names := namesIn(t, sibling); len(names) > 0 {
				t.Errorf("written through the link: %v", names)
			}
		})
	}
}
