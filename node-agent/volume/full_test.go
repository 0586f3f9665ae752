package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// limit puts the kubelet's directory of Pods on a tmpfs with these mount options, which limit the number of files.
func (n *node) limit(t *testing.T, options string) {
	t.Helper()
	pods := filepath.Join(n.dir, "pods")
	must(t, os.RemoveAll(pods))
	must(t, os.Mkdir(pods, 0o750))
	if err := unix.Mount("tmpfs", pods, "tmpfs", 0, options); err != nil {
		t.Skipf("needs CAP_SYS_ADMIN to mount a small file system: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(pods, 0)) })
	n.addVolume(podUID, pvName, "")
}

func TestFailedFirstWriteLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.limit(t, "nr_inodes=12")
	_, err := n.host.Write(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", map[string]int32{"a": 1, "b": 2, "c": 3, "d": 4})})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	if _, err := os.Lstat(n.mount); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume: %v", err)
	}
}

func TestFailedRewriteKeepsTheContent(t *testing.T) {
	n := newNode(t)
	n.limit(t, "nr_inodes=31")
	n.write(ip("192.0.2.1", map[string]int32{"a": 1}))
	before, names := seen(t, n), namesIn(t, n.mount)
	_, err := n.host.Update(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.2", map[string]int32{"a": 1, "b": 2, "c": 3, "d": 4})})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	if diff := cmp.Diff(before, seen(t, n)); diff != "" {
		t.Errorf("the Pod sees something else (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(names, namesIn(t, n.mount)); diff != "" {
		t.Errorf("the root of the volume (-before +after):\n%s", diff)
	}
	n.write(ip("192.0.2.3", map[string]int32{"a": 1}))
	if got := n.read("default-address/address"); got != "192.0.2.3" {
		t.Errorf("after a write that fits, the Pod reads %q", got)
	}
}

func TestFailedMigrationKeepsTheContent(t *testing.T) {
	n := newNode(t)
	n.limit(t, "nr_inodes=22")
	writeLikeStackable(t, n.mount, "192.0.2.1", "80")
	_, err := n.host.Update(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.2", map[string]int32{"a": 1, "b": 2, "c": 3, "d": 4})})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	want := map[string]string{
		"/addresses": "..data/addresses", "/default-address": "..data/default-address", "default-address": "-> addresses/192.0.2.1",
		"addresses": "drwxr-xr-x", "addresses/192.0.2.1": "drwxr-xr-x", "addresses/192.0.2.1/address": "-rw-r--r-- 192.0.2.1",
		"addresses/192.0.2.1/ports": "drwxr-xr-x", "addresses/192.0.2.1/ports/http": "-rw-r--r-- 80",
	}
	check.Equal(t, "not the same tree in this package's layout", want, seen(t, n))
}

// TestVolumeOnAFullDiskIsRemoved fills a file system with directories until there is no block left, so that the
// directory to which the removal moves them cannot grow before others are removed.
func TestVolumeOnAFullDiskIsRemoved(t *testing.T) {
	for name, fill := range map[string]func(mount string) error{
		"directories with entries": func(mount string) error { return directories(mount, 1<<20) },
		"levels":                   func(mount string) error { return nest(mount, 1<<20, nil) },
		"levels with files":        func(mount string) error { return nest(mount, 1<<20, manyKinds) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.mountImage(t)
			n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
			if err := fill(n.mount); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("filling the disk: %v", err)
			}
			var err error
			for i := 0; err == nil; i++ { // the blocks that are left
				err = os.WriteFile(filepath.Join(n.mount, "last-"+strconv.Itoa(i)), make([]byte, 512), 0o600)
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("filling the disk: %v", err)
			}
			must(t, n.host.Remove(t.Context(), n.target))
			if got := namesIn(t, filepath.Dir(n.mount)); len(got) != 0 {
				t.Errorf("what is left: %v", got)
			}
		})
	}
}

// mountImage puts the kubelet's directory of Pods on an ext4 file system of 8 MiB, whose directories have small blocks.
func (n *node) mountImage(t *testing.T) {
	t.Helper()
	pods, image := filepath.Join(n.dir, "pods"), filepath.Join(t.TempDir(), "image")
	must(t, os.RemoveAll(pods))
	must(t, os.Mkdir(pods, 0o750))
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 8<<20))
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-b", "1024", "-I", "128", "-N", "20000", "-m", "0", "-O", "^has_journal", image}, {"mount", "-o", "loop", image, pods},
	} {
		if output, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs permission to mount an image with an ext4 file system: %v: %s", err, output)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(pods, 0)) })
	n.addVolume(podUID, pvName, "")
}
