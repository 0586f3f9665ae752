package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// labelled publishes a volume with a fake Labeller, which fails for the name fail. It returns the labelled names in
// order, and the path of the volume.
func labelled(t *testing.T, fail string) (names []string, mount string, err error) {
	t.Helper()
	dir := t.TempDir()
	target := Target{PodUID: "uid", Name: "pv", Namespace: "shop"}
	parent := filepath.Join(dir, "pods", target.parent())
	check.Must(t, os.MkdirAll(parent, 0o750))
	host := NewHost(dir)
	host.Label = func(f *os.File) error {
		name := strings.TrimPrefix(f.Name(), parent+"/")
		if _, below, found := strings.Cut(name, generationPrefix); found {
			_, below, _ = strings.Cut(below, "/")
			name = "mount/..generation-X/" + below
		}
		names = append(names, strings.TrimSuffix(name, "/"))
		if name == fail {
			return errors.New("denied")
		}
		return nil
	}
	_, err = host.Write(target, []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", Ports: map[string]int32{"http": 80}}})
	return names, filepath.Join(parent, "mount"), err
}

func TestAllFilesAndDirectoriesAreLabelled(t *testing.T) {
	got, mount, err := labelled(t, "")
	check.Must(t, err)
	want := []string{
		"mount", "mount/..generation-X", "mount/..generation-X/addresses", "mount/..generation-X/addresses/192.0.2.1",
		"mount/..generation-X/addresses/192.0.2.1/address", "mount/..generation-X/addresses/192.0.2.1/ports",
		"mount/..generation-X/addresses/192.0.2.1/ports/http", "mount/..generation-X/default-address.env",
		"mount/..generation-X/default-address.quoted.env",
	}
	if len(got) == 0 || got[0] != "mount" {
		t.Errorf("the volume itself, whose label links inherit, is not labelled first: %q", got)
	}
	slices.Sort(got)
	check.Equal(t, "labelled", want, got)
	if _, err := os.ReadFile(filepath.Join(mount, "default-address", "address")); err != nil {
		t.Error(err)
	}
}

func TestVolumeIsNotPublishedIfLabellingFails(t *testing.T) {
	for _, name := range []string{"mount", "mount/..generation-X/addresses", "mount/..generation-X/addresses/192.0.2.1/address"} {
		_, mount, err := labelled(t, name)
		if err == nil || !strings.Contains(err.Error(), "denied") {
			t.Errorf("%s: error is %v", name, err)
		}
		if _, err := os.Lstat(mount); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the volume exists: %v", name, err)
		}
	}
}

func TestFilesAreLabelledOnlyWithSELinux(t *testing.T) {
	if selinux(t.TempDir()) == nil {
		t.Error("no labels, although the node uses SELinux")
	}
	if selinux(filepath.Join(t.TempDir(), "none")) != nil {
		t.Error("labels, although the node does not use SELinux")
	}
}

func TestFileSystemWithoutLabelsIsAccepted(t *testing.T) {
	const name = "/proc/self/comm"
	if err := unix.Setxattr(name, "security.selinux", []byte("x"), 0); !errors.Is(err, unix.ENOTSUP) {
		t.Skipf("needs CAP_SYS_ADMIN, or a kernel that uses SELinux and does not label %s: %v", name, err)
	}
	f, err := os.Open(name)
	check.Must(t, err)
	defer f.Close()
	if err := setLabel(f); err != nil {
		t.Error(err)
	}
}

func TestFileThatMustNotBeLabelledIsAnError(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	check.Must(t, err)
	defer f.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err = errors.Join(err, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)); err != nil {
		t.Skipf("needs CAP_LINUX_IMMUTABLE, and a file system with immutable files in %s: %v", filepath.Dir(f.Name()), err)
	}
	defer func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
			t.Error(err)
		}
	}()
	if err := setLabel(f); !errors.Is(err, unix.EPERM) {
		t.Errorf("error is %v", err)
	}
}

func TestLabelIsAnAttributeOfTheFile(t *testing.T) {
	const want = "system_u:object_r:container_file_t:s0"
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe")
	check.Must(t, os.WriteFile(probe, nil, 0o600))
	if err := unix.Setxattr(probe, "security.selinux", []byte(want), 0); err != nil {
		t.Skipf("needs a file system with labels in %s, and CAP_SYS_ADMIN where the kernel does not use SELinux: %v", dir, err)
	}
	f, err := os.Create(filepath.Join(dir, "file"))
	check.Must(t, err)
	defer f.Close()
	check.Must(t, setLabel(f))
	value := make([]byte, 100)
	n, err := unix.Getxattr(f.Name(), "security.selinux", value)
	if err != nil {
		t.Fatalf("reading the label: %v", err)
	}
	if got := strings.TrimRight(string(value[:n]), "\x00"); got != want {
		t.Errorf("the label is %q, want %q", got, want)
	}
}
